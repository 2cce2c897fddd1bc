"""Every table there is. SQLite today; PostgreSQL takes the same statements."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import (
    CheckConstraint,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

REVISION = 1
"""Of the schema. A store of another revision is not opened; `limen db upgrade` comes with the
first change of it."""

metadata = MetaData()

schema_revision = Table(
    "schema_revision",
    metadata,
    Column("only", Integer, CheckConstraint("only = 0"), primary_key=True),
    Column("revision", Integer, nullable=False),
)

# Append only: one entry a call, two where an act outside the store was announced first. `seq` is
# the leaf index of RFC 6962, from 0 without gaps; `body` is the canonical row and the leaf's data.
audit_entry = Table(
    "audit_entry",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("id", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("leaf", LargeBinary, nullable=False),
    Index("audit_entry_by_id", "id"),
)

audit_checkpoint = Table(
    "audit_checkpoint",
    metadata,
    Column("size", Integer, primary_key=True, autoincrement=False),
    Column("note", Text, nullable=False),
)

audit_head = Table(
    "audit_head",
    metadata,
    Column("only", Integer, CheckConstraint("only = 0"), primary_key=True),
    Column("size", Integer, nullable=False),
    Column("frontier", LargeBinary, nullable=False),
    Column("note", Text, nullable=False),
)

# Requests that get no row of their own (lists, pings), counted by day.
audit_count = Table(
    "audit_count",
    metadata,
    Column("day", Text, primary_key=True),
    Column("method", Text, primary_key=True),
    Column("caller", Text, primary_key=True),
    Column("requests", Integer, nullable=False),
)

# `binding` is the digest of all that an approval is bound to; `live` is 1 while the approval
# answers for its call and NULL afterwards, so that the pair is unique among the living only.
approval = Table(
    "approval",
    metadata,
    Column("id", Text, primary_key=True),
    Column("binding", Text, nullable=False),
    Column("live", Integer),
    Column("state", Text, nullable=False),
    Column("server", Text, nullable=False),
    Column("caller", Text, nullable=False),
    Column("tool", Text, nullable=False),
    Column("request", Text, nullable=False),
    Column("asked_at", Text, nullable=False),
    Column("expires_at", Text, nullable=False),
    Column("decided_by", Text),
    Column("decided_at", Text),
    Column("decision_reason", Text),
    Column("outcome", Text),
    UniqueConstraint("binding", "live", name="approval_once"),
    Index("approval_by_state", "state"),
)

# What was approved and has to leave the house. `key` is the approval's id: one delivery each.
outbox = Table(
    "outbox",
    metadata,
    Column("key", Text, primary_key=True),
    Column("destination", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("content", Text, nullable=False),
    Column("content_digest", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("queued_at", Text, nullable=False),
    Column("changed_at", Text, nullable=False),
    Column("detail", Text, nullable=False, default=""),
    Index("outbox_by_state", "state"),
)

document_version = Table(
    "document_version",
    metadata,
    Column("path", Text, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("content", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("author", Text, nullable=False),
    Column("written_at", Text, nullable=False),
)

ticket = Table(
    "ticket",
    metadata,
    Column("id", Text, primary_key=True),
    Column("subject", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("assignee", Text),
    Column("requester", Text),
)

ticket_note = Table(
    "ticket_note",
    metadata,
    Column("ticket_id", Text, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("author", Text, nullable=False),
    Column("written_at", Text, nullable=False),
    Column("note", Text, nullable=False),
)


def utc_text(at: datetime) -> str:
    """Return a time as stored: ISO 8601 in UTC, to the microsecond, so that text sorts as time.

    Raises:
        ValueError: the time has no zone, so nobody can say when it was.
    """
    if at.tzinfo is None:
        raise ValueError(f"time `{at.isoformat()}` has no zone")
    return at.astimezone(UTC).isoformat(timespec="microseconds")
