"""What the rooms need of the world, as protocols. `app` says who keeps each of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, TypeVar

from limen.words import Approval, ApprovalRequest, AuditRow, Call, Caller

T = TypeVar("T")


class Clock(Protocol):
    """Tell the time."""

    def now(self) -> datetime:
        """Return the time of day, aware UTC."""

    def monotonic(self) -> float:
        """Return seconds that never go back, from an arbitrary start."""


@dataclass(frozen=True, slots=True)
class Nobody:
    """Nobody vouches for a caller: the `reason` is `missing_token` or `invalid_token`.

    `private` says why, and never leaves the audit row.
    """

    reason: str
    private: str


class CallerReader(Protocol):
    """Say who makes a call, from what the transport itself knows."""

    async def caller_of(self, call: Call) -> Caller | Nobody:
        """Return the caller, or why nobody vouches for one."""


@dataclass(frozen=True, slots=True)
class Charge:
    """What became of a charge: `granted`, and if not, seconds until one unit is there again."""

    granted: bool
    retry_after_s: float = 0.0


class Ledger(Protocol):
    """Keep every caller's share. Safe to call from several tasks of one process."""

    def reserve(self, caller: str, cost: int) -> Charge:
        """Take `cost` units of the caller's own share, or say when to come back."""


class Transaction(Protocol):
    """A transaction of the store, open. Only rooms that keep tables look inside.

    It is valid inside the function it was handed to, and not after.
    """

    def rehearse(self, work: Callable[[], T]) -> T:
        """Do `work`, undo what it did, and return what it returned."""


class AuditLog(Protocol):
    """Write rows down, in the order of the calls. A row is durable once its wait is over.

    What was handed over is carried out even if nobody waits for it any more: a cancelled wait
    changes nothing. Safe to call from several tasks.
    """

    def write(self, row: AuditRow) -> Awaitable[None]:
        """Make one row durable.

        Raises:
            AuditError: the row is not durable, and nothing of it stays.
        """

    def write_with(
        self, work: Callable[[Transaction], T], row_of: Callable[[T], AuditRow]
    ) -> Awaitable[T]:
        """Do `work` and write its row in one transaction; both are durable or neither is.

        When `work` raises, what it did is undone, no row is written and the exception comes out.
        It runs in another thread than the caller's.

        Raises:
            AuditError: nothing of either is durable.
        """

    def count(self, method: str, caller: str) -> None:
        """Count a request that gets no row of its own. Durable with the next row or at close."""


class Approvals(Protocol):
    """Keep what waits for a person."""

    def find(self, request: ApprovalRequest) -> Approval | None:
        """Return the approval that answers for exactly this request, or None. Changes nothing."""

    def open(self, transaction: Transaction, request: ApprovalRequest) -> Approval:
        """Return the approval that answers for exactly this request, made pending if need be.

        One that lapsed (`expired`, `conflict`) is returned once; the next call opens another.
        """

    def find_by_id(self, transaction: Transaction, approval_id: str) -> Approval | None:
        """Return an approval, or None."""

    def decide(
        self,
        transaction: Transaction,
        approval_id: str,
        state: str,
        *,
        by: str,
        reason: str,
        outcome: Mapping[str, Any] | None = None,
    ) -> bool:
        """Write down what a person, or the time, decided. False when it was decided before."""


@dataclass(frozen=True, slots=True)
class Entity:
    """A thing that policy speaks of: Cedar's type, id, attributes and parents.

    Attributes are JSON values in Cedar's form; parents are (type, id).
    """

    type: str
    id: str
    parents: tuple[tuple[str, str], ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PolicyResource:
    """What a call is about, made from its arguments: the question's resource and its context.

    `related` are other entities that the context or the attributes name. `digest` says which
    state of the resource was looked at (a document's version), and `setup` where the call leads as
    that is set up (a destination); both are for approvals, and empty where there is nothing to say.
    """

    entity: Entity
    context: Mapping[str, Any] = field(default_factory=dict)
    related: tuple[Entity, ...] = ()
    digest: str = ""
    setup: str = ""


@dataclass(frozen=True, slots=True)
class PolicyAnswer:
    """What the owner's rules said: allowed or not, and the ids of the policies that decided.

    `errors` are policies that could not be evaluated; Cedar skips those.
    """

    allowed: bool
    policies: tuple[str, ...]
    version: str
    errors: tuple[str, ...] = ()


May = Callable[[str, PolicyResource], bool]
"""Tell whether the owner's rules allow the present caller an action on a resource."""


class Policy(Protocol):
    """Answer from the owner's rules. Default: no."""

    def decide(self, caller: Caller, action: str, resource: PolicyResource) -> PolicyAnswer:
        """Return what the current rules say.

        Raises:
            PolicyError: there is no usable set of rules.
        """


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a listing and the cursor of the next, None at the end."""

    items: Sequence[Mapping[str, Any]]
    next_cursor: str | None = None
