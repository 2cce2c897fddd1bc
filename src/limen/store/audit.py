"""The audit trail: rows in the order of their commits, sealed by a signed Merkle root each time.

Each entry's body is the canonical JSON of its row with its place `seq`; each commit replaces the
head, whose signed checkpoint covers all entries so far. Every thousand entries a checkpoint is
kept, so that a forger who has rewritten the hashes too is found between two of them.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

import orjson
from sqlalchemy import Connection, Engine, insert, select, update

from limen.canonical import canonical
from limen.ports import Clock, Transaction
from limen.store.engine import reading
from limen.store.merkle import Frontier, leaf_hash
from limen.store.note import Checkpoint, NoteSigner
from limen.store.schema import (
    audit_checkpoint,
    audit_count,
    audit_entry,
    audit_head,
    utc_text,
)
from limen.store.writer import Writer, WriteTransaction
from limen.words import AuditRow

T = TypeVar("T")

KEEP_EVERY = 1000
"""Entries between two kept checkpoints. One is about 200 bytes; a row is about 600."""

PAGE = 500
"""Entries read at a time when somebody looks through the trail."""


class MerkleTrail:
    """Seal each transaction of the writer: entries, head, and at times a kept checkpoint."""

    def __init__(self, signer: NoteSigner, clock: Clock) -> None:
        self._signer = signer
        self._clock = clock
        self._frontier: Frontier | None = None
        self._sealed: Frontier | None = None
        self._kept_size = 0
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._counting: Counter[tuple[str, str, str]] = Counter()
        self._lock = threading.Lock()

    def count(self, method: str, caller: str) -> None:
        """Count a request that gets no row. Safe to call from any thread."""
        day = self._clock.now().astimezone(UTC).date().isoformat()
        with self._lock:
            self._counts[day, method, caller] += 1

    def seal(self, transaction: WriteTransaction) -> None:
        """Write the gathered rows and the new head."""
        self._write_counts(transaction.connection)
        if not transaction.rows:
            return
        frontier = self._frontier_now(transaction.connection).copy()
        first = frontier.size
        entries = []
        for seq, row in enumerate(transaction.rows, first):
            body = body_of(row, seq)
            leaf = leaf_hash(body)
            frontier.append(leaf)
            entries.append(
                {"seq": seq, "id": row.id, "state": row.state, "body": body.decode(), "leaf": leaf}
            )
        transaction.connection.execute(insert(audit_entry), entries)
        note = self._write_head(transaction.connection, frontier, is_first=first == 0)
        if frontier.size // KEEP_EVERY != first // KEEP_EVERY:
            _keep(transaction.connection, frontier.size, note)
            self._kept_size = frontier.size
        self._sealed = frontier

    def committed(self) -> None:
        """Take note that what was sealed last is durable."""
        if self._sealed is not None:
            self._frontier, self._sealed = self._sealed, None
        self._counting = Counter()

    def forget(self) -> None:
        """Take note that what was sealed last is not durable, nor known what is."""
        self._frontier = self._sealed = None
        with self._lock:
            self._counts.update(self._counting)
        self._counting = Counter()

    def has_more(self) -> bool:
        """Tell whether requests were counted that are not durable yet."""
        return bool(self._counts)

    def finish(self, transaction: WriteTransaction) -> None:
        """Keep a checkpoint of the last head, so that every run ends with one."""
        connection = transaction.connection
        self._write_counts(connection)
        head = connection.execute(select(audit_head.c.size, audit_head.c.note)).one_or_none()
        if head is not None:
            _keep(connection, head.size, head.note)

    def _frontier_now(self, connection: Connection) -> Frontier:
        # Another process may have written since: the head in the file is what counts.
        size = connection.execute(select(audit_head.c.size)).scalar_one_or_none() or 0
        if self._frontier is None or self._frontier.size != size:
            self._frontier = _load(connection)
        return self._frontier

    def _write_head(self, connection: Connection, frontier: Frontier, *, is_first: bool) -> str:
        checkpoint = Checkpoint(self._signer.origin, frontier.size, frontier.root())
        note = self._signer.sign(checkpoint.text())
        values = {"size": frontier.size, "frontier": frontier.to_bytes(), "note": note}
        if is_first:
            connection.execute(insert(audit_head).values(only=0, **values))
        else:
            connection.execute(update(audit_head).values(values))
        return note

    def _write_counts(self, connection: Connection) -> None:
        with self._lock:
            self._counting, self._counts = self._counts, Counter()
        for (day, method, caller), requests in self._counting.items():
            where = (
                (audit_count.c.day == day)
                & (audit_count.c.method == method)
                & (audit_count.c.caller == caller)
            )
            more = (
                update(audit_count).where(where).values(requests=audit_count.c.requests + requests)
            )
            if connection.execute(more).rowcount == 0:
                connection.execute(
                    insert(audit_count).values(
                        day=day, method=method, caller=caller, requests=requests
                    )
                )


@dataclass(frozen=True, slots=True)
class AuditLog:
    """Write rows down through the writer; `limen.ports.AuditLog` is the contract."""

    writer: Writer
    trail: MerkleTrail

    def write(self, row: AuditRow) -> Awaitable[None]:
        """Make one row durable."""
        return self.writer.write(row)

    def write_with(
        self, work: Callable[[Transaction], T], row_of: Callable[[T], AuditRow]
    ) -> Awaitable[T]:
        """Do `work` and write its row in one transaction."""
        return self.writer.work(_both(work, row_of))

    def write_with_now(
        self, work: Callable[[Transaction], T], row_of: Callable[[T], AuditRow | None]
    ) -> T:
        """Do the same from a thread without an event loop, and wait for the commit.

        No row is written when `row_of` returns None.
        """
        return self.writer.work_now(_both(work, row_of))

    def count(self, method: str, caller: str) -> None:
        """Count a request that gets no row of its own."""
        self.trail.count(method, caller)

    def close(self) -> None:
        """Commit all that was handed over, keep a checkpoint, and close."""
        self.writer.close()


def _both(
    work: Callable[[Transaction], T], row_of: Callable[[T], AuditRow | None]
) -> Callable[[WriteTransaction], T]:
    def job(transaction: WriteTransaction) -> T:
        result = work(transaction)
        row = row_of(result)
        if row is not None:
            transaction.append(row)
        return result

    return job


def connection_of(transaction: Transaction) -> Connection:
    """Return the connection of a transaction that the writer opened."""
    return cast(WriteTransaction, transaction).connection


def body_of(row: AuditRow, seq: int) -> bytes:
    """Return the canonical bytes of a row at its place: the leaf's data, and all that is kept."""
    body: dict[str, Any] = {
        "seq": seq,
        "id": row.id,
        "at": utc_text(row.at),
        "state": row.state,
        "server": row.server,
        "transport": row.transport,
        "revision": row.revision,
        "caller": row.caller,
        "client": row.client,
        "method": row.method,
        "tool": row.tool,
        "decision": row.decision,
        "step": row.step,
        "reason": row.reason,
        "private": row.private,
        "arguments_digest": row.arguments_digest,
        "result_digest": row.result_digest,
        "policies": row.policies,
        "approval": row.approval,
        "duration_us": row.duration_us,
    }
    if row.kept:
        body["kept"] = row.kept
    return canonical(body)


