"""Bring the owner's own documents and tickets in, and say what was left out and why.

The folder is read as it is found: nothing outside it is followed, nothing in it is changed.
"""

from __future__ import annotations

import csv
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal, TextIO

from limen.canonical import digest_bytes
from limen.errors import LimenError
from limen.servers.desk.paths import why_not_canonical
from limen.servers.desk.tools import TICKET_ID
from limen.servers.desk.views import Documents, Tickets

TEXT_SUFFIXES = frozenset(
    {".csv", ".html", ".json", ".md", ".rst", ".toml", ".txt", ".yaml", ".yml"}
)

MAX_FILE = 1024 * 1024
"""Bytes. A document is read and approved whole by a person; a larger one is a data set."""

MAX_SUBJECT = 200
"""Characters of a ticket's subject."""

MAX_STATUS = 40
"""Characters of a ticket's status."""

HEADER = ["id", "subject", "status", "assignee", "requester"]


@dataclass(frozen=True, slots=True)
class Seen:
    """What became of one file or line. `reason` says why it was skipped, else it is empty."""

    name: str
    outcome: Literal["written", "unchanged", "skipped"]
    reason: str = ""


Tell = Callable[[Seen], None]
"""Told of every file or line once, in order. Names are safe to print."""


@dataclass(frozen=True, slots=True)
class NewTicket:
    """A ticket that is about to be added."""

    id: str
    subject: str
    status: str
    assignee: str | None
    requester: str | None

    def add_to(self, tickets: Tickets) -> bool:
        """Add the ticket. False when its id is taken; nothing changes then."""
        return tickets.add_ticket(
            self.id,
            subject=self.subject,
            status=self.status,
            assignee=self.assignee,
            requester=self.requester,
        )


class _SkippedError(Exception):
    """Say why one file or line is left out."""


def documents_in(folder: Path, tell: Tell, *, into: str = "public") -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each document in a folder, sorted within each folder.

    `into` is the folder of the desk that they go to, such as `public` or `team/support`. What is
    left out is told as `skipped`; a folder that is left out is told once.

    Raises:
        LimenError: the folder cannot be read, or `into` is no folder of the desk.
    """
    if (reason := why_not_canonical(f"{into}/x")) is not None:
        raise LimenError(f"cannot import into `{printable(into)}`: {reason}")
    if not folder.is_dir():
        raise LimenError(f"cannot import from `{printable(str(folder))}`: it is not a folder")
    yield from _documents_under(folder, into, tell)


def import_documents(
    found: Iterable[tuple[str, str]], documents: Documents, tell: Tell, *, author: str, at: datetime
) -> int:
    """Write each document whose text is not the latest version already, and count those."""
    written = 0
    for path, text in found:
        current = documents.read_document(path)
        if current is not None and current.digest == digest_bytes(text.encode()):
            tell(Seen(path, "unchanged"))
            continue
        documents.write_document(path, text, author, at)
        written += 1
        tell(Seen(path, "written"))
    return written


def tickets_in(csv_path: Path, tell: Tell) -> Iterator[NewTicket]:
    """Yield the ticket of each line of a CSV file in UTF-8.

    The first line is `id,subject,status,assignee,requester`; the last two may be empty. A line
    that makes no ticket is told as `skipped`, under the name `line N`.

    Raises:
        LimenError: the file cannot be read as CSV, or its first line is another.
    """
    name = printable(str(csv_path))
    try:
        with csv_path.open(encoding="utf-8-sig", newline="") as file:
            yield from _tickets_of(file, name, tell)
    except UnicodeDecodeError as error:
        raise LimenError(f"cannot import tickets from `{name}`: it is not UTF-8") from error
    except OSError as error:
        raise LimenError(f"cannot import tickets from `{name}`: {error.strerror}") from error


def import_tickets(found: Iterable[NewTicket], tickets: Tickets, tell: Tell) -> int:
    """Add each ticket whose id is not taken, and count those. A taken id is told as `unchanged`."""
    written = 0
    for new in found:
        if new.add_to(tickets):
            written += 1
            tell(Seen(new.id, "written"))
        else:
            tell(Seen(new.id, "unchanged"))
    return written


def printable(name: str) -> str:
    """Return a name with every character that a terminal would act on or hide written out."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in name
    )


