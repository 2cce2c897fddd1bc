"""The store: one SQLite file in the data directory, written through its log (WAL).

Statements are plain SQL with values by name. Every error of the driver leaves here as a
`StoreError` with the driver's own words, and never with a value.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from limen.errors import StoreError, TakenError
from limen.store.schema import REVISION, TABLES

Row = sqlite3.Row
"""One row of an answer: `row["column"]`."""

FileId = tuple[int, int]
"""Device and inode."""

BUSY_TIMEOUT_MS = 1_000
"""Milliseconds. How long a statement waits for another process that writes before it gives up."""


class Connection:
    """One connection, for the thread that made it.

    Once the store has failed on it, it is broken: `failure` says how, and it does nothing more.
    """

    def __init__(self, driver: sqlite3.Connection) -> None:
        self.driver = driver
        self.failure = ""

    @property
    def is_broken(self) -> bool:
        """Tell whether the store has failed on this connection."""
        return self.failure != ""

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

    def empty_log(self) -> None:
        """Move all that is in the log into the file, even if the file has lost its name.

        The log keeps its name: what took the file's name would be overwritten from it.
        """
        with suppress(StoreError):
            self.run("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Close it. A transaction that is open is undone."""
        self.driver.close()

    def _undo(self) -> None:
        # A broken connection is closed by its owner, which undoes the whole transaction.
        if not self.is_broken:
            self.run("ROLLBACK TO inner_work")
            self.run("RELEASE inner_work")

    @contextmanager
    def _told(self) -> Iterator[None]:
        # INVARIANT: a store that fails may have ended the transaction by itself. What came after
        # would be durable at once, and without its row.
        if self.is_broken:
            raise StoreError(self.failure)
        try:
            yield
        except sqlite3.IntegrityError as error:
            raise TakenError(f"key is taken: {cause_of(error)}") from error
        except sqlite3.Error as error:
            self.failure = f"store failed: {cause_of(error)}"
            raise StoreError(self.failure) from error


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
            if not self.path.exists():
                self._create_file()
            self._check_revision()
        except (OSError, StoreError) as error:
            raise StoreError(f"cannot open store `{self.path}`: {cause_of(error)}") from error

    def _create_file(self) -> None:
        # Made whole beside its place and shown then, so that nobody sees half of it. SQLite does
        # not wait when two processes turn one file to WAL, so nobody else may have it meanwhile.
        # It is made with mode 0600, which SQLite gives to the files beside it too.
        descriptor, name = tempfile.mkstemp(prefix=f".{self.path.name}.", dir=self.path.parent)
        os.close(descriptor)
        made = Database(Path(name))
        try:
            with made.writing() as connection:
                for statement in TABLES:
                    connection.run(statement)
                connection.run(
                    "INSERT INTO schema_revision VALUES (0, :revision)", revision=REVISION
                )
            with closing(made.connect()) as connection:
                # The log beside it does not come along. Here it must not fail.
                connection.run("PRAGMA wal_checkpoint(TRUNCATE)")
            with suppress(FileExistsError):  # Another process was faster.
                os.link(name, self.path)
        finally:
            for beside in ("", "-wal", "-shm"):
                Path(name + beside).unlink(missing_ok=True)

    def _check_revision(self) -> None:
        with self.reading() as connection:
            row = connection.one("SELECT revision FROM schema_revision")
        if row is None or row["revision"] != REVISION:
            found = "none" if row is None else row["revision"]
            raise StoreError(f"it has schema revision {found}, this program has {REVISION}")

    def _open(self, mode: str, set_up: Sequence[str]) -> Connection:
        if self.path.exists() and not self.path.is_file():
            # Opening a pipe would wait for somebody to write to it.
            raise StoreError("store failed: it is not a regular file")
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


class Follower:
    """Keep one connection to whatever file has the store's name, opened anew if need be."""

    def __init__(self, path: Path, connect: Callable[[], Connection]) -> None:
        self._path = path
        self._connect = connect
        self._connection: Connection | None = None
        self._file_id: FileId | None = None

    def connection(self) -> Connection:
        """Return the connection.

        Raises:
            StoreError: the store is gone or cannot be opened.
        """
        known = self._connection
        file_id = find_file_id(self._path)
        if known is not None and (known.is_broken or file_id != self._file_id):
            if file_id != self._file_id:
                known.empty_log()
            self.close()
        if file_id is None:
            raise StoreError(f"store `{self._path}` is gone: there is no such file")
        if self._connection is None:
            self._connection = self._connect()
            self._file_id = file_id
        return self._connection

    def close(self) -> None:
        """Close the connection, if there is one. A transaction that is open is undone."""
        known, self._connection = self._connection, None
        if known is not None:
            known.close()


class Reader:
    """Keep one connection for reading for each thread that asks.

    Each statement sees what is committed then, in whatever file has the store's name.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self._own = threading.local()

    def connection(self) -> Connection:
        """Return this thread's connection, opened anew if need be.

        Raises:
            StoreError: the store is gone or cannot be opened.
        """
        return self._follower().connection()

    def close(self) -> None:
        """Close this thread's connection, if there is one. Another thread's ends with it."""
        self._follower().close()

    def _follower(self) -> Follower:
        found: Follower | None = getattr(self._own, "follower", None)
        if found is None:
            found = Follower(self.database.path, self.database.connect_to_read)
            self._own.follower = found
        return found


def find_file_id(path: Path) -> FileId | None:
    """Return what tells a file from another that takes its name, or None if there is none.

    A file that was moved away takes reads and writes as before, and nobody would find them.
    """
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def cause_of(error: BaseException) -> str:
    """Return an error's own words in one line."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    said = " ".join(str(error).split())
    return said.removeprefix("store failed: ") or type(error).__name__