@dataclass(frozen=True, slots=True)
class AuditReader:
    """Look through the trail from outside a transaction."""

    engine: Engine

    def newest(self, limit: int, **expected: str) -> list[dict[str, Any]]:
        """Return up to `limit` entries, newest first, whose fields are as `expected`."""
        found: list[dict[str, Any]] = []
        for entry in self._backwards():
            if all(entry.get(field) == value for field, value in expected.items()):
                found.append(entry)
                if len(found) == limit:
                    break
        return found

    def of_call(self, row_id: str) -> list[dict[str, Any]]:
        """Return the entries of one call in their order: one, or `started` and `done`."""
        query = (
            select(audit_entry.c.body).where(audit_entry.c.id == row_id).order_by(audit_entry.c.seq)
        )
        with reading(self.engine) as connection:
            return [orjson.loads(body) for body in connection.scalars(query)]

    def all(self) -> Iterator[str]:
        """Yield the body of each entry, in the order of the log."""
        with reading(self.engine) as connection:
            after = -1
            while True:
                query = (
                    select(audit_entry.c.seq, audit_entry.c.body)
                    .where(audit_entry.c.seq > after)
                    .order_by(audit_entry.c.seq)
                    .limit(PAGE)
                )
                rows = connection.execute(query).all()
                if not rows:
                    return
                yield from (row.body for row in rows)
                after = rows[-1].seq

    def size(self) -> int:
        """Return how many entries there are."""
        with reading(self.engine) as connection:
            return connection.execute(select(audit_head.c.size)).scalar_one_or_none() or 0

    def head(self) -> str | None:
        """Return the signed checkpoint of all entries so far, None while there is none."""
        with reading(self.engine) as connection:
            return connection.execute(select(audit_head.c.note)).scalar_one_or_none()

    def counts(self) -> list[Mapping[str, Any]]:
        """Return the requests without rows: day, method, caller and how many."""
        query = select(audit_count).order_by(audit_count.c.day, audit_count.c.method)
        with reading(self.engine) as connection:
            return [dict(row._mapping) for row in connection.execute(query)]

    def _backwards(self) -> Iterator[dict[str, Any]]:
        with reading(self.engine) as connection:
            before = 2**63 - 1
            while True:
                query = (
                    select(audit_entry.c.seq, audit_entry.c.body)
                    .where(audit_entry.c.seq < before)
                    .order_by(audit_entry.c.seq.desc())
                    .limit(PAGE)
                )
                rows = connection.execute(query).all()
                if not rows:
                    return
                yield from (orjson.loads(row.body) for row in rows)
                before = rows[-1].seq


def at_of(entry: Mapping[str, Any]) -> datetime:
    """Return the time of an entry, aware UTC."""
    return datetime.fromisoformat(entry["at"])


def _load(connection: Connection) -> Frontier:
    head = connection.execute(select(audit_head)).one_or_none()
    return Frontier() if head is None else Frontier.from_bytes(head.size, head.frontier)


def _keep(connection: Connection, size: int, note: str) -> None:
    known = select(audit_checkpoint.c.size).where(audit_checkpoint.c.size == size)
    if connection.execute(known).one_or_none() is None:
        connection.execute(insert(audit_checkpoint).values(size=size, note=note))
