"""Every table there is, in the SQL that SQLite and PostgreSQL share, and how a time is stored."""

from __future__ import annotations

from datetime import UTC, datetime

REVISION = 1
"""Of the schema. A store of another revision is not opened."""

TABLES = (
    """
    CREATE TABLE schema_revision (
        only INTEGER PRIMARY KEY CHECK (only = 0),
        revision INTEGER NOT NULL
    )
    """,
    # Append only: one entry a call, two where an act outside the store was announced first. `seq`
    # is the leaf index of RFC 6962, from 0 without gaps; `body` is the canonical row and the
    # leaf's data.
    """
    CREATE TABLE audit_entry (
        seq INTEGER PRIMARY KEY,
        id TEXT NOT NULL,
        state TEXT NOT NULL,
        body TEXT NOT NULL,
        leaf BLOB NOT NULL
    )
    """,
    "CREATE INDEX audit_entry_by_id ON audit_entry (id)",
    "CREATE TABLE audit_checkpoint (size INTEGER PRIMARY KEY, note TEXT NOT NULL)",
    """
    CREATE TABLE audit_head (
        only INTEGER PRIMARY KEY CHECK (only = 0),
        size INTEGER NOT NULL,
        frontier BLOB NOT NULL,
        note TEXT NOT NULL
    )
    """,
    # Requests that get no row of their own (lists, pings), counted by day.
    """
    CREATE TABLE audit_count (
        day TEXT NOT NULL,
        method TEXT NOT NULL,
        caller TEXT NOT NULL,
        requests INTEGER NOT NULL,
        PRIMARY KEY (day, method, caller)
    )
    """,
    # `binding` is the digest of all that an approval is bound to; `live` is 1 while the approval
    # answers for its call and NULL afterwards, so that the pair is unique among the living only.
    """
    CREATE TABLE approval (
        id TEXT PRIMARY KEY,
        binding TEXT NOT NULL,
        live INTEGER,
        state TEXT NOT NULL,
        request TEXT NOT NULL,
        asked_at TEXT NOT NULL,
        decided_by TEXT,
        decided_at TEXT,
        decision_reason TEXT,
        outcome TEXT,
        UNIQUE (binding, live)
    )
    """,
    "CREATE INDEX approval_by_state ON approval (state)",
    # Opaque tokens by their SHA-256 in hex. `scopes` and `roles` are JSON lists, sorted.
    """
    CREATE TABLE token (
        digest TEXT PRIMARY KEY,
        caller TEXT NOT NULL,
        scopes TEXT NOT NULL,
        roles TEXT NOT NULL,
        resource TEXT NOT NULL,
        label TEXT NOT NULL,
        created_at TEXT NOT NULL,
        expires_at TEXT NOT NULL,
        revoked_at TEXT
    )
    """,
    "CREATE INDEX token_by_caller ON token (caller)",
    # What was approved and has to leave the house. `key` is the approval's id: one delivery each.
    """
    CREATE TABLE outbox (
        key TEXT PRIMARY KEY,
        destination TEXT NOT NULL,
        name TEXT NOT NULL,
        content TEXT NOT NULL,
        content_digest TEXT NOT NULL,
        state TEXT NOT NULL,
        queued_at TEXT NOT NULL,
        changed_at TEXT NOT NULL,
        detail TEXT NOT NULL
    )
    """,
    "CREATE INDEX outbox_by_state ON outbox (state)",
    # What callers have left to spend, one row a server, so that a restart refills nothing.
    # `levels` and `days` are JSON objects by caller.
    """
    CREATE TABLE budget (
        server TEXT PRIMARY KEY,
        levels TEXT NOT NULL,
        days TEXT NOT NULL,
        saved_at TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE document_version (
        path TEXT NOT NULL,
        version INTEGER NOT NULL,
        content TEXT NOT NULL,
        digest TEXT NOT NULL,
        author TEXT NOT NULL,
        written_at TEXT NOT NULL,
        PRIMARY KEY (path, version)
    )
    """,
    """
    CREATE TABLE ticket (
        id TEXT PRIMARY KEY,
        subject TEXT NOT NULL,
        status TEXT NOT NULL,
        assignee TEXT,
        requester TEXT
    )
    """,
    """
    CREATE TABLE ticket_note (
        ticket_id TEXT NOT NULL,
        number INTEGER NOT NULL,
        author TEXT NOT NULL,
        written_at TEXT NOT NULL,
        note TEXT NOT NULL,
        PRIMARY KEY (ticket_id, number)
    )
    """,
)


def utc_text(at: datetime) -> str:
    """Return a time as stored: ISO 8601 in UTC, to the microsecond, so that text sorts as time.

    Raises:
        ValueError: the time has no zone, so nobody can say when it was.
    """
    if at.tzinfo is None:
        raise ValueError(f"time `{at.isoformat()}` has no zone")
    return at.astimezone(UTC).isoformat(timespec="microseconds")
