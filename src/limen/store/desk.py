"""The desk's tables: documents in versions, tickets with notes.

Everything here runs on a connection that somebody else opened, in a transaction that they end.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from limen.canonical import digest_bytes
from limen.errors import StoreError, TakenError
from limen.store.database import Connection
from limen.store.schema import utc_text


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
        row = self.connection.one(
            "SELECT * FROM document_version WHERE path = :path"
            " AND (:version IS NULL OR version = :version) ORDER BY version DESC LIMIT 1",
            path=path,
            version=version,
        )
        if row is None:
            return None
        return Document(
            path=row["path"],
            version=row["version"],
            content=row["content"],
            digest=row["digest"],
            author=row["author"],
            written_at=datetime.fromisoformat(row["written_at"]),
        )

    def list_documents(self, after: str, limit: int, prefix: str = "") -> list[ListedDocument]:
        """Return up to `limit` documents whose path follows `after` and begins with `prefix`.

        Latest versions, in the order of the path.
        """
        # Not LIKE: SQLite's ignores case.
        rows = self.connection.all(
            "SELECT path, version, digest, author, written_at FROM document_version"
            " JOIN (SELECT path AS newest_path, max(version) AS newest FROM document_version"
            "  WHERE path > :after AND substr(path, 1, length(:prefix)) = :prefix"
            "  GROUP BY path ORDER BY path LIMIT :limit)"
            " ON path = newest_path AND version = newest ORDER BY path",
            after=after,
            prefix=prefix,
            limit=limit,
        )
        return [
            ListedDocument(
                path=row["path"],
                version=row["version"],
                digest=row["digest"],
                author=row["author"],
                written_at=datetime.fromisoformat(row["written_at"]),
            )
            for row in rows
        ]

    def write_document(self, path: str, content: str, author: str, at: datetime) -> Document:
        """Add the next version of a document, the first if there is none, and return it.

        Raises:
            StoreError: another writer added the same version first; nothing was written.
        """
        last = self.connection.one(
            "SELECT max(version) AS version FROM document_version WHERE path = :path", path=path
        )
        written = Document(
            path=path,
            version=((last and last["version"]) or 0) + 1,
            content=content,
            digest=digest_bytes(content.encode()),
            author=author,
            written_at=at.astimezone(UTC),
        )
        try:
            self.connection.run(
                "INSERT INTO document_version"
                " VALUES (:path, :version, :content, :digest, :author, :written_at)",
                path=path,
                version=written.version,
                content=content,
                digest=written.digest,
                author=author,
                written_at=utc_text(at),
            )
        except TakenError as error:
            raise StoreError(
                f"cannot write a document: version {written.version} of `{path}` is there already"
            ) from error
        return written

    def get_ticket(self, ticket_id: str) -> Ticket | None:
        """Return a ticket with its notes, or None."""
        row = self.connection.one("SELECT * FROM ticket WHERE id = :id", id=ticket_id)
        if row is None:
            return None
        notes = self.connection.all(
            "SELECT * FROM ticket_note WHERE ticket_id = :id ORDER BY number", id=ticket_id
        )
        return Ticket(
            id=row["id"],
            subject=row["subject"],
            status=row["status"],
            assignee=row["assignee"],
            requester=row["requester"],
            notes=tuple(
                TicketNote(
                    note["number"],
                    note["author"],
                    datetime.fromisoformat(note["written_at"]),
                    note["note"],
                )
                for note in notes
            ),
        )

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
        self.connection.run(
            "INSERT INTO ticket VALUES (:id, :subject, :status, :assignee, :requester)",
            id=ticket_id,
            subject=subject,
            status=status,
            assignee=assignee,
            requester=requester,
        )
        return True

    def add_note(self, ticket_id: str, note: str, author: str, at: datetime) -> int | None:
        """Append a note and return its number, or None when there is no such ticket.

        Raises:
            StoreError: another writer took the number first; nothing was written.
        """
        if not self._has_ticket(ticket_id):
            return None
        last = self.connection.one(
            "SELECT max(number) AS number FROM ticket_note WHERE ticket_id = :id", id=ticket_id
        )
        number: int = ((last and last["number"]) or 0) + 1
        try:
            self.connection.run(
                "INSERT INTO ticket_note VALUES (:id, :number, :author, :at, :note)",
                id=ticket_id,
                number=number,
                author=author,
                at=utc_text(at),
                note=note,
            )
        except TakenError as error:
            raise StoreError(
                f"cannot add a note: note {number} of `{ticket_id}` is there already"
            ) from error
        return number

    def _has_ticket(self, ticket_id: str) -> bool:
        return self.connection.one("SELECT 1 FROM ticket WHERE id = :id", id=ticket_id) is not None
