import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from limen.errors import LimenError
from limen.servers.desk.importing import (
    MAX_FILE,
    NewTicket,
    Seen,
    documents_in,
    import_documents,
    import_tickets,
    tickets_in,
)
from limen.store.database import Database
from limen.store.desk import DeskTables

NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
HEADER = "id,subject,status,assignee,requester\n"


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[DeskTables]:
    database = Database(tmp_path / "limen.db")
    database.create()
    with database.writing() as connection:
        yield DeskTables(connection)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "own"
    made.mkdir()
    return made


def test_text_files_come_in_under_their_folders_in_order(folder: Path) -> None:
    (folder / "b.txt").write_bytes(b"\xef\xbb\xbfbee\r\n")
    (folder / "a").mkdir()
    (folder / "a" / "x.md").write_text("ex")
    (folder / "c.YAML").write_text("see: 1")
    seen: list[Seen] = []
    assert list(documents_in(folder, seen.append, into="team/support")) == [
        ("team/support/a/x.md", "ex"),
        ("team/support/b.txt", "bee\r\n"),
        ("team/support/c.YAML", "see: 1"),
    ]
    assert seen == []


def test_everything_left_out_is_told_with_its_reason(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("not ours")
    (folder / ".hidden.txt").write_text("x")
    (folder / ".git").mkdir()
    (folder / ".git" / "config.txt").write_text("x")
    (folder / "big.txt").write_bytes(b"x" * (MAX_FILE + 1))
    (folder / "dot.").mkdir()
    (folder / "image.png").write_bytes(b"x")
    (folder / "latin.txt").write_bytes(b"\xe9")
    (folder / "link.txt").symlink_to(outside)
    (folder / "linked").symlink_to(tmp_path)
    (folder / "nul.txt").write_bytes(b"a\0b")
    os.mkfifo(folder / "pipe.txt")
    (folder / "tab\t.txt").write_text("x")
    (folder / "u\u0308.txt").write_text("x")
    seen: list[Seen] = []
    assert list(documents_in(folder, seen.append)) == []
    assert {entry.name: entry.reason for entry in seen} == {
        "public/.hidden.txt": "it is hidden",
        "public/.git": "it is hidden",
        "public/big.txt": "it is larger than 1048576 bytes",
        "public/dot.": "its path is not canonical: a segment ends in a dot",
        "public/image.png": "its name does not end like a text file's",
        "public/latin.txt": "it is not UTF-8",
        "public/link.txt": "it is a symbolic link",
        "public/linked": "it is a symbolic link",
        "public/nul.txt": "it has a NUL character",
        "public/pipe.txt": "it is not a regular file",
        "public/tab\\t.txt": (
            "its path is not canonical: it has a control, invisible or unassigned character"
        ),
        "public/u\u0308.txt": "its path is not canonical: it is not in Unicode form NFC",
    }
    assert {entry.outcome for entry in seen} == {"skipped"}


def test_a_file_of_exactly_the_largest_size_comes_in(folder: Path) -> None:
    (folder / "big.txt").write_bytes(b"x" * MAX_FILE)
    seen: list[Seen] = []
    assert [path for path, _ in documents_in(folder, seen.append)] == ["public/big.txt"]


@pytest.mark.parametrize("into", ["", "team", "elsewhere", "public/../private", "/public"])
def test_nothing_is_imported_into_what_is_no_folder_of_the_desk(folder: Path, into: str) -> None:
    with pytest.raises(LimenError, match="cannot import into"):
        list(documents_in(folder, print, into=into))


def test_a_folder_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LimenError, match="it is not a folder"):
        list(documents_in(tmp_path / "nowhere", print))


def test_an_unchanged_document_is_not_written_again(folder: Path, tables: DeskTables) -> None:
    (folder / "a.txt").write_text("one")
    (folder / "b.txt").write_text("one")
    seen: list[Seen] = []

    def run() -> int:
        found = documents_in(folder, seen.append)
        return import_documents(found, tables, seen.append, author="owner", at=NOON)

    assert run() == 2
    (folder / "b.txt").write_text("two")
    assert run() == 1
    assert [(s.name, s.outcome) for s in seen] == [
        ("public/a.txt", "written"),
        ("public/b.txt", "written"),
        ("public/a.txt", "unchanged"),
        ("public/b.txt", "written"),
    ]
    kept = tables.read_document("public/a.txt")
    changed = tables.read_document("public/b.txt")
    assert kept is not None
    assert kept.version == 1
    assert changed is not None
    assert (changed.version, changed.content, changed.author) == (2, "two", "owner")


def test_tickets_come_from_the_lines_of_a_csv_file(tmp_path: Path, tables: DeskTables) -> None:
    file = tmp_path / "tickets.csv"
    file.write_text("\ufeff" + HEADER + 'T-1,"Door, stuck",open,local,\n\nT-2,Lamp,closed,,ann\n')
    seen: list[Seen] = []
    found = list(tickets_in(file, seen.append))
    assert found == [
        NewTicket("T-1", "Door, stuck", "open", "local", None),
        NewTicket("T-2", "Lamp", "closed", None, "ann"),
    ]
    assert import_tickets(found, tables, seen.append) == 2
    assert import_tickets(found, tables, seen.append) == 0
    assert [(s.name, s.outcome) for s in seen] == [
        ("T-1", "written"),
        ("T-2", "written"),
        ("T-1", "unchanged"),
        ("T-2", "unchanged"),
    ]


def test_each_line_that_makes_no_ticket_is_told_by_its_number(tmp_path: Path) -> None:
    file = tmp_path / "tickets.csv"
    file.write_text(
        HEADER
        + "T-1,Door,open,local,ann\n"
        + "T-2,Door,open\n"
        + "X-3,Door,open,,\n"
        + '"T-4","Door\nstuck",open,,\n'
        + "T-5,,open,,\n"
        + "T-6,Door,,,\n"
        + "T-1,Again,open,,\n"
        + f"T-7,{'s' * 201},open,,\n"
        + "T-8,Door,open, local,\n"
        + "T-9,Door,open,,\n"
    )
    seen: list[Seen] = []
    assert [new.id for new in tickets_in(file, seen.append)] == ["T-1", "T-9"]
    assert [(s.name, s.reason) for s in seen] == [
        ("line 3", "it has 3 fields; 5 are needed"),
        ("line 4", "id `X-3` is not `T-` and 1 to 10 digits"),
        ("line 5", "`subject` has a line break or another character that is not shown"),
        ("line 7", "`subject` is empty"),
        ("line 8", "`status` is empty"),
        ("line 9", "id `T-1` stands on line 2 already"),
        ("line 10", "`subject` has 201 characters; at most 200 are allowed"),
        ("line 11", "`assignee` has a space around it or a character that is not shown"),
    ]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "its first line is not `id,subject,status,assignee,requester`"),
        (b"id,subject\n", "its first line is not"),
        (HEADER.encode() + b"T-1,\xff,open,,\n", "it is not UTF-8"),
        (HEADER.encode() + b'T-1,"Door"x,open,,\n', "line 2 is not CSV"),
    ],
)
def test_a_file_that_is_no_such_csv_is_an_error(tmp_path: Path, raw: bytes, message: str) -> None:
    file = tmp_path / "tickets.csv"
    file.write_bytes(raw)
    with pytest.raises(LimenError, match=message):
        list(tickets_in(file, print))


def test_a_csv_file_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LimenError, match="No such file"):
        list(tickets_in(tmp_path / "nowhere.csv", print))
