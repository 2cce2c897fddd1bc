"""The desk's tables: documents in versions, tickets with notes.

Everything here runs on a connection that somebody else opened, in a transaction that they end.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection, func, insert, select
from sqlalchemy.exc import IntegrityError

from limen.canonical import digest_bytes
from limen.errors import StoreError
from limen.store.schema import document_version, ticket, ticket_note, utc_text


@dataclass(frozen=True, slots=True)
class ListedDocument:
    """The latest version of a document, without its text. `written_at` is aware UTC."""

    path: str
    version: int
    digest: str
    author: str
    written_at: datetime


@dataclass(frozen=True, slots=True)
class Document:
    """One version of a document. `version` counts from 1; `digest` is of the text in UTF-8."""

    path: str
    version: int
    content: str
    digest: str
    author: str
    written_at: datetime


@dataclass(frozen=True, slots=True)
class TicketNote:
    """One note of a ticket. `number` counts from 1 within its ticket."""

    number: int
    author: str
    written_at: datetime
    note: str


@dataclass(frozen=True, slots=True)
class ListedTicket:
    """One ticket, without its notes. `assignee` and `requester` are caller ids."""

    id: str
    subject: str
    status: str
    assignee: str | None
    requester: str | None


@dataclass(frozen=True, slots=True)
class Ticket:
    """One ticket with its notes, oldest first. `assignee` and `requester` are caller ids."""

    id: str
    subject: str
    status: str
    assignee: str | None
    requester: str | None
    notes: tuple[TicketNote, ...]


@dataclass(frozen=True, slots=True)
class DeskTables:
    """Read and write documents and tickets on one connection. Commits nothing by itself."""

    connection: Connection

    def read_document(self, path: str, version: int | None = None) -> Document | None:
        """Return a version of a document, the latest by default, or None."""
        columns = document_version.c
        query = select(document_version).where(columns.path == path)
        if version is None:
            query = query.order_by(columns.version.desc()).limit(1)
        else:
            query = query.where(columns.version == version)
        row = self.connection.execute(query).one_or_none()
        if row is None:
            return None
        return Document(
            path=row.path,
            version=row.version,
            content=row.content,
            digest=row.digest,
            author=row.author,
            written_at=datetime.fromisoformat(row.written_at),
        )

    def list_documents(self, after: str, limit: int, prefix: str = "") -> list[ListedDocument]:
        """Return up to `limit` documents whose path follows `after` and begins with `prefix`.

        Latest versions, in the order of the path.
        """
        columns = document_version.c
        latest = select(columns.path, func.max(columns.version).label("version")).where(
            columns.path > after
        )
        if prefix:
            # Not LIKE: SQLite's ignores case.
            latest = latest.where(func.substr(columns.path, 1, len(prefix)) == prefix)
        newest = latest.group_by(columns.path).order_by(columns.path).limit(limit).subquery()
        query = (
            select(
                columns.path, columns.version, columns.digest, columns.author, columns.written_at
            )
            .join(
                newest,
                (newest.c.path == columns.path) & (newest.c.version == columns.version),
            )
            .order_by(columns.path)
        )
        return [
            ListedDocument(
                path=row.path,
                version=row.version,
                digest=row.digest,
                author=row.author,
                written_at=datetime.fromisoformat(row.written_at),
            )
            for row in self.connection.execute(query)
        ]

    def write_document(self, path: str, content: str, author: str, at: datetime) -> Document:
        """Add the next version of a document, the first if there is none, and return it.

        Raises:
            StoreError: another writer added the same version first; nothing was written.
        """
        columns = document_version.c
        last = self.connection.execute(
            select(func.max(columns.version)).where(columns.path == path)
        ).scalar_one()
        written = Document(
            path=path,
            version=(last or 0) + 1,
            content=content,
            digest=digest_bytes(content.encode()),
            author=author,
            written_at=at.astimezone(UTC),
        )
        statement = insert(document_version).values(
            path=written.path,
            version=written.version,
            content=written.content,
            digest=written.digest,
            author=written.author,
            written_at=utc_text(at),
        )
        try:
            self.connection.execute(statement)
        except IntegrityError as error:
            raise StoreError(
                f"cannot write a document: version {written.version} of `{path}` is there already"
            ) from error
        return written

    def get_ticket(self, ticket_id: str) -> Ticket | None:
        """Return a ticket with its notes, or None."""
        row = self.connection.execute(select(ticket).where(ticket.c.id == ticket_id)).one_or_none()
        if row is None:
            return None
        notes = self.connection.execute(
            select(ticket_note)
            .where(ticket_note.c.ticket_id == ticket_id)
            .order_by(ticket_note.c.number)
        )
        return Ticket(
            id=row.id,
            subject=row.subject,
            status=row.status,
            assignee=row.assignee,
            requester=row.requester,
            notes=tuple(
                TicketNote(
                    note.number, note.author, datetime.fromisoformat(note.written_at), note.note
                )
                for note in notes
            ),
        )

    def list_tickets(self, after: str, limit: int) -> list[ListedTicket]:
        """Return up to `limit` tickets whose id follows `after`, in the order of the id as text."""
        rows = self.connection.execute(
            select(ticket).where(ticket.c.id > after).order_by(ticket.c.id).limit(limit)
        )
        return [
            ListedTicket(row.id, row.subject, row.status, row.assignee, row.requester)
            for row in rows
        ]

    def add_ticket(
        self,
        ticket_id: str,
        *,
        subject: str,
        status: str,
        assignee: str | None,
        requester: str | None,
    ) -> bool:
        """Add a ticket. False when the id is taken; nothing changes then."""
        if self._has_ticket(ticket_id):
            return False
        self.connection.execute(
            insert(ticket).values(
                id=ticket_id,
                subject=subject,
                status=status,
                assignee=assignee,
                requester=requester,
            )
        )
        return True

    def add_note(self, ticket_id: str, note: str, author: str, at: datetime) -> int | None:
        """Append a note and return its number, or None when there is no such ticket.

        Raises:
            StoreError: another writer took the number first; nothing was written.
        """
        if not self._has_ticket(ticket_id):
            return None
        columns = ticket_note.c
        last = self.connection.execute(
            select(func.max(columns.number)).where(columns.ticket_id == ticket_id)
        ).scalar_one()
        number: int = (last or 0) + 1
        statement = insert(ticket_note).values(
            ticket_id=ticket_id, number=number, author=author, written_at=utc_text(at), note=note
        )
        try:
            self.connection.execute(statement)
        except IntegrityError as error:
            raise StoreError(
                f"cannot add a note: note {number} of `{ticket_id}` is there already"
            ) from error
        return number

    def _has_ticket(self, ticket_id: str) -> bool:
        found = self.connection.execute(select(ticket.c.id).where(ticket.c.id == ticket_id))
        return found.one_or_none() is not None
