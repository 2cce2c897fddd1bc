"""The store: one SQLite file in the data directory, written through its log (WAL).

Statements are plain SQL with values by name. Every error of the driver leaves here as a
`StoreError` with the driver's own words, and never with a value.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from limen.errors import StoreError, TakenError
from limen.store.schema import REVISION, TABLES

Row = sqlite3.Row
"""One row of an answer: `row["column"]`."""

BUSY_TIMEOUT_MS = 1_000
"""Milliseconds. How long a statement waits for another process that writes before it gives up."""


class Connection:
    """One connection, for one thread at a time. `is_broken` once anything has gone wrong on it."""

    def __init__(self, driver: sqlite3.Connection) -> None:
        self.driver = driver
        self.is_broken = False

    def all(self, statement: str, **values: Any) -> list[Row]:
        """Return every row of an answer."""
        with self._told():
            return self.driver.execute(statement, values).fetchall()

    def one(self, statement: str, **values: Any) -> Row | None:
        """Return the first row of an answer, or None."""
        with self._told():
            found: Row | None = self.driver.execute(statement, values).fetchone()
            return found

    def run(self, statement: str, **values: Any) -> int:
        """Change something, and return how many rows that were.

        Raises:
            TakenError: a key that is unique is taken.
        """
        with self._told():
            return self.driver.execute(statement, values).rowcount

    def run_many(self, statement: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Change something once for each mapping of values."""
        with self._told():
            self.driver.executemany(statement, rows)

    def begin(self) -> None:
        """Begin a transaction that will write: two writers wait instead of failing half-way."""
        self.run("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Make the transaction durable."""
        self.run("COMMIT")

    @contextmanager
    def savepoint(self, *, keep: bool = True) -> Iterator[None]:
        """Undo what happens inside when it raises, or in any case unless it is to be kept."""
        self.run("SAVEPOINT inner_work")
        is_kept = False
        try:
            yield
            is_kept = keep
        finally:
            if is_kept:
                self.run("RELEASE inner_work")
            else:
                self._undo()

    def close(self) -> None:
        """Close it. A transaction that is open is undone."""
        self.driver.close()

    def _undo(self) -> None:
        # A store that gives up undoes the whole transaction by itself, savepoints and all.
        if self.driver.in_transaction:
            self.run("ROLLBACK TO inner_work")
            self.run("RELEASE inner_work")

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.IntegrityError as error:
            raise TakenError(f"key is taken: {cause_of(error)}") from error
        except sqlite3.Error as error:
            self.is_broken = True
            raise StoreError(f"store failed: {cause_of(error)}") from error


class Database:
    """A store that is there. Opening it makes nothing; `create` does."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def connect(self) -> Connection:
        """Return a connection that can write.

        Raises:
            StoreError: the file is not there or cannot be opened.
        """
        return self._open("rw", _SET_UP)

    def connect_to_read(self) -> Connection:
        """Return a connection that cannot write: each statement sees what is committed then.

        Raises:
            StoreError: the file is not there or cannot be opened.
        """
        # INVARIANT: what writes goes through the writer, with its row; here it is an error.
        return self._open("rw", (*_SET_UP, "PRAGMA query_only = ON"))

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Hand out a connection that cannot write, and close it."""
        connection = self.connect_to_read()
        try:
            yield connection
        finally:
            connection.close()

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Hand out a connection inside a transaction, made durable at the end."""
        connection = self.connect()
        try:
            connection.begin()
            yield connection
            connection.commit()
        finally:
            connection.close()

    def create(self) -> None:
        """Make the file, readable by its owner alone, and the tables, where they are not there.

        Raises:
            StoreError: it cannot be opened or written, is no store, or is of another revision.
        """
        try:
            # SQLite gives the files beside it the same mode.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            with self.reading() as connection:
                is_new = not connection.all("SELECT 1 FROM sqlite_schema LIMIT 1")
            if is_new:
                self._create_tables()
            self._check_revision()
        except (OSError, StoreError) as error:
            raise StoreError(f"cannot open store `{self.path}`: {cause_of(error)}") from error

    def _create_tables(self) -> None:
        with self.writing() as connection:
            if connection.all("SELECT 1 FROM sqlite_schema LIMIT 1"):
                return  # Another process was faster, and has made all of them.
            for statement in TABLES:
                connection.run(statement)
            connection.run("INSERT INTO schema_revision VALUES (0, :revision)", revision=REVISION)

    def _check_revision(self) -> None:
        with self.reading() as connection:
            row = connection.one("SELECT revision FROM schema_revision")
        if row is None or row["revision"] != REVISION:
            found = "none" if row is None else row["revision"]
            raise StoreError(f"it has schema revision {found}, this program has {REVISION}")

    def _open(self, mode: str, set_up: Sequence[str]) -> Connection:
        address = f"file:{quote(str(self.path))}?mode={mode}"
        try:
            # The driver's own transactions begin late and end early; ours begin by `begin`.
            driver = sqlite3.connect(address, uri=True, isolation_level=None)
        except sqlite3.Error as error:
            raise StoreError(f"store failed: {cause_of(error)}") from error
        driver.row_factory = sqlite3.Row
        connection = Connection(driver)
        try:
            for pragma in set_up:
                connection.run(pragma)
        except StoreError:
            connection.close()
            raise
        return connection


_SET_UP = (
    f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}",
    "PRAGMA journal_mode = WAL",
    # INVARIANT: a commit that returned has reached the disk. NORMAL would lose the last rows.
    "PRAGMA synchronous = FULL",
    "PRAGMA trusted_schema = OFF",
)


class ReadOnlyDatabase(Database):
    """A store that is looked at and not touched: nothing is made beside it."""

    def connect_to_read(self) -> Connection:
        """Return a connection that cannot write."""
        return self._open("ro", ("PRAGMA trusted_schema = OFF",))


class Reader:
    """Keep one connection for reading, for one thread; each statement sees what is committed.

    It follows the file: one that was put in another's place is what is read from then on.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self._connection: Connection | None = None
        self._file_id = 0

    def connection(self) -> Connection:
        """Return the connection, opened anew if need be.

        Raises:
            StoreError: the store is gone or cannot be opened.
        """
        file_id = file_id_of(self.database.path)
        known = self._connection
        if known is None or known.is_broken or file_id != self._file_id:
            self.close()
            known = self._connection = self.database.connect_to_read()
            self._file_id = file_id
        return known

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def file_id_of(path: Path) -> int:
    """Return what tells a file from another that takes its name.

    A file that was moved away takes reads and writes as before, and nobody would find them.

    Raises:
        StoreError: there is no such file.
    """
    try:
        return os.stat(path).st_ino
    except OSError as error:
        raise StoreError(f"store `{path}` is gone: {cause_of(error)}") from error


def cause_of(error: BaseException) -> str:
    """Return an error's own words in one line."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    said = " ".join(str(error).split())
    return said.removeprefix("store failed: ") or type(error).__name__
