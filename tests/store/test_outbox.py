from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from limen.canonical import digest_bytes
from limen.errors import StoreError
from limen.servers.desk.delivery import Outbox
from limen.servers.desk.views import Queue
from limen.store.database import Database
from limen.store.outbox import OutboxItem, OutboxReader, OutboxTable

NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
LATER = NOON + timedelta(minutes=1)

STATES = ("queued", "sending", "delivered", "failed", "unconfirmed")
MOVES = {
    ("queued", "sending"),
    ("sending", "delivered"),
    ("sending", "failed"),
    ("sending", "unconfirmed"),
}


@pytest.fixture
def database(tmp_path: Path) -> Database:
    made = Database(tmp_path / "limen.db")
    made.create()
    return made


def queue(database: Database, key: str, at: datetime = NOON, content: str = "text ü") -> bool:
    with database.writing() as connection:
        return OutboxTable(connection).queue(
            key, destination="archive", name="public/a.txt", content=content, at=at
        )


def mark(database: Database, key: str, from_state: str, to_state: str, detail: str = "") -> bool:
    with database.writing() as connection:
        return OutboxTable(connection).mark(key, from_state, to_state, detail, LATER)


def test_the_outbox_is_what_the_desk_asks_for(database: Database) -> None:
    def asked_for(looks: Outbox, takes: Queue) -> bool:
        return takes.queue("k1", destination="d", name="n", content="c", at=NOON) and (
            looks.find("k1") is None
        )

    with database.writing() as connection:
        assert asked_for(OutboxReader(database), OutboxTable(connection))


def test_a_queued_item_keeps_its_content_and_digest(database: Database) -> None:
    assert queue(database, "k1")
    assert OutboxReader(database).find("k1") == OutboxItem(
        key="k1",
        destination="archive",
        name="public/a.txt",
        content="text ü",
        content_digest=digest_bytes("text ü".encode()),
        state="queued",
        queued_at=NOON,
        changed_at=NOON,
        detail="",
    )
    assert OutboxReader(database).find("k2") is None


def test_a_key_is_queued_once(database: Database) -> None:
    assert queue(database, "k1")
    assert not queue(database, "k1", content="other")
    item = OutboxReader(database).find("k1")
    assert item is not None
    assert item.content == "text ü"


def test_what_is_rolled_back_was_never_queued(database: Database) -> None:
    with database.writing() as connection:
        OutboxTable(connection).queue(
            "k1", destination="archive", name="public/a.txt", content="x", at=NOON
        )
        connection.run("ROLLBACK")
        connection.begin()
    assert OutboxReader(database).keys_in("queued") == []


def test_an_item_moves_on_from_the_state_it_is_in_and_only_from_there(database: Database) -> None:
    queue(database, "k1")
    assert not mark(database, "k1", "sending", "delivered")
    assert mark(database, "k1", "queued", "sending")
    assert not mark(database, "k1", "queued", "sending")
    assert mark(database, "k1", "sending", "failed", "host answered with status 500")
    assert not mark(database, "unheard-of", "queued", "sending")
    item = OutboxReader(database).find("k1")
    assert item is not None
    assert (item.state, item.detail) == ("failed", "host answered with status 500")
    assert (item.queued_at, item.changed_at) == (NOON, LATER)


@pytest.mark.parametrize("from_state", STATES)
@pytest.mark.parametrize("to_state", STATES)
def test_no_other_move_exists(database: Database, from_state: str, to_state: str) -> None:
    if (from_state, to_state) in MOVES:
        assert mark(database, "unheard-of", from_state, to_state) is False
        return
    with pytest.raises(StoreError, match=f"cannot go from `{from_state}` to `{to_state}`"):
        mark(database, "unheard-of", from_state, to_state)


def test_keys_come_first_queued_first(database: Database) -> None:
    queue(database, "k2", NOON)
    queue(database, "k3", LATER)
    queue(database, "k1", LATER)
    mark(database, "k2", "queued", "sending")
    assert OutboxReader(database).keys_in("queued") == ["k1", "k3"]
    assert OutboxReader(database).keys_in("sending") == ["k2"]
