"""Faults: what went wrong on our side, never a refusal.

A refusal is a value (`words.Refused`); an exception is a fault, and a fault inside a step refuses.

    LimenError
    ├── SettingsError          a setting is wrong: names the file, the key and what to write instead
    ├── NotJsonError           a message is not JSON as this boundary reads it
    ├── CatalogueError         a tool, prompt or resource cannot be entered as declared
    ├── PolicyError            a policy file does not parse or does not validate
    ├── StoreError             the store cannot be opened, read or written
    │   ├── AuditError         a row of the audit trail could not be made durable
    │   └── TakenError         a key that is unique is taken
    ├── MerkleError            a proof does not prove, or a frontier is none
    ├── NoteError              a key, a note, a checkpoint or a proof is not what it should be
    ├── VerifyError            a copy of the trail cannot be looked at
    ├── ApprovalError          an approval cannot be decided as asked
    ├── ResourceError          a resource is no address that a token can name
    ├── IssuerError            an issuer cannot be trusted as set up
    ├── KeysError              the keys of an issuer cannot be had
    ├── CalendarError          a calendar file cannot be used, or does not know a day
    ├── CoverageError          no certificate can be made for a window
    ├── UpstreamError          a source does not answer as it should
    │   ├── SourceDownError    no usable answer came
    │   │   └── NoAnswerError  no answer came at all
    │   ├── SourceThrottledError   it asked us to come back later, or we hold back ourselves
    │   ├── SourceChangedError     its answer has another form than the one we read
    │   ├── WrongHostError         it is set up under an address that it has left
    │   ├── UnknownSeriesError     it has no such series
    │   ├── RejectedError          it did not take the question
    │   ├── NotCoveredError        a recording does not hold what was asked
    │   └── DamagedFileError       a file of ours is not what its index says
    └── DeliveryError          a destination did not take what it was sent
"""

from __future__ import annotations


class LimenError(Exception):
    """Be the root of every fault raised by this package."""


class SettingsError(LimenError):
    """Say which setting is wrong, where it stands and what to write instead."""


class CatalogueError(LimenError):
    """Say why a tool, prompt or resource cannot be entered in the catalogue."""


class PolicyError(LimenError):
    """Say which policy file does not parse or validate, on which line and why."""


class StoreError(LimenError):
    """Say why the store cannot be opened, read or written."""


class AuditError(StoreError):
    """Say why a row of the audit trail could not be made durable."""


class TakenError(StoreError):
    """Say that a key that is unique is taken; nothing was written."""


class ApprovalError(LimenError):
    """Say why an approval cannot be decided as asked.

    `code` is one of `not_found`, `conflict`, `expired`, `decided`, `own_request`, `denied`.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class DeliveryError(LimenError):
    """Say why a destination did not take what it was sent.

    `confirmed` is true when nothing can have arrived, so that trying again is safe.
    """

    def __init__(self, message: str, *, confirmed: bool) -> None:
        super().__init__(message)
        self.confirmed = confirmed
