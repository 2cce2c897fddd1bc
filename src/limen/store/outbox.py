"""The outbox: what was approved and has to leave the house, with what became of it.

queued ── sending ─┬─ delivered
                   ├─ failed        the other side did not take it
                   └─ unconfirmed   nobody can say; never tried again by itself
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from limen.canonical import digest_bytes
from limen.errors import StoreError
from limen.store.database import Connection, Database
from limen.store.schema import utc_text

NEXT = {"queued": ("sending",), "sending": ("delivered", "failed", "unconfirmed")}
"""From each state, the states that may follow. What is not a key is final."""


@dataclass(frozen=True, slots=True)
class OutboxItem:
    """One delivery. `key` is the approval's id, `name` the document's path. Times are aware UTC."""

    key: str
    destination: str
    name: str
    content: str
    content_digest: str
    state: str
    queued_at: datetime
    changed_at: datetime
    detail: str


@dataclass(frozen=True, slots=True)
class OutboxTable:
    """Read and write the outbox on one connection. Commits nothing by itself."""

    connection: Connection

    def queue(self, key: str, *, destination: str, name: str, content: str, at: datetime) -> bool:
        """Queue one delivery with its content as it is now. False when the key is taken."""
        if self.find(key) is not None:
            return False
        self.connection.run(
            "INSERT INTO outbox VALUES (:key, :destination, :name, :content, :content_digest,"
            " 'queued', :at, :at, '')",
            key=key,
            destination=destination,
            name=name,
            content=content,
            content_digest=digest_bytes(content.encode()),
            at=utc_text(at),
        )
        return True

    def mark(self, key: str, from_state: str, to_state: str, detail: str, at: datetime) -> bool:
        """Move an item on. False when it is not in `from_state`; nothing changes then.

        Raises:
            StoreError: `to_state` never follows `from_state`.
        """
        if to_state not in NEXT.get(from_state, ()):
            raise StoreError(f"outbox item cannot go from `{from_state}` to `{to_state}`")
        moved = self.connection.run(
            "UPDATE outbox SET state = :to_state, detail = :detail, changed_at = :at"
            " WHERE key = :key AND state = :from_state",
            key=key,
            from_state=from_state,
            to_state=to_state,
            detail=detail,
            at=utc_text(at),
        )
        return moved == 1

    def find(self, key: str) -> OutboxItem | None:
        """Return an item, or None."""
        row = self.connection.one("SELECT * FROM outbox WHERE key = :key", key=key)
        if row is None:
            return None
        return OutboxItem(
            key=row["key"],
            destination=row["destination"],
            name=row["name"],
            content=row["content"],
            content_digest=row["content_digest"],
            state=row["state"],
            queued_at=datetime.fromisoformat(row["queued_at"]),
            changed_at=datetime.fromisoformat(row["changed_at"]),
            detail=row["detail"],
        )

    def keys_in(self, state: str) -> list[str]:
        """Return the keys of all items in a state, those queued first before the others."""
        rows = self.connection.all(
            "SELECT key FROM outbox WHERE state = :state ORDER BY queued_at, key", state=state
        )
        return [row["key"] for row in rows]


@dataclass(frozen=True, slots=True)
class OutboxReader:
    """Look into the outbox from outside a transaction: each look sees what is committed then."""

    database: Database

    def keys_in(self, state: str) -> list[str]:
        """Return the keys of all items in a state, those queued first before the others."""
        with self.database.reading() as connection:
            return OutboxTable(connection).keys_in(state)

    def find(self, key: str) -> OutboxItem | None:
        """Return an item, or None."""
        with self.database.reading() as connection:
            return OutboxTable(connection).find(key)
