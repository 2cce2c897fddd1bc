"""Small worlds for tests: a desk in this process, or a gate around a catalogue of a test's own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from limen.app import Desk, House, build_desk, new_call_id, open_house
from limen.backends.native import Native
from limen.catalogue import Catalogue, Entry
from limen.decisions.d1_audience import Audience, LocalCaller
from limen.decisions.d2_budget import Budget, FairBudget
from limen.decisions.d3_reach import Reach
from limen.decisions.d4_shape import Limits, Shape
from limen.decisions.d5_policy import PolicyStep
from limen.decisions.d6_approval import ApprovalStep
from limen.decisions.d7_audit import Audit
from limen.gate import Gate, Row
from limen.ports import PolicyAnswer, PolicyResource
from limen.servers.desk.seed import seed
from limen.settings import Settings
from limen.words import Answer, Call, Caller

T = TypeVar("T")

NOW = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)

PARTNER = {"partner": {"kind": "folder", "path": "outgoing", "groups": ["partners"]}}


@dataclass
class StillClock:
    """Stand still until told to move."""

    at: datetime = NOW
    seconds: float = 0.0

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.seconds

    def move(self, **span: float) -> None:
        self.at += timedelta(**span)
        self.seconds += timedelta(**span).total_seconds()


@dataclass(frozen=True)
class AllowAll:
    """Rules that allow everything, as a stand-in for the owner's."""

    def decide(self, caller: Caller, action: str, resource: PolicyResource) -> PolicyAnswer:
        return PolicyAnswer(True, ("everything",), "v1")


@dataclass
class World:
    """A house with one gate in it, and what a test asks of both."""

    house: House
    gate: Gate
    row: Row
    native: Native
    desk: Desk | None = None
    clock: StillClock = field(default_factory=StillClock)

    def call(self, method: str = "tools/call", **fields: Any) -> Call:
        fields = {"revision": "2026-07-28", "client": "test/1", **fields}
        return Call(new_call_id(), self.clock.now(), "stdio", method=method, **fields)

    def ask(self, tool: str, **arguments: Any) -> Answer:
        return run(self.gate.answer(self.call(target=tool, arguments=arguments)))

    def said(self, tool: str, **arguments: Any) -> dict[str, Any]:
        result = self.ask(tool, **arguments).result
        assert result is not None
        return dict(result)

    def with_row(self, **steps: Any) -> World:
        """Return the same world with some steps of the row replaced."""
        row = self.row._replace(**steps)
        return World(
            self.house, Gate(row, self.native, self.clock), row, self.native, self.desk, self.clock
        )

    def entries(self) -> list[dict[str, Any]]:
        """Return the entries of the trail, oldest first, without those of the test's own seed."""
        newest = self.house.audit_reader.newest(10_000)
        return [entry for entry in reversed(newest) if entry["method"] != "desk/seed"]

    def last(self) -> dict[str, Any]:
        return self.entries()[-1]


def run(work: Awaitable[T]) -> T:
    async def waited() -> T:
        return await asyncio.wait_for(work, 20)

    return asyncio.run(waited())


@contextmanager
def open_desk(data: Path, **settings: Any) -> Iterator[World]:
    """Open a seeded desk whose caller is `local` of the staff, with one folder to send to."""
    (data / "outgoing").mkdir(parents=True, exist_ok=True)
    settings = {"desk": {"destinations": PARTNER}, **settings}
    clock = StillClock()
    with open_house(data, Settings(**settings), clock=clock) as house:
        house.write_tables("desk/seed", "owner", lambda tables: seed(tables, tables, NOW))
        desk = build_desk(house)
        yield World(house, desk.gate, desk.row, desk.native, desk, clock)


@contextmanager
def open_gate(data: Path, entries: Iterable[Entry], **caller: Any) -> Iterator[World]:
    """Open a gate around entries of the test's own. Every rule allows, every scope is granted."""
    clock = StillClock()
    catalogue = Catalogue.of("own", entries, title="Own", version="1", instructions="")
    who = Caller("local", frozenset(), caller.get("scopes", catalogue.scopes()))
    with open_house(data, Settings(), clock=clock) as house:
        native = Native(catalogue, AllowAll(), lambda transaction, caller, key: transaction)
        row = Row(
            Audience(LocalCaller(who)),
            Budget(FairBudget(1_000, 0, [who.id], clock, reserve_fraction=1)),
            Reach(catalogue),
            Shape.of(catalogue, Limits()),
            PolicyStep(AllowAll(), lambda: None),
            ApprovalStep(house.approvals, clock, "own", timedelta(hours=24)),
            Audit(house.log, clock, "own", keep={}),
        )
        yield World(house, Gate(row, native, clock), row, native, None, clock)


def fails(error: Exception) -> Callable[..., Any]:
    def failing(*_: Any, **__: Any) -> Any:
        raise error

    return failing
