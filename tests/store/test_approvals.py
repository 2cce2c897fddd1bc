from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from houses import NOW, StillClock
from limen.errors import StoreError, TakenError
from limen.store.approvals import LATE, NEXT, ApprovalTable, StoredApprovals, binding_of
from limen.store.database import Connection, Database, Reader
from limen.store.writer import WriteTransaction
from limen.words import Approval, ApprovalRequest

REQUEST = ApprovalRequest(
    caller="agent",
    server="desk",
    tool="export",
    tool_digest="sha-256:t1",
    arguments={"path": "public/a.txt", "destination": "partner"},
    arguments_digest="sha-256:a1",
    resource="Document::public/a.txt",
    resource_digest="sha-256:d1",
    policy_version="sha-256:p1",
    asked_at=NOW,
    expires_at=NOW + timedelta(hours=24),
)
BOUND = {
    "caller",
    "server",
    "tool",
    "tool_digest",
    "arguments_digest",
    "resource",
    "resource_digest",
    "policy_version",
    "setup",
    "transport",
    "roles",
    "scopes",
}
STATES = (
    "pending",
    "approved",
    "rejected",
    "expired",
    "conflict",
    "delivered",
    "failed",
    "unconfirmed",
)


@dataclass
class Desk:
    """Approvals in a store, each step in a transaction of its own."""

    database: Database
    clock: StillClock = field(default_factory=StillClock)

    def __post_init__(self) -> None:
        numbers = itertools.count(1)
        self.reader = Reader(self.database)
        self.approvals = StoredApprovals(self.reader, self.clock, lambda: f"ap-{next(numbers)}")

    def within(self, work: Callable[[WriteTransaction], Any]) -> Any:
        with self.database.writing() as connection:
            return work(WriteTransaction(connection, 0, lambda row, seq: b""))

    def open(self, request: ApprovalRequest = REQUEST) -> Approval:
        found = self.within(lambda transaction: self.approvals.open(transaction, request))
        assert isinstance(found, Approval)
        return found

    def decide(self, approval_id: str, state: str, **more: Any) -> bool:
        said = {"by": "boss", "reason": "fine", **more}
        return bool(self.within(lambda t: self.approvals.decide(t, approval_id, state, **said)))

    def end(self, approval_id: str, state: str) -> bool:
        return bool(self.within(lambda t: ApprovalTable(t.connection).end(approval_id, state)))

    def stored(self, approval_id: str) -> Approval:
        found = self.within(lambda t: self.approvals.find_by_id(t, approval_id))
        assert isinstance(found, Approval)
        return found

    def all(self) -> list[str]:
        return [found.id for found in ApprovalTable(self.reader.connection()).newest(100)]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    database = Database(tmp_path / "limen.db")
    database.create()
    made = Desk(database)
    yield made
    made.reader.close()


def test_the_same_request_is_answered_by_the_same_approval(desk: Desk) -> None:
    assert desk.approvals.find(REQUEST) is None
    first = desk.open()
    assert first == Approval("ap-1", REQUEST, "pending")
    assert desk.open() == first
    assert desk.approvals.find(REQUEST) == first
    assert desk.stored("ap-1") == first
    assert desk.all() == ["ap-1"]


@pytest.mark.parametrize("name", sorted(BOUND))
def test_a_request_that_differs_in_one_thing_is_another(desk: Desk, name: str) -> None:
    desk.open()
    value = getattr(REQUEST, name)
    changed = (*value, "x") if isinstance(value, tuple) else value + "x"
    other = dataclasses.replace(REQUEST, **{name: changed})
    assert desk.approvals.find(other) is None
    assert desk.open(other).id == "ap-2"
    assert desk.open().id == "ap-1"


def test_when_it_was_asked_is_no_difference(desk: Desk) -> None:
    desk.open()
    later = dataclasses.replace(
        REQUEST, asked_at=NOW + timedelta(hours=1), expires_at=NOW + timedelta(hours=25)
    )
    assert desk.open(later) == Approval("ap-1", REQUEST, "pending")
    assert binding_of(later) == binding_of(REQUEST)


def test_every_field_of_a_request_is_bound_or_known_not_to_be() -> None:
    fields = {found.name for found in dataclasses.fields(ApprovalRequest)}
    assert fields == BOUND | {"arguments", "asked_at", "expires_at"}


def test_two_transactions_that_race_open_one_approval(desk: Desk) -> None:
    opened: list[Approval] = []
    first_has_begun, first_may_end = threading.Event(), threading.Event()

    def first(transaction: WriteTransaction) -> None:
        opened.append(desk.approvals.open(transaction, REQUEST))
        first_has_begun.set()
        assert first_may_end.wait(20)

    thread = threading.Thread(target=desk.within, args=(first,))
    thread.start()
    assert first_has_begun.wait(20)
    threading.Timer(0.1, first_may_end.set).start()
    opened.append(desk.open())
    thread.join(20)
    assert [found.id for found in opened] == ["ap-1", "ap-1"]
    assert desk.all() == ["ap-1"]


def test_the_store_itself_holds_one_living_approval_of_a_request(desk: Desk) -> None:
    desk.open()

    def add_another(transaction: WriteTransaction) -> None:
        ApprovalTable(transaction.connection).add("ap-other", REQUEST)

    with pytest.raises(TakenError):
        desk.within(add_another)
    assert desk.all() == ["ap-1"]