def _documents_under(folder: Path, into: str, tell: Tell) -> Iterator[tuple[str, str]]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        tell(Seen(printable(into), "skipped", f"the folder cannot be read: {error.strerror}"))
        return
    for entry in entries:
        path = f"{into}/{entry.name}"
        try:
            _check_name(entry, path)
            if entry.is_dir(follow_symlinks=False):
                yield from _documents_under(Path(entry.path), path, tell)
                continue
            text = _text_of(entry)
        except _SkippedError as skipped:
            tell(Seen(printable(path), "skipped", str(skipped)))
        else:
            yield path, text


def _check_name(entry: os.DirEntry[str], path: str) -> None:
    if entry.name.startswith("."):
        raise _SkippedError("it is hidden")
    if entry.is_symlink():
        raise _SkippedError("it is a symbolic link")
    below = f"{path}/x" if entry.is_dir(follow_symlinks=False) else path
    if (reason := why_not_canonical(below)) is not None:
        raise _SkippedError(f"its path is not canonical: {reason}")


def _text_of(entry: os.DirEntry[str]) -> str:
    if Path(entry.name).suffix.lower() not in TEXT_SUFFIXES:
        raise _SkippedError("its name does not end like a text file's")
    try:
        raw = _read(entry.path)
    except OSError as error:
        raise _SkippedError(f"it cannot be read: {error.strerror}") from error
    if len(raw) > MAX_FILE:
        raise _SkippedError(f"it is larger than {MAX_FILE} bytes")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _SkippedError("it is not UTF-8") from error
    if "\0" in text:
        raise _SkippedError("it has a NUL character")
    return text


def _read(path: str) -> bytes:
    # Another process may swap the entry for a link or a pipe after it was looked at: neither is
    # followed, and neither can make us wait.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _SkippedError("it is not a regular file")
        return file.read(MAX_FILE + 1)


def _tickets_of(file: TextIO, name: str, tell: Tell) -> Iterator[NewTicket]:
    numbered = _numbered(file, name)
    _, header = next(numbered, (1, []))
    if header != HEADER:
        raise LimenError(
            f"cannot import tickets from `{name}`: its first line is not `{','.join(HEADER)}`"
        )
    first_lines: dict[str, int] = {}
    for number, fields in numbered:
        if not fields:
            continue
        try:
            new = _ticket_of(fields)
            if new.id in first_lines:
                raise _SkippedError(f"id `{new.id}` stands on line {first_lines[new.id]} already")
        except _SkippedError as skipped:
            tell(Seen(f"line {number}", "skipped", str(skipped)))
        else:
            first_lines[new.id] = number
            yield new


def _numbered(file: TextIO, name: str) -> Iterator[tuple[int, list[str]]]:
    # A quoted field may hold line breaks, so a record's number is that of its first line.
    records = csv.reader(file, strict=True)
    number = 1
    try:
        for fields in records:
            yield number, fields
            number = records.line_num + 1
    except csv.Error as error:
        raise LimenError(
            f"cannot import tickets from `{name}`: line {number} is not CSV: {error}"
        ) from error


def _ticket_of(fields: list[str]) -> NewTicket:
    if len(fields) != len(HEADER):
        raise _SkippedError(f"it has {len(fields)} fields; {len(HEADER)} are needed")
    ticket_id, subject, status, assignee, requester = fields
    if not TICKET_ID.match(ticket_id):
        raise _SkippedError(f"id `{printable(ticket_id)[:40]}` is not `T-` and 1 to 10 digits")
    for field, text, limit in (("subject", subject, MAX_SUBJECT), ("status", status, MAX_STATUS)):
        if not text.strip():
            raise _SkippedError(f"`{field}` is empty")
        if len(text) > limit:
            raise _SkippedError(
                f"`{field}` has {len(text)} characters; at most {limit} are allowed"
            )
        if not text.isprintable():
            raise _SkippedError(
                f"`{field}` has a line break or another character that is not shown"
            )
    for field, text in (("assignee", assignee), ("requester", requester)):
        if not text.isprintable() or text != text.strip():
            raise _SkippedError(f"`{field}` has a space around it or a character that is not shown")
    return NewTicket(ticket_id, subject, status, assignee or None, requester or None)
