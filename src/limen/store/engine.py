"""Open the store: one SQLite file in the data directory, written through its log (WAL)."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, ExceptionContext, create_engine, event, insert, select
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from limen.errors import StoreError
from limen.store.schema import REVISION, metadata, schema_revision

BUSY_TIMEOUT_MS = 1_000
"""Milliseconds. How long a statement waits for another process that writes before it gives up."""


def open_store(path: Path) -> Engine:
    """Return an engine on the store, made now if there is none.

    Transactions begin with BEGIN IMMEDIATE, so two writers wait instead of failing half-way.

    Raises:
        StoreError: the file cannot be opened or written, is no store, or is of another revision.
    """
    engine = _engine(path)
    try:
        # SQLite gives the files beside it the same mode.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        with engine.begin() as connection:
            _create(connection, path)
    except (OSError, SQLAlchemyError) as error:
        raise StoreError(f"cannot open store `{path}`: {cause_of(error)}") from error
    return engine


@contextmanager
def reading_only(path: Path) -> Iterator[Engine]:
    """Hand out an engine that can only read a store, and makes nothing beside it.

    Raises:
        StoreError: the store cannot be read.
    """
    address = f"sqlite:///file:{quote(str(path))}?mode=ro&uri=true"
    engine = create_engine(address, poolclass=NullPool)
    event.listen(engine, "connect", _leave_transactions_alone)
    try:
        yield engine
    except SQLAlchemyError as error:
        raise StoreError(f"cannot read store `{path}`: {cause_of(error)}") from error


def reading(engine: Engine) -> Connection:
    """Return a connection on which each statement sees what is committed at its time."""
    connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
    # INVARIANT: what writes goes through the writer, with its row; here it is an error.
    connection.exec_driver_sql("PRAGMA query_only = ON")
    return connection


class Reader:
    """Keep one connection for reading, for one thread; each statement sees what is committed.

    It follows the file: one that was put in another's place is what is read from then on.
    """

    def __init__(self, engine: Engine, path: Path) -> None:
        self.engine = engine
        self._path = path
        self._connection: Connection | None = None
        self._file_id = 0

    def connection(self) -> Connection:
        """Return the connection, opened anew if need be.

        Raises:
            StoreError: the store is gone or cannot be opened.
        """
        file_id = file_id_of(self._path)
        if self._connection is None or file_id != self._file_id or _is_broken(self._connection):
            self.close()
            try:
                self._connection = reading(self.engine)
            except SQLAlchemyError as error:
                raise StoreError(f"cannot read store `{self._path}`: {cause_of(error)}") from error
            self._file_id = file_id
        return self._connection

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
    """Return the driver's own words in one line, without the statement and its values."""
    if isinstance(error, DBAPIError) and error.orig is not None:
        error = error.orig
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return " ".join(str(error).split()) or type(error).__name__


def _engine(path: Path) -> Engine:
    # NullPool: two long-lived connections are all there is, and each heals by being reopened.
    engine = create_engine(f"sqlite:///{path}", poolclass=NullPool)
    event.listen(engine, "connect", _set_up)
    event.listen(engine, "begin", _begin)
    event.listen(engine, "handle_error", _note_broken)
    return engine


def _note_broken(context: ExceptionContext) -> None:
    # What a connection keeps in mind of a file that was broken outlives the file's repair.
    if context.connection is not None:
        context.connection.info[_BROKEN] = True


def _is_broken(connection: Connection) -> bool:
    return connection.closed or connection.invalidated or _BROKEN in connection.info


_BROKEN = "limen.broken"


def _leave_transactions_alone(driver: sqlite3.Connection, _record: Any) -> None:
    # The driver's own transactions begin late and end early; ours begin in `_begin`.
    driver.isolation_level = None


def _set_up(driver: sqlite3.Connection, record: Any) -> None:
    _leave_transactions_alone(driver, record)
    cursor = driver.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    cursor.execute("PRAGMA journal_mode = WAL")
    # INVARIANT: a commit that returned has reached the disk. NORMAL would lose the last rows.
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.execute("PRAGMA trusted_schema = OFF")
    cursor.close()


def _begin(connection: Connection) -> None:
    if connection.get_execution_options().get("isolation_level") != "AUTOCOMMIT":
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def _create(connection: Connection, path: Path) -> None:
    metadata.create_all(connection)
    found = connection.execute(select(schema_revision.c.revision)).scalar_one_or_none()
    if found is None:
        connection.execute(insert(schema_revision).values(only=0, revision=REVISION))
    elif found != REVISION:
        raise StoreError(
            f"cannot open store `{path}`: it has schema revision {found},"
            f" this program has {REVISION}"
        )
