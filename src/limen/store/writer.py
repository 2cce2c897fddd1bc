"""The one writer: a thread that commits together what has gathered while it was committing.

Whoever hands a job over waits for its own commit. A batch is durable or it is not: when anything
in it fails, it is undone, every job of it hears so, and the next batch begins on a new connection.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from limen.errors import AuditError, LimenError, StoreError
from limen.store.database import Connection, Database, cause_of, file_id_of
from limen.words import AuditRow

T = TypeVar("T")

MAX_BATCH = 512
"""Jobs in one commit. About 10 ms of work, so a single slow batch delays nobody for long."""

MAX_WAITING = 10_000
"""Jobs that may wait. A store that is slower than that for a while is a store that is down."""


class WriteTransaction:
    """A transaction of the writer, open. `rows` are written down at its end, in their order."""

    __slots__ = ("connection", "rows")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.rows: list[AuditRow] = []

    def append(self, row: AuditRow) -> None:
        """Add a row to those that this transaction makes durable."""
        self.rows.append(row)

    def rehearse(self, work: Callable[[], T]) -> T:
        """Do `work`, undo what it did, and return what it returned."""
        mark = len(self.rows)
        with self.connection.savepoint(keep=False):
            result = work()
        del self.rows[mark:]
        return result


class Trail(Protocol):
    """Keep the rows: what the writer does at the end of each transaction and at its own end."""

    def seal(self, transaction: WriteTransaction) -> None:
        """Write the gathered rows and the new head. Changes nothing of its own yet."""

    def committed(self) -> None:
        """Take note that what was sealed last is durable."""

    def forget(self) -> None:
        """Take note that what was sealed last is not durable, nor known what is."""

    def has_more(self) -> bool:
        """Tell whether anything waits to be written that is in no transaction yet."""

    def finish(self, transaction: WriteTransaction) -> None:
        """Write what is to be written once at the end, into the last transaction."""


@dataclass(slots=True)
class _Job(Generic[T]):
    """Work to do, or with `work` None a row to write down. `loop` is None for a plain thread."""

    future: Any
    loop: asyncio.AbstractEventLoop | None
    row: AuditRow | None
    work: Callable[[WriteTransaction], T] | None
    result: T | None = None
    fault: BaseException | None = None


class Writer:
    """Own the only connection that writes. Started at once; `close` ends it."""

    def __init__(self, database: Database, trail: Trail) -> None:
        self._database = database
        self._trail = trail
        self._jobs: queue.Queue[_Job[Any] | None] = queue.Queue(MAX_WAITING)
        self._connection: Connection | None = None
        self._file_id = 0
        self._closed = False
        self._has_written = False
        self._door = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name="limen-writer", daemon=True)
        self._thread.start()

    def write(self, row: AuditRow) -> asyncio.Future[None]:
        """Hand one row over, from a running event loop."""
        loop = asyncio.get_running_loop()
        job: _Job[None] = _Job(loop.create_future(), loop, row, None)
        self._hand_over(job)
        return job.future  # type: ignore[no-any-return]  # it is what `create_future` made

    def work(self, work: Callable[[WriteTransaction], T]) -> asyncio.Future[T]:
        """Hand over work that runs inside a transaction, from a running event loop."""
        loop = asyncio.get_running_loop()
        job: _Job[T] = _Job(loop.create_future(), loop, None, work)
        self._hand_over(job)
        return job.future  # type: ignore[no-any-return]  # it is what `create_future` made

    def work_now(self, work: Callable[[WriteTransaction], T]) -> T:
        """Do work inside a transaction and wait for its commit, from any other thread.

        Raises:
            AuditError: nothing of it is durable.
        """
        future: Future[T] = Future()
        self._hand_over(_Job(future, None, None, work))
        return future.result()

    def close(self) -> None:
        """Commit all that was handed over, write the end, and close. For once and for all."""
        with self._door:
            was_closed, self._closed = self._closed, True
        if not was_closed:
            self._jobs.put(None)
        self._thread.join()

    def _hand_over(self, job: _Job[Any]) -> None:
        # The lock keeps a job from slipping in behind the end, where nobody would settle it.
        with self._door:
            if self._closed:
                raise AuditError("cannot write the audit trail: it is closed")
            try:
                self._jobs.put_nowait(job)
            except queue.Full as error:
                raise AuditError(
                    f"cannot write the audit trail: {MAX_WAITING} writes wait already"
                ) from error

    def _serve(self) -> None:
        ended = False
        while not ended:
            batch, ended = self._gathered()
            if batch:
                self._commit(batch)
                _settle(batch)
        self._end()

    def _gathered(self) -> tuple[list[_Job[Any]], bool]:
        batch: list[_Job[Any]] = []
        job = self._jobs.get()
        while job is not None:
            batch.append(job)
            if len(batch) == MAX_BATCH:
                return batch, False
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return batch, False
        return batch, True

    def _commit(self, batch: Sequence[_Job[Any]]) -> None:
        try:
            transaction = self._begin()
            for job in batch:
                _run(job, transaction)
            self._trail.seal(transaction)
            transaction.connection.commit()
            self._trail.committed()
            self._has_written = True
        except (LimenError, OSError) as error:
            # Fails closed: whatever of the batch reached the file is undone with the connection.
            self._drop()
            fault = AuditError(f"cannot write the audit trail: {cause_of(error)}")
            for job in batch:
                job.fault = fault

    def _begin(self) -> WriteTransaction:
        file_id = file_id_of(self._database.path)
        if self._connection is not None and file_id != self._file_id:
            self._drop()
        if self._connection is None:
            self._connection = self._database.connect()
            self._file_id = file_id
        self._connection.begin()
        return WriteTransaction(self._connection)

    def _drop(self) -> None:
        self._trail.forget()
        connection, self._connection = self._connection, None
        if connection is not None:
            # A transaction that is open is undone by this.
            connection.close()

    def _end(self) -> None:
        if not self._has_written and not self._trail.has_more():
            # Whoever only read leaves the store as it was, and waits for nobody.
            self._drop()
            return
        try:
            transaction = self._begin()
            self._trail.finish(transaction)
            transaction.connection.commit()
        except (LimenError, OSError):
            # Nothing is lost that anybody waits for; the rows are durable without it.
            self._drop()
            return
        self._drop()


def _run(job: _Job[Any], transaction: WriteTransaction) -> None:
    if job.work is None:
        if job.row is not None:
            transaction.append(job.row)
        return
    mark = len(transaction.rows)
    try:
        with transaction.connection.savepoint():
            job.result = job.work(transaction)
    except BaseException as fault:
        del transaction.rows[mark:]
        if transaction.connection.is_broken:
            # The store itself failed: the whole batch ends here, and hears why.
            raise StoreError(cause_of(fault)) from fault
        job.fault = fault


def _settle(batch: Sequence[_Job[Any]]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[_Job[Any]]] = {}
    for job in batch:
        if job.loop is None:
            _tell(job)
        else:
            by_loop.setdefault(job.loop, []).append(job)
    for loop, jobs in by_loop.items():
        try:
            # Once a batch, not once a job: each call wakes the loop through a pipe.
            loop.call_soon_threadsafe(_tell_all, jobs)
        except RuntimeError:
            # The loop is closed: nobody waits any more, and what was written stays written.
            continue


def _tell_all(jobs: Sequence[_Job[Any]]) -> None:
    for job in jobs:
        _tell(job)


def _tell(job: _Job[Any]) -> None:
    if job.future.cancelled():
        return
    try:
        if job.fault is None:
            job.future.set_result(job.result)
        else:
            job.future.set_exception(job.fault)
    except (InvalidStateError, asyncio.InvalidStateError):
        # Whoever waited stopped waiting between the two lines.
        return
