from __future__ import annotations

import os
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from limen.errors import StoreError, TakenError
from limen.store.database import BUSY_TIMEOUT_MS, Connection, Database, Reader, ReadOnlyDatabase
from limen.store.schema import REVISION
from trails import small_disk

ADD = "INSERT INTO ticket VALUES (:id, 'subject', 'open', NULL, NULL)"


@pytest.fixture
def database(tmp_path: Path) -> Database:
    made = Database(tmp_path / "limen.db")
    made.create()
    return made


@pytest.fixture
def connection(database: Database) -> Iterator[Connection]:
    with closing(database.connect()) as made:
        yield made


@pytest.fixture
def reader(database: Database) -> Iterator[Reader]:
    made = Reader(database)
    yield made
    made.close()


def add(database: Database, *ids: str) -> None:
    with database.writing() as connection:
        for ticket in ids:
            connection.run(ADD, id=ticket)


def ids(connection: Connection) -> list[str]:
    return [row["id"] for row in connection.all("SELECT id FROM ticket ORDER BY id")]


def ids_in(database: Database) -> list[str]:
    with database.reading() as connection:
        return ids(connection)


def files(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def refusal(database: Database) -> str:
    with pytest.raises(StoreError) as caught:
        database.create()
    message = str(caught.value)
    assert message.startswith(f"cannot open store `{database.path}`: ")
    assert "\n" not in message
    return message


def test_the_store_and_its_log_are_for_their_owner_alone(tmp_path: Path) -> None:
    known = os.umask(0)
    try:
        database = Database(tmp_path / "limen.db")
        database.create()
        with database.writing() as connection:
            connection.run(ADD, id="t1")
            modes = {
                name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in files(tmp_path)
            }
    finally:
        os.umask(known)
    assert modes == {"limen.db": 0o600, "limen.db-shm": 0o600, "limen.db-wal": 0o600}


def test_a_store_that_is_made_leaves_nothing_else_behind_and_is_kept_as_it_is(
    tmp_path: Path,
) -> None:
    database = Database(tmp_path / "odd ?#%20 ü" / "limen.db")
    database.path.parent.mkdir()
    for _ in range(2):
        database.create()
        assert files(database.path.parent) == ["limen.db"]
        with suppress(TakenError):
            add(database, "t1")
    assert ids_in(database) == ["t1"]
    assert files(tmp_path) == ["odd ?#%20 ü"]


def test_whoever_makes_the_store_at_once_with_others_gets_the_same_store(tmp_path: Path) -> None:
    for turn in range(10):
        database = Database(tmp_path / f"{turn}.db")
        faults: list[Exception] = []
        start = threading.Barrier(6)

        def make(
            number: int,
            database: Database = database,
            start: threading.Barrier = start,
            faults: list[Exception] = faults,
        ) -> None:
            start.wait(20)
            try:
                database.create()
                add(database, f"t{number}")
            except StoreError as error:
                faults.append(error)

        threads = [threading.Thread(target=make, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert faults == []
        assert len(ids_in(database)) == 6
    assert files(tmp_path) == [f"{turn}.db" for turn in range(10)]


def test_a_disk_too_small_for_the_store_gets_none_of_it(tmp_path: Path) -> None:
    database = Database(tmp_path / "disk" / "limen.db")
    # The log fits, and what is to be moved from it into the file does not.
    with small_disk(database.path.parent, "160k") as change:
        assert refusal(database).endswith("database or disk is full")
        assert files(database.path.parent) == []
        change("size=1m")
        database.create()
        assert files(database.path.parent) == ["limen.db"]


@pytest.mark.parametrize("revision", [REVISION - 1, REVISION + 1, 99])
def test_a_store_of_another_revision_is_refused_and_left_as_it_is(
    database: Database, revision: int
) -> None:
    with closing(sqlite3.connect(database.path)) as other:
        other.execute("UPDATE schema_revision SET revision = ?", (revision,))
        other.execute("DROP TABLE outbox")
        other.commit()
    before = database.path.read_bytes()
    expected = f"it has schema revision {revision}, this program has {REVISION}"
    assert refusal(database).endswith(expected)
    assert database.path.read_bytes() == before


def not_a_database(path: Path) -> None:
    path.write_bytes(b"not a database, but long enough to be read" * 30)


def somebody_elses(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE recipe (name TEXT)")
        other.commit()


def without_a_revision(path: Path) -> None:
    Database(path).create()
    with closing(sqlite3.connect(path)) as other:
        other.execute("DELETE FROM schema_revision")
        other.commit()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (not_a_database, "file is not a database"),
        (somebody_elses, "no such table: schema_revision"),
        (without_a_revision, "it has schema revision none, this program has 1"),
        (Path.touch, "no such table: schema_revision"),
        (Path.mkdir, "it is not a regular file"),
    ],
)
def test_a_file_that_is_no_store_is_refused_in_one_line(
    tmp_path: Path, make: Callable[[Path], object], said: str
) -> None:
    database = Database(tmp_path / "limen.db")
    make(database.path)
    assert refusal(database).endswith(said)


def test_a_folder_that_is_not_there_is_told_in_one_line(tmp_path: Path) -> None:
    said = refusal(Database(tmp_path / "absent" / "limen.db"))
    assert said.endswith("no such file or directory")


def test_a_store_that_is_gone_is_not_made_by_opening_it(tmp_path: Path) -> None:
    database = Database(tmp_path / "limen.db")
    for connect in (
        database.connect,
        database.connect_to_read,
        ReadOnlyDatabase(database.path).connect_to_read,
    ):
        with pytest.raises(StoreError, match="unable to open database file"):
            connect()
    assert files(tmp_path) == []


def test_every_connection_syncs_its_commits_and_trusts_no_schema(connection: Connection) -> None:
    def pragma(name: str) -> Any:
        row = connection.one(f"PRAGMA {name}")
        assert row is not None
        return row[0]

    full = 2
    assert pragma("synchronous") == full
    assert pragma("journal_mode") == "wal"
    assert pragma("busy_timeout") == BUSY_TIMEOUT_MS == 1_000
    assert pragma("trusted_schema") == 0


def test_a_connection_to_read_cannot_write(database: Database) -> None:
    add(database, "t1")
    for connect in (database.connect_to_read, ReadOnlyDatabase(database.path).connect_to_read):
        said = "attempt to write a readonly database"
        with closing(connect()) as connection, pytest.raises(StoreError, match=said):
            connection.run(ADD, id="t2")
    assert ids_in(database) == ["t1"]


def test_a_store_that_is_only_looked_at_is_left_untouched(database: Database) -> None:
    add(database, "t1")
    folder = database.path.parent
    before = {name: (folder / name).read_bytes() for name in files(folder)}
    assert list(before) == ["limen.db"]
    assert ids_in(ReadOnlyDatabase(database.path)) == ["t1"]
    assert before.items() <= {name: (folder / name).read_bytes() for name in files(folder)}.items()


def test_a_transaction_that_is_not_committed_is_undone(database: Database) -> None:
    with suppress(LookupError), database.writing() as connection:
        connection.run(ADD, id="t1")
        raise LookupError
    assert ids_in(database) == []


def test_a_savepoint_undoes_its_own_and_no_more(connection: Connection) -> None:
    connection.begin()
    connection.run(ADD, id="t1")
    with suppress(LookupError), connection.savepoint():
        connection.run(ADD, id="t2")
        raise LookupError
    with connection.savepoint():
        connection.run(ADD, id="t3")
        with connection.savepoint(keep=False):
            connection.run(ADD, id="t4")
    connection.commit()
    assert ids(connection) == ["t1", "t3"]


def test_a_key_that_is_taken_is_told_without_its_value_and_breaks_nothing(
    connection: Connection,
) -> None:
    connection.begin()
    connection.run(ADD, id="secret")
    with pytest.raises(TakenError) as caught, connection.savepoint():
        connection.run(ADD, id="secret")
    assert str(caught.value) == "key is taken: UNIQUE constraint failed: ticket.id"
    assert not connection.is_broken
    connection.run(ADD, id="t2")
    connection.commit()
    assert ids(connection) == ["secret", "t2"]


def test_a_connection_on_which_the_store_failed_does_nothing_more(
    database: Database, connection: Connection
) -> None:
    connection.begin()
    connection.run("PRAGMA max_page_count = 1")
    connection.run("UPDATE schema_revision SET revision = 7")
    with pytest.raises(StoreError, match="database or disk is full"), connection.savepoint():
        connection.run(ADD, id="x" * 500_000)
    assert connection.is_broken
    for again in (lambda: connection.run(ADD, id="t1"), connection.commit):
        with pytest.raises(StoreError, match="store failed: database or disk is full"):
            again()
    connection.close()
    assert ids_in(database) == []
    database.create()


def test_two_writers_wait_for_each_other_and_not_for_ever(
    database: Database, connection: Connection
) -> None:
    connection.begin()
    other = database.connect()
    with closing(other), pytest.raises(StoreError, match="database is locked"):
        other.begin()
    connection.run(ADD, id="t1")
    connection.commit()
    add(database, "t2")
    assert ids(connection) == ["t1", "t2"]


def test_a_reader_keeps_its_connection_and_sees_what_is_committed(
    database: Database, reader: Reader, connection: Connection
) -> None:
    known = reader.connection()
    assert ids(known) == []
    connection.begin()
    connection.run(ADD, id="t1")
    assert ids(reader.connection()) == []
    connection.commit()
    assert reader.connection() is known
    assert ids(known) == ["t1"]


def test_a_reader_follows_a_file_that_was_put_in_the_place_of_the_store(
    database: Database, reader: Reader
) -> None:
    add(database, "old")
    assert ids(reader.connection()) == ["old"]
    other = Database(database.path.with_name("other.db"))
    other.create()
    add(other, "new")
    # As a writer that runs: its log still holds what it wrote, and must not reach the new file.
    writing = database.connect()
    writing.begin()
    writing.run(ADD, id="old too")
    writing.commit()
    os.replace(other.path, database.path)
    assert ids(reader.connection()) == ["new"]
    writing.close()
    reader.close()
    assert ids_in(database) == ["new"]
    database.create()


def test_a_reader_whose_store_is_gone_says_so_and_reads_again_once_it_is_back(
    database: Database, reader: Reader
) -> None:
    add(database, "t1")
    reader.connection()
    away = database.path.rename(database.path.with_name("away.db"))
    for _ in range(2):
        with pytest.raises(StoreError, match="is gone: there is no such file"):
            reader.connection()
    assert not database.path.exists()
    away.rename(database.path)
    assert ids(reader.connection()) == ["t1"]


def test_a_reader_opens_anew_after_a_file_was_broken_and_mended(
    database: Database, reader: Reader
) -> None:
    add(database, "t1")
    sound = database.path.read_bytes()
    known = reader.connection()
    with database.path.open("r+b") as file:
        file.write(b"x" * len(sound))
    with pytest.raises(StoreError, match=r"malformed|not a database"):
        ids(known)
    with database.path.open("r+b") as file:
        file.write(sound)
    assert ids(reader.connection()) == ["t1"]
    assert reader.connection() is not known


def test_a_reader_serves_several_threads_each_with_its_own_connection(
    database: Database, reader: Reader
) -> None:
    add(database, "t1")
    known = reader.connection()
    seen: list[object] = []

    def look() -> None:
        for _ in range(2):
            seen.append(reader.connection())
            assert ids(reader.connection()) == ["t1"]
        reader.close()

    thread = threading.Thread(target=look)
    thread.start()
    thread.join(20)
    assert len(seen) == 2
    assert seen[0] is seen[1]
    assert seen[0] is not known
    assert reader.connection() is known
    assert ids(known) == ["t1"]