def test_an_approval_that_nobody_decided_on_is_told_expired_once_and_asked_anew(
    desk: Desk,
) -> None:
    desk.open()
    desk.clock.move(hours=23, minutes=59)
    assert desk.open().state == "pending"
    desk.clock.move(minutes=1)
    told = desk.open()
    assert (told.id, told.state, told.decision_reason) == ("ap-1", "expired", LATE)
    assert told == desk.stored("ap-1")
    assert told.decided_at == desk.clock.now()
    again = dataclasses.replace(
        REQUEST, asked_at=desk.clock.now(), expires_at=desk.clock.now() + timedelta(hours=24)
    )
    assert desk.approvals.find(again) is None
    assert desk.open(again) == Approval("ap-2", again, "pending")
    assert desk.stored("ap-1").state == "expired"


@pytest.mark.parametrize("state", ["expired", "conflict"])
def test_an_approval_that_lapsed_is_told_once_and_asked_anew(desk: Desk, state: str) -> None:
    desk.open()
    assert desk.decide("ap-1", state)
    assert [desk.open().state, desk.open().state] == [state, "pending"]
    assert desk.open().id == "ap-2"


@pytest.mark.parametrize("state", ["approved", "rejected"])
def test_a_decision_answers_until_it_expires_and_then_the_call_asks_anew(
    desk: Desk, state: str
) -> None:
    desk.open()
    assert desk.decide("ap-1", state, outcome={"ok": True, "state": "queued"})
    for _ in range(3):
        found = desk.open()
        assert (found.id, found.state, found.decided_by) == ("ap-1", state, "boss")
        assert (found.decided_at, found.decision_reason) == (NOW, "fine")
        assert found.outcome == {"ok": True, "state": "queued"}
    desk.clock.move(hours=24)
    assert desk.open().id == "ap-2"
    assert desk.stored("ap-1").state == state


@pytest.mark.parametrize("state", ["delivered", "failed", "unconfirmed"])
def test_what_became_of_an_approved_call_is_told_with_its_outcome(desk: Desk, state: str) -> None:
    desk.open()
    desk.decide("ap-1", "approved", outcome={"ok": True, "state": "queued", "to": "partner"})
    assert desk.end("ap-1", state)
    found = desk.open()
    assert (found.id, found.state, found.decided_by) == ("ap-1", state, "boss")
    assert found.outcome == {"ok": True, "state": state, "to": "partner"}
    assert not desk.end("ap-1", "failed")
    assert desk.stored("ap-1") == found


def test_only_an_approved_call_ends(desk: Desk) -> None:
    desk.open()
    assert not desk.end("ap-1", "delivered")
    assert not desk.end("unheard-of", "delivered")
    desk.decide("ap-1", "rejected")
    assert not desk.end("ap-1", "delivered")
    assert desk.stored("ap-1").state == "rejected"


def test_the_first_decision_stands(desk: Desk) -> None:
    desk.open()
    assert desk.decide("ap-1", "rejected", by="first", reason="no")
    assert not desk.decide("ap-1", "approved", by="second", outcome={"ok": True})
    assert not desk.decide("ap-1", "rejected", by="second")
    assert not desk.decide("unheard-of", "approved")
    found = desk.stored("ap-1")
    assert (found.state, found.decided_by, found.outcome) == ("rejected", "first", None)


@pytest.mark.parametrize("state", STATES)
def test_no_other_move_exists(desk: Desk, state: str) -> None:
    desk.open()
    for from_state, move in (("pending", desk.decide), ("approved", desk.end)):
        if state not in NEXT[from_state]:
            expected = f"cannot go from `{from_state}` to `{state}`"
            with pytest.raises(ValueError, match=expected):
                move("ap-1", state)
        assert desk.stored("ap-1").state == "pending"
        desk.within(lambda t: t.connection.run("UPDATE approval SET state = 'pending'"))
    assert NEXT == {
        "pending": ("approved", "rejected", "expired", "conflict"),
        "approved": ("delivered", "failed", "unconfirmed"),
    }


def test_what_is_undone_was_never_opened(desk: Desk) -> None:
    def open_and_fail(transaction: WriteTransaction) -> None:
        desk.approvals.open(transaction, REQUEST)
        raise LookupError

    with pytest.raises(LookupError):
        desk.within(open_and_fail)
    assert desk.approvals.find(REQUEST) is None


def test_to_find_an_approval_changes_nothing_even_one_that_is_late(desk: Desk) -> None:
    desk.open()
    desk.clock.move(days=2)
    assert desk.approvals.find(REQUEST) == Approval("ap-1", REQUEST, "pending")
    assert desk.stored("ap-1").state == "pending"


def test_approvals_are_listed_newest_first_and_by_state(desk: Desk) -> None:
    for number in range(3):
        desk.open(
            dataclasses.replace(
                REQUEST, resource=f"r{number}", asked_at=NOW + timedelta(minutes=number)
            )
        )
    desk.decide("ap-2", "approved")
    table = ApprovalTable(desk.reader.connection())
    assert [found.id for found in table.newest(2)] == ["ap-3", "ap-2"]
    assert [found.id for found in table.newest(9, "pending")] == ["ap-3", "ap-1"]


def test_an_approval_is_not_written_but_by_the_writer(desk: Desk) -> None:
    with closing(desk.database.connect_to_read()) as connection:
        assert isinstance(connection, Connection)
        with pytest.raises(StoreError, match="readonly"):
            ApprovalTable(connection).add("ap-1", REQUEST)
    assert desk.all() == []
