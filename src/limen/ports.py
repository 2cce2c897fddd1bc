"""What the rooms need of the world, as protocols. `app.py` says who keeps each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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


class CallerReader(Protocol):
    """Say who makes a call, from what the transport itself knows."""

    async def caller_of(self, call: Call) -> Caller | None:
        """Return the caller, or None when nobody vouches for one."""


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


class AuditLog(Protocol):
    """Write rows down. A row is durable once the call returns; its order is the log's order."""

    async def write(self, row: AuditRow) -> None:
        """Make one row durable.

        Raises:
            AuditError: the row is not durable, and nothing of it stays.
        """

    async def write_with(self, work: Callable[[Transaction], T], row_of: Callable[[T], AuditRow]) -> T:
        """Do `work` and write its row in one transaction; both are durable or neither is.

        When `work` raises, what it did is undone, no row is written and the exception comes out.

        Raises:
            AuditError: nothing of either is durable.
        """

    def count(self, method: str, caller: str) -> None:
        """Count a request that gets no row of its own. Durable with the next row or at close."""


class Approvals(Protocol):
    """Keep what waits for a person."""

    def find(self, request: ApprovalRequest) -> Approval | None:
        """Return the live approval of exactly this request, or None. Changes nothing."""

    def open(self, transaction: Transaction, request: ApprovalRequest) -> Approval:
        """Return the live approval of exactly this request, made pending if there was none."""


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
    state of the resource was looked at (a document's version), for approvals; empty if it has none.
    """

    entity: Entity
    context: Mapping[str, Any] = field(default_factory=dict)
    related: tuple[Entity, ...] = ()
    digest: str = ""


@dataclass(frozen=True, slots=True)
class PolicyAnswer:
    """What the owner's rules said: allowed or not, and the ids of the policies that decided.

    `errors` are policies that could not be evaluated; Cedar skips those.
    """

    allowed: bool
    policies: tuple[str, ...]
    version: str
    errors: tuple[str, ...] = ()


class Policy(Protocol):
    """Answer from the owner's rules. Default: no."""

    def decide(self, caller: Caller, action: str, resource: PolicyResource) -> PolicyAnswer:
        """Return what the current rules say.

        Raises:
            PolicyError: there is no usable set of rules.
        """


class Backend(Protocol):
    """Stand behind the gate and do the work of calls that were let through."""

    async def run(self, walk: Any) -> Any:
        """Do the work of a call and return its `Answer`."""

    def act(self, walk: Any, transaction: Transaction) -> Any:
        """Do the work of a call inside the transaction that writes its row; return its `Answer`."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a listing and the cursor of the next, None at the end."""

    items: Sequence[Mapping[str, Any]]
    next_cursor: str | None = None
