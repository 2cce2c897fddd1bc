"""What the desk needs of the world, and the one view that its tools get.

The values and the tables are protocols: the store satisfies them by shape, and neither room
imports the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol


class ListedDocument(Protocol):
    """The latest version of a document, without its text. `written_at` is aware UTC."""

    @property
    def path(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def digest(self) -> str: ...
    @property
    def author(self) -> str: ...
    @property
    def written_at(self) -> datetime: ...


class Document(ListedDocument, Protocol):
    """One version of a document. `digest` is `sha-256:` and hex, of the text in UTF-8."""

    @property
    def content(self) -> str: ...


class TicketNote(Protocol):
    """One note of a ticket. `number` counts from 1 within its ticket."""

    @property
    def number(self) -> int: ...
    @property
    def author(self) -> str: ...
    @property
    def written_at(self) -> datetime: ...
    @property
    def note(self) -> str: ...


class Ticket(Protocol):
    """One ticket with its notes, oldest first. `assignee` and `requester` are caller ids."""

    @property
    def id(self) -> str: ...
    @property
    def subject(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def assignee(self) -> str | None: ...
    @property
    def requester(self) -> str | None: ...
    @property
    def notes(self) -> Sequence[TicketNote]: ...


class Documents(Protocol):
    """Keep documents, every version of each. Nothing is overwritten in place."""

    def read_document(self, path: str, version: int | None = None) -> Document | None:
        """Return a version of a document, the latest by default, or None."""

    def list_documents(self, after: str, limit: int, prefix: str = "") -> Sequence[ListedDocument]:
        """Return up to `limit` documents whose path follows `after` and begins with `prefix`.

        The order is by path and never changes; an empty `after` begins at the beginning.
        """

    def write_document(self, path: str, content: str, author: str, at: datetime) -> Document:
        """Add a version and return it. Durable with the transaction it is part of."""


class Tickets(Protocol):
    """Keep tickets and their notes."""

    def get_ticket(self, ticket_id: str) -> Ticket | None:
        """Return a ticket with its notes, or None."""

    def add_note(self, ticket_id: str, note: str, author: str, at: datetime) -> int | None:
        """Append a note and return its number, or None when there is no such ticket."""

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


class Queue(Protocol):
    """Take what has to leave the house."""

    def queue(self, key: str, *, destination: str, name: str, content: str, at: datetime) -> bool:
        """Queue one delivery, at most once for each `key`. False when the key is taken."""


@dataclass(frozen=True, slots=True)
class DeskView:
    """All that a tool of the desk can see and touch, valid for one call.

    `destinations` maps each destination's name to the groups it is in, and `setups` to the id of
    the way it is set up now: what is queued goes there, or nowhere. `author` is written beside
    what the call writes, `now` is aware UTC, and `key` names the one delivery that this call may
    queue (the approval's id, empty where there is none).
    """

    documents: Documents
    tickets: Tickets
    outbox: Queue
    destinations: Mapping[str, frozenset[str]]
    author: str
    now: datetime
    key: str = ""
    setups: Mapping[str, str] = field(default_factory=dict)
