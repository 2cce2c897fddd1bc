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

from limen.errors import AuditError
from limen.store.database import Connection, Database, Follower, cause_of
from limen.words import AuditRow

T = TypeVar("T")

MAX_BATCH = 512
"""Jobs in one commit. About 10 ms of work, so a single slow batch delays nobody for long."""

MAX_WAITING = 10_000
"""Jobs that may wait. A store that is slower than that for a while is a store that is down."""

CLOSE_WITHIN_S = 1.5
"""Seconds. Longer than a statement waits for another process, shorter than a client waits for us
to leave."""


class WriteTransaction:
    """A transaction of the writer, open. `entries` are written down at its end, in their order.

    An entry is a row and its spelling at its place in the log.
    """

    __slots__ = ("_first", "_spell", "connection", "entries")

    def __init__(
        self, connection: Connection, first: int, spell: Callable[[AuditRow, int], bytes]
    ) -> None:
        self.connection = connection
        self.entries: list[tuple[AuditRow, bytes]] = []
        self._first = first
        self._spell = spell

    def append(self, row: AuditRow) -> None:
        """Add a row to those that this transaction makes durable.

        Raises:
            AuditError: it cannot be spelled. It fails alone then, not the whole batch.
        """
        try:
            body = self._spell(row, self._first + len(self.entries))
        except (TypeError, ValueError) as error:
            raise AuditError(
                f"cannot write the audit trail: row has no JSON form: {cause_of(error)}"
            ) from error
        self.entries.append((row, body))

    def rehearse(self, work: Callable[[], T]) -> T:
        """Do `work`, undo what it did, and return what it returned."""
        mark = len(self.entries)
        try:
            with self.connection.savepoint(keep=False):
                return work()
        finally:
            del self.entries[mark:]


class Trail(Protocol):
    """Keep the rows: what the writer does around each transaction and at its own end."""

    def begin(self, connection: Connection) -> int:
        """Return the place of the next row in the log, from 0."""

    def spell(self, row: AuditRow, seq: int) -> bytes:
        """Return what is kept of a row at its place.

        Raises:
            TypeError, ValueError: the row has no such form.
        """

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
        self._trail = trail
        self._jobs: queue.SimpleQueue[list[_Job[Any]] | None] = queue.SimpleQueue()
        self._bursts: dict[asyncio.AbstractEventLoop, list[_Job[Any]]] = {}
        self._waiting = 0
        self._left: list[_Job[Any]] = []
        self._follower = Follower(database.path, database.connect)
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
        """Commit all that was handed over, write the end, and close. For once and for all.

        Returns within about `CLOSE_WITHIN_S` whatever the store does. The thread of a store that
        is stuck goes on by itself, and ends with the process at the latest.
        """
        with self._door:
            was_closed, self._closed = self._closed, True
            bursts, self._bursts = list(self._bursts.values()), {}
        if not was_closed:
            for burst in bursts:
                self._jobs.put(burst)
            self._jobs.put(None)
        self._thread.join(CLOSE_WITHIN_S)

    def _hand_over(self, job: _Job[Any]) -> None:
        # The lock keeps a job from slipping in behind the end, where nobody would settle it.
        with self._door:
            if self._closed:
                raise AuditError("cannot write the audit trail: it is closed")
            # No bound of the queue itself: the end must find room behind any number of jobs.
            if self._waiting >= MAX_WAITING:
                raise AuditError(f"cannot write the audit trail: {MAX_WAITING} writes wait already")
            self._waiting += 1
            if job.loop is None:
                self._jobs.put([job])
                return
            burst = self._bursts.setdefault(job.loop, [])
            burst.append(job)
        if len(burst) == 1:
            # What a loop has ready at once is one commit: while we commit, it has less to do that
            # both would wait for.
            job.loop.call_soon(self._send_burst, job.loop)

    def _send_burst(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._door:
            burst = self._bursts.pop(loop, None)
            if burst is not None:
                self._jobs.put(burst)

    def _serve(self) -> None:
        ended = False
        while not ended:
            batch, ended = self._gathered()
            if batch:
                self._commit(batch)
                _settle(batch)
        self._end()

    def _gathered(self) -> tuple[list[_Job[Any]], bool]:
        burst: list[_Job[Any]] | None = self._left or self._jobs.get()
        batch: list[_Job[Any]] = []
        self._left = []
        while burst is not None:
            batch += burst
            if len(batch) >= MAX_BATCH:
                self._left = batch[MAX_BATCH:]
                return self._counted(batch[:MAX_BATCH]), False
            try:
                burst = self._jobs.get_nowait()
            except queue.Empty:
                return self._counted(batch), False
        return self._counted(batch), True

    def _counted(self, batch: list[_Job[Any]]) -> list[_Job[Any]]:
        with self._door:
            self._waiting -= len(batch)
        return batch

    def _commit(self, batch: Sequence[_Job[Any]]) -> None:
        fault = _fault_of(lambda: self._commit_or_raise(batch))
        if fault is None:
            self._has_written = True
            return
        # Fails closed: whatever of the batch reached the file is undone with the connection.
        self._drop()
        for job in batch:
            # Each has its own: whoever raises one adds to its traceback.
            job.fault = AuditError(f"cannot write the audit trail: {cause_of(fault)}")
            job.fault.__cause__ = fault

    def _commit_or_raise(self, batch: Sequence[_Job[Any]]) -> None:
        transaction = self._begin()
        for job in batch:
            _run(job, transaction)
        self._trail.seal(transaction)
        transaction.connection.commit()
        self._trail.committed()

    def _begin(self) -> WriteTransaction:
        connection = self._follower.connection()
        connection.begin()
        return WriteTransaction(connection, self._trail.begin(connection), self._trail.spell)

    def _drop(self) -> None:
        self._trail.forget()
        self._follower.close()

    def _end(self) -> None:
        # Whoever only read leaves the store as it was, and waits for nobody.
        if self._has_written or self._trail.has_more():
            # When this fails, nothing is lost that anybody waits for; the rows are durable.
            _fault_of(self._finish_or_raise)
        self._drop()

    def _finish_or_raise(self) -> None:
        transaction = self._begin()
        self._trail.finish(transaction)
        transaction.connection.commit()
        self._trail.committed()


def _run(job: _Job[Any], transaction: WriteTransaction) -> None:
    mark = len(transaction.entries)
    fault = _fault_of(lambda: _run_or_raise(job, transaction))
    if fault is None:
        return
    del transaction.entries[mark:]
    if isinstance(fault, StopIteration):
        # A future takes none, and whoever waits would wait forever.
        fault = RuntimeError(f"work raised StopIteration: {cause_of(fault)}")
    job.fault = fault


def _run_or_raise(job: _Job[Any], transaction: WriteTransaction) -> None:
    if job.work is not None:
        with transaction.connection.savepoint():
            job.result = job.work(transaction)
    elif job.row is not None:
        transaction.append(job.row)


def _fault_of(step: Callable[[], None]) -> BaseException | None:
    """Do a step and return what it raised: the thread outlives everything, and others wait."""
    try:
        step()
    except BaseException as fault:  # noqa: BLE001 - whoever waits gets it, as it is
        return fault
    return None


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
    try:
        if job.fault is None:
            job.future.set_result(job.result)
        else:
            job.future.set_exception(job.fault)
    except (InvalidStateError, asyncio.InvalidStateError):
        # Whoever waited has stopped waiting, and what was written stays written.
        return
