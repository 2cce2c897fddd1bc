from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from limen.canonical import digest_bytes
from limen.errors import StoreError
from limen.servers.desk.views import Documents, Tickets
from limen.store.database import Connection, Database
from limen.store.desk import DeskTables, Document, Ticket, TicketNote

NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Connection]:
    database = Database(tmp_path / "limen.db")
    database.create()
    with database.writing() as connection:
        yield connection


@pytest.fixture
def tables(connection: Connection) -> DeskTables:
    return DeskTables(connection)


def test_the_tables_are_what_the_desk_asks_for(tables: DeskTables) -> None:
    def asked_for(documents: Documents, tickets: Tickets) -> bool:
        return documents.read_document("x") is None and tickets.get_ticket("x") is None

    assert asked_for(tables, tables)


def test_each_write_makes_the_next_version_and_keeps_the_others(tables: DeskTables) -> None:
    first = tables.write_document("public/a.txt", "one", "ann", NOON)
    second = tables.write_document("public/a.txt", "zwei ü", "bob", NOON + timedelta(seconds=1))
    assert first == Document("public/a.txt", 1, "one", digest_bytes(b"one"), "ann", NOON)
    assert (second.version, second.digest) == (2, digest_bytes("zwei ü".encode()))
    assert tables.read_document("public/a.txt") == second
    assert tables.read_document("public/a.txt", 1) == first
    assert tables.read_document("public/a.txt", 3) is None
    assert tables.read_document("public/b.txt") is None


def test_times_are_stored_as_utc_text_and_come_back_aware(
    tables: DeskTables, connection: Connection
) -> None:
    east = NOON.astimezone(timezone(timedelta(hours=8)))
    assert tables.write_document("public/a.txt", "one", "ann", east).written_at == NOON
    stored = connection.one("SELECT written_at FROM document_version")
    assert stored is not None
    assert stored["written_at"] == "2026-05-04T12:00:00.000000+00:00"


def test_a_time_without_a_zone_is_not_stored(tables: DeskTables) -> None:
    with pytest.raises(ValueError, match="has no zone"):
        tables.write_document("public/a.txt", "one", "ann", NOON.replace(tzinfo=None))
    assert tables.read_document("public/a.txt") is None


def test_a_listing_has_the_latest_versions_in_order_of_the_path(tables: DeskTables) -> None:
    for path in ("public/c.txt", "public/a.txt", "private/b.txt", "public/a.txt"):
        tables.write_document(path, path, "ann", NOON)
    listed = tables.list_documents("", 10)
    assert [(d.path, d.version) for d in listed] == [
        ("private/b.txt", 1),
        ("public/a.txt", 2),
        ("public/c.txt", 1),
    ]
    assert [d.path for d in tables.list_documents("private/b.txt", 1)] == ["public/a.txt"]
    assert tables.list_documents("public/c.txt", 10) == []


@pytest.mark.parametrize(
    ("prefix", "paths"),
    [
        ("public/A", ["public/A_1.txt"]),
        ("public/a", ["public/a%1.txt"]),
        ("public/a%", ["public/a%1.txt"]),
        ("_", []),
        ("%", []),
        ("public/ü", ["public/ü.txt"]),
    ],
)
def test_a_prefix_is_taken_letter_by_letter(
    tables: DeskTables, prefix: str, paths: list[str]
) -> None:
    for path in ("public/A_1.txt", "public/a%1.txt", "public/ü.txt"):
        tables.write_document(path, "x", "ann", NOON)
    assert [d.path for d in tables.list_documents("", 10, prefix)] == paths


class Raced(Connection):
    """A connection on which another writer is always a moment faster."""

    def run(self, statement: str, **values: Any) -> int:
        if statement.startswith("INSERT INTO document_version"):
            super().run(statement, **{**values, "content": "theirs", "author": "bob"})
        return super().run(statement, **values)


def test_a_version_that_another_writer_took_first_is_a_fault(connection: Connection) -> None:
    tables = DeskTables(Raced(connection.driver))
    with pytest.raises(StoreError, match=r"version 1 of `public/a\.txt` is there"):
        tables.write_document("public/a.txt", "mine", "ann", NOON)
    kept = tables.read_document("public/a.txt")
    assert kept is not None
    assert kept.content == "theirs"


def test_a_write_that_is_rolled_back_was_never_there(
    tables: DeskTables, connection: Connection
) -> None:
    tables.write_document("public/a.txt", "one", "ann", NOON)
    connection.run("ROLLBACK")
    connection.begin()
    assert tables.read_document("public/a.txt") is None


def test_a_ticket_comes_with_its_notes_oldest_first(tables: DeskTables) -> None:
    added = tables.add_ticket("T-1", subject="Door", status="open", assignee="ann", requester=None)
    assert added
    assert tables.add_note("T-1", "first", "ann", NOON) == 1
    assert tables.add_note("T-1", "second", "bob", NOON) == 2
    assert tables.get_ticket("T-1") == Ticket(
        "T-1",
        "Door",
        "open",
        "ann",
        None,
        (TicketNote(1, "ann", NOON, "first"), TicketNote(2, "bob", NOON, "second")),
    )


def test_a_note_needs_its_ticket(tables: DeskTables) -> None:
    assert tables.add_note("T-9", "lost", "ann", NOON) is None
    assert tables.get_ticket("T-9") is None


def test_a_taken_ticket_id_changes_nothing(tables: DeskTables) -> None:
    tables.add_ticket("T-1", subject="Door", status="open", assignee="ann", requester=None)
    assert not tables.add_ticket(
        "T-1", subject="Window", status="closed", assignee=None, requester="bob"
    )
    assert tables.get_ticket("T-1") == Ticket("T-1", "Door", "open", "ann", None, ())
