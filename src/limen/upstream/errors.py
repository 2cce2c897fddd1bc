"""What can go wrong with a source that is not ours.

UpstreamError
├── SourceDownError        no answer, or one that says the source cannot answer now
│   └── NoAnswerError      this attempt ended without an answer; another may get one
├── SourceThrottledError   the source, or our own throttle, says: not now
├── SourceChangedError     an answer came that is not what we know how to read
└── WrongHostError         the address configured, or sent to, is not one we may ask
"""

from __future__ import annotations

from typing import ClassVar

from limen.errors import LimenError


class UpstreamError(LimenError):
    """Be the root of what goes wrong with a source. `code` is for programs and never changes."""

    code: ClassVar[str] = "upstream"


class SourceDownError(UpstreamError):
    """Say that a source gives no answer. `retry_after_s` is when to ask again, None if unknown."""

    code = "source_down"

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class NoAnswerError(SourceDownError):
    """Say why one attempt ended without a whole answer."""


class SourceThrottledError(UpstreamError):
    """Say that a source must not be asked now, and in how many seconds it may be."""

    code = "source_throttled"

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class SourceChangedError(UpstreamError):
    """Say what about an answer is not as we know it. No value of it was used."""

    code = "source_changed"


class WrongHostError(UpstreamError):
    """Say which address may not be asked, and which one to write instead."""

    code = "wrong_host"
