"""When a source that keeps failing is left alone."""

from __future__ import annotations

from dataclasses import dataclass

from limen.ports import Clock
from limen.upstream.errors import SourceDownError


@dataclass(slots=True)
class Breaker:
    """Open after `failures_to_open` failures in a row; after `cool_down_s` let one probe out.

    A probe that succeeds closes it; one that fails opens it for another `cool_down_s`.
    """

    clock: Clock
    failures_to_open: int = 5
    cool_down_s: float = 30.0
    _failures: int = 0
    _opened_at: float | None = None
    _probing: bool = False

    def check(self) -> None:
        """Do nothing if a request may go out now.

        Raises:
            SourceDownError: it may not; says when one may.
        """
        if self._opened_at is None:
            return
        left_s = self._opened_at + self.cool_down_s - self.clock.monotonic()
        if left_s > 0:
            raise SourceDownError(
                f"source failed {self._failures} times in a row and is left alone", left_s
            )
        if self._probing:
            raise SourceDownError("source is being tried out after failures", 1.0)

    def admit(self) -> None:
        """Count one request as going out. Say afterwards how it ended, whatever happens.

        Raises:
            SourceDownError: it must not go out.
        """
        self.check()
        self._probing = self._opened_at is not None

    def succeeded(self) -> None:
        """Note an answer."""
        self._failures, self._opened_at, self._probing = 0, None, False

    def failed(self) -> None:
        """Note a request without a usable answer."""
        self._failures += 1
        self._probing = False
        if self._failures >= self.failures_to_open:
            self._opened_at = self.clock.monotonic()

    def abandoned(self) -> None:
        """Note a request that we ended ourselves: it says nothing about the source."""
        self._probing = False
