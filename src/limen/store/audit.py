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
from datetime import UTC
from functools import lru_cache
from typing import Any, TypeVar, cast

import orjson

from limen.canonical import canonical
from limen.ports import Clock, Transaction
from limen.store.database import Connection, Database
from limen.store.merkle import Frontier, leaf_hash
from limen.store.note import Checkpoint, NoteSigner
from limen.store.schema import utc_text
from limen.store.writer import Writer, WriteTransaction
from limen.words import AuditRow

T = TypeVar("T")

AT_ONCE = 32
"""Entries of one statement. After each statement the writer waits for its turn to go on."""

KEEP_EVERY = 1000
"""Entries between two kept checkpoints. One is about 200 bytes; a row is about 600."""

PAGE = 500
"""Entries read at a time when somebody looks through the trail."""


class MerkleTrail:
    """Seal each transaction of the writer: entries, head, and at times a kept checkpoint."""

    def __init__(self, signer: NoteSigner, clock: Clock) -> None:
        self._signer = signer
        self._clock = clock
        self._frontier = Frontier()
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._counting: Counter[tuple[str, str, str]] = Counter()
        self._lock = threading.Lock()
        self._riders: list[Callable[[Connection, bool], None]] = []

    def take_along(self, rider: Callable[[Connection, bool], None]) -> None:
        """Let `rider` write too in each transaction to come; it is told which one is the last.

        It runs in the writer's thread.
        """
        self._riders.append(rider)

    def count(self, method: str, caller: str) -> None:
        """Count a request that gets no row. Safe to call from any thread."""
        day = self._clock.now().astimezone(UTC).date().isoformat()
        with self._lock:
            self._counts[day, method, caller] += 1

    def begin(self, connection: Connection) -> int:
        """Return the place of the next row in the log."""
        # INVARIANT: the head in the file is what counts, and nothing that we remember: another
        # process may have written since, or the file may have been put back.
        head = connection.one("SELECT size, frontier FROM audit_head")
        self._frontier = (
            Frontier() if head is None else Frontier.from_bytes(head["size"], head["frontier"])
        )
        return self._frontier.size

    def spell(self, row: AuditRow, seq: int) -> bytes:
        """Return what is kept of a row at its place."""
        return body_of(row, seq)

    def seal(self, transaction: WriteTransaction) -> None:
        """Write the gathered rows and the new head."""
        self._write_counts(transaction.connection)
        for rider in self._riders:
            rider(transaction.connection, False)
        if not transaction.entries:
            return
        frontier = self._frontier
        first = frontier.size
        values: dict[str, Any] = {}
        for number, (row, body) in enumerate(transaction.entries):
            leaf = leaf_hash(body)
            frontier.append(leaf)
            place = number % AT_ONCE
            values[f"seq{place}"] = first + number
            values[f"id{place}"] = row.id
            values[f"state{place}"] = row.state
            values[f"body{place}"] = body.decode()
            values[f"leaf{place}"] = leaf
            if place == AT_ONCE - 1 or number == len(transaction.entries) - 1:
                transaction.connection.run(_insert_of(place + 1), **values)
                values.clear()
        note = self._write_head(transaction.connection, frontier)
        if frontier.size // KEEP_EVERY != first // KEEP_EVERY:
            _keep(transaction.connection, frontier.size, note)

    def committed(self) -> None:
        """Take note that what was sealed last is durable."""
        self._counting = Counter()

    def forget(self) -> None:
        """Take note that what was sealed last is not durable, nor known what is."""
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
        for rider in self._riders:
            rider(connection, True)
        head = connection.one("SELECT size, note FROM audit_head")
        if head is not None:
            _keep(connection, head["size"], head["note"])

    def _write_head(self, connection: Connection, frontier: Frontier) -> str:
        checkpoint = Checkpoint(self._signer.origin, frontier.size, frontier.root())
        note = self._signer.sign(checkpoint.text())
        connection.run(
            "INSERT INTO audit_head VALUES (0, :size, :frontier, :note) ON CONFLICT (only)"
            " DO UPDATE SET size = :size, frontier = :frontier, note = :note",
            size=frontier.size,
            frontier=frontier.to_bytes(),
            note=note,
        )
        return note

    def _write_counts(self, connection: Connection) -> None:
        with self._lock:
            self._counting, self._counts = self._counts, Counter()
        for (day, method, caller), requests in self._counting.items():
            connection.run(
                "INSERT INTO audit_count VALUES (:day, :method, :caller, :requests)"
                " ON CONFLICT (day, method, caller)"
                " DO UPDATE SET requests = audit_count.requests + excluded.requests",
                day=day,
                method=method,
                caller=caller,
                requests=requests,
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

    database: Database

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
        with self.database.reading() as connection:
            rows = connection.all(
                "SELECT body FROM audit_entry WHERE id = :id ORDER BY seq", id=row_id
            )
        return [orjson.loads(row["body"]) for row in rows]

    def all(self) -> Iterator[str]:
        """Yield the body of each entry, in the order of the log."""
        with self.database.reading() as connection:
            after = -1
            while rows := connection.all(
                "SELECT seq, body FROM audit_entry WHERE seq > :after ORDER BY seq LIMIT :page",
                after=after,
                page=PAGE,
            ):
                yield from (row["body"] for row in rows)
                after = rows[-1]["seq"]

    def size(self) -> int:
        """Return how many entries there are."""
        with self.database.reading() as connection:
            head = connection.one("SELECT size FROM audit_head")
        return 0 if head is None else int(head["size"])

    def head(self) -> str | None:
        """Return the signed checkpoint of all entries so far, None while there is none."""
        with self.database.reading() as connection:
            head = connection.one("SELECT note FROM audit_head")
        return None if head is None else str(head["note"])

    def counts(self) -> list[Mapping[str, Any]]:
        """Return the requests without rows: day, method, caller and how many."""
        with self.database.reading() as connection:
            rows = connection.all("SELECT * FROM audit_count ORDER BY day, method, caller")
        return [dict(row) for row in rows]

    def _backwards(self) -> Iterator[dict[str, Any]]:
        with self.database.reading() as connection:
            before = 2**63 - 1
            while rows := connection.all(
                "SELECT seq, body FROM audit_entry WHERE seq < :before"
                " ORDER BY seq DESC LIMIT :page",
                before=before,
                page=PAGE,
            ):
                yield from (orjson.loads(row["body"]) for row in rows)
                before = rows[-1]["seq"]


@lru_cache(maxsize=AT_ONCE)
def _insert_of(rows: int) -> str:
    """Return the statement that adds some entries. Each one that runs may wait for the loop."""
    places = (f"(:seq{n}, :id{n}, :state{n}, :body{n}, :leaf{n})" for n in range(rows))
    return f"INSERT INTO audit_entry VALUES {', '.join(places)}"  # noqa: S608 - names of ours


def _keep(connection: Connection, size: int, note: str) -> None:
    connection.run(
        "INSERT INTO audit_checkpoint VALUES (:size, :note) ON CONFLICT (size) DO NOTHING",
        size=size,
        note=note,
    )
