import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pytest

from limen.errors import LimenError
from limen.store.merkle import EMPTY_ROOT, Frontier, MerkleError, leaf_hash, root_of
from limen.store.note import Checkpoint, NoteError, NoteSigner, format_proof, parse_proof
from limen.store.verify import Finding, VerifyError, check_proof, prove, verify

SCHEMA = """
CREATE TABLE audit_entry(seq INTEGER PRIMARY KEY, id TEXT NOT NULL, state TEXT NOT NULL,
    body TEXT NOT NULL, leaf BLOB NOT NULL);
CREATE TABLE audit_checkpoint(size INTEGER PRIMARY KEY, note TEXT NOT NULL);
CREATE TABLE audit_head(only INTEGER PRIMARY KEY CHECK (only = 0), size INTEGER NOT NULL,
    frontier BLOB NOT NULL, note TEXT NOT NULL);
"""
ROWS = 25
"""Rows of a trail here. Checkpoints are kept at 10 and 20."""


def body_of(seq: int, call: str = "", **more: object) -> str:
    entry = {"seq": seq, "id": call or f"call-{seq}", "state": "done", "who": "ü", **more}
    return json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def leaf_of(body: str) -> bytes:
    return sha256(b"\x00" + body.encode()).digest()


@dataclass
class Trail:
    path: Path
    signer: NoteSigner

    def change(self, *statements: str, **values: object) -> None:
        with closing(sqlite3.connect(self.path)) as connection:
            for statement in statements:
                connection.execute(statement, values)
            connection.commit()

    def note(self, size: int, signer: NoteSigner | None = None) -> str:
        """Sign the rows as they stand now."""
        with closing(sqlite3.connect(self.path)) as connection:
            rows = connection.execute("SELECT leaf FROM audit_entry ORDER BY seq LIMIT ?", (size,))
            root = root_of([leaf for (leaf,) in rows])
        by = signer or self.signer
        return by.sign(Checkpoint(by.origin, size, root).text())

    def rewrite(self, seq: int, body: str) -> None:
        values = {"seq": seq, "body": body, "leaf": leaf_of(body)}
        self.change("UPDATE audit_entry SET body = :body, leaf = :leaf WHERE seq = :seq", **values)

    def set_head(self, size: int, signer: NoteSigner | None = None) -> None:
        frontier = Frontier()
        for seq in range(size):
            frontier.append(leaf_of(body_of(seq)))
        self.change(
            "UPDATE audit_head SET size = :size, frontier = :frontier, note = :note",
            size=size,
            frontier=frontier.to_bytes(),
            note=self.note(size, signer),
        )

    def finding(self, *published: str) -> Finding:
        report = verify(self.path, expected_vkey=self.signer.vkey, published=published)
        assert report.finding is not None
        assert not report.ok
        assert "\n" not in report.finding.message
        assert not report.finding.message.endswith(".")
        return report.finding


def write_trail(path: Path, signer: NoteSigner, rows: int, every: int) -> Trail:
    frontier = Frontier()
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(SCHEMA)
        for seq in range(rows):
            body = body_of(seq)
            connection.execute(
                "INSERT INTO audit_entry VALUES (?, ?, 'done', ?, ?)",
                (seq, f"call-{seq}", body, leaf_of(body)),
            )
            frontier.append(leaf_of(body))
            note = signer.sign(Checkpoint(signer.origin, frontier.size, frontier.root()).text())
            if frontier.size % every == 0:
                connection.execute(
                    "INSERT INTO audit_checkpoint VALUES (?, ?)", (frontier.size, note)
                )
            connection.execute(
                "REPLACE INTO audit_head VALUES (0, ?, ?, ?)",
                (frontier.size, frontier.to_bytes(), note),
            )
        connection.commit()
    return Trail(path, signer)


@pytest.fixture
def signer(tmp_path: Path) -> NoteSigner:
    return NoteSigner.load_or_create(tmp_path / "audit.key", "limen.example/audit")


@pytest.fixture
def thief(tmp_path: Path) -> NoteSigner:
    """Somebody with a key of that name who is not the owner."""
    return NoteSigner.load_or_create(tmp_path / "thief.key", "limen.example/audit")


@pytest.fixture
def trail(tmp_path: Path, signer: NoteSigner) -> Trail:
    return write_trail(tmp_path / "copy.db", signer, ROWS, every=10)


def test_an_untouched_trail_is_good_and_left_untouched(trail: Trail) -> None:
    before = trail.path.read_bytes()
    files = sorted(os.listdir(trail.path.parent))
    published = [trail.note(0), trail.note(7), trail.note(20), trail.note(ROWS)]
    report = verify(trail.path, expected_vkey=trail.signer.vkey, published=published)
    assert report.finding is None
    assert report.ok
    assert (report.rows, report.size, report.checkpoints) == (ROWS, ROWS, 3 + len(published))
    assert report.root == root_of([leaf_of(body_of(seq)) for seq in range(ROWS)])
    assert trail.path.read_bytes() == before
    assert sorted(os.listdir(trail.path.parent)) == files


def test_a_trail_in_which_nothing_was_written_yet_is_good(trail: Trail) -> None:
    trail.change("DELETE FROM audit_entry", "DELETE FROM audit_checkpoint")
    trail.change("DELETE FROM audit_head")
    report = verify(trail.path, expected_vkey=trail.signer.vkey)
    assert (report.ok, report.rows, report.size, report.root) == (True, 0, 0, EMPTY_ROOT)


def test_progress_is_told_up_to_the_last_row(trail: Trail) -> None:
    told: list[int] = []
    verify(trail.path, expected_vkey=trail.signer.vkey, progress=told.append)
    assert told == sorted(told)
    assert told[-1] == ROWS


def test_an_edited_body_is_named(trail: Trail) -> None:
    edited = body_of(13, who="mallory")
    trail.change("UPDATE audit_entry SET body = :body WHERE seq = 13", body=edited)
    assert trail.finding() == Finding(
        "edited",
        "row `13` was edited: its body does not hash to its leaf",
        seq=13,
        id="call-13",
    )


def test_a_report_says_what_was_good_before_the_finding(trail: Trail) -> None:
    trail.change("UPDATE audit_entry SET body = '{}' WHERE seq = 13")
    report = verify(trail.path, expected_vkey=trail.signer.vkey)
    assert (report.rows, report.checkpoints, report.size) == (13, 1, 10)
    assert report.root == root_of([leaf_of(body_of(seq)) for seq in range(10)])


@pytest.mark.parametrize("column", ["id", "state", "leaf"])
def test_an_edited_column_beside_the_body_is_named(trail: Trail, column: str) -> None:
    value = bytes(32) if column == "leaf" else "call-99"
    trail.change(f"UPDATE audit_entry SET {column} = :value WHERE seq = 24", value=value)
    finding = trail.finding()
    assert (finding.kind, finding.seq) == ("edited", 24)


@pytest.mark.parametrize("gone", [[0], [13], [13, 14, 15], [9, 20], [23]])
def test_a_deleted_row_is_named_missing(trail: Trail, gone: list[int]) -> None:
    for seq in gone:
        trail.change("DELETE FROM audit_entry WHERE seq = :seq", seq=seq)
    finding = trail.finding()
    assert (finding.kind, finding.seq, finding.id) == ("missing", gone[0], None)


def test_a_deleted_row_is_found_though_the_others_were_renumbered(trail: Trail) -> None:
    trail.change(
        "DELETE FROM audit_entry WHERE seq = 13",
        "UPDATE audit_entry SET seq = -seq WHERE seq > 13",
        "UPDATE audit_entry SET seq = -seq - 1 WHERE seq < 0",
    )
    finding = trail.finding()
    assert (finding.kind, finding.seq, finding.id) == ("reordered", 13, "call-14")
    assert finding.message == "row `13` holds the entry of seq `14`"


def test_rows_that_changed_places_are_named_by_the_first(trail: Trail) -> None:
    trail.change(
        "UPDATE audit_entry SET seq = -1 WHERE seq = 3",
        "UPDATE audit_entry SET seq = 3 WHERE seq = 17",
        "UPDATE audit_entry SET seq = 17 WHERE seq = -1",
    )
    finding = trail.finding()
    assert (finding.kind, finding.seq, finding.id) == ("reordered", 3, "call-17")


def test_bodies_that_changed_places_are_named_by_the_first(trail: Trail) -> None:
    for seq, other in ((17, 3), (3, 17)):
        trail.change(
            "UPDATE audit_entry SET body = :body WHERE seq = :seq", seq=seq, body=body_of(other)
        )
    finding = trail.finding()
    assert (finding.kind, finding.seq) == ("reordered", 3)
    assert finding.message == "row `3` holds the body of row `17`"


@pytest.mark.parametrize("left", [0, 1, 10, 19, 20, 24])
def test_rows_cut_off_at_the_end_are_named_by_the_first(trail: Trail, left: int) -> None:
    trail.change("DELETE FROM audit_entry WHERE seq >= :left", left=left)
    finding = trail.finding()
    assert (finding.kind, finding.seq) == ("truncated", left)


def test_a_head_set_back_with_its_rows_is_found_by_a_kept_checkpoint(trail: Trail) -> None:
    trail.change("DELETE FROM audit_entry WHERE seq >= 15")
    trail.set_head(15)
    finding = trail.finding()
    assert (finding.kind, finding.seq) == ("truncated", 15)
    assert "checkpoint of size `20`" in finding.message


def test_a_whole_history_cut_short_is_found_by_a_published_checkpoint(trail: Trail) -> None:
    published = trail.note(24)
    trail.change("DELETE FROM audit_entry WHERE seq >= 15")
    trail.change("DELETE FROM audit_checkpoint WHERE size >= 15")
    trail.set_head(15)
    assert verify(trail.path, expected_vkey=trail.signer.vkey).ok
    finding = trail.finding(published)
    assert (finding.kind, finding.seq) == ("truncated", 15)
    assert "published checkpoint of size `24`" in finding.message


def test_a_wiped_trail_is_found_by_a_published_checkpoint(trail: Trail) -> None:
    published = trail.note(1)
    for table in ("audit_entry", "audit_checkpoint", "audit_head"):
        trail.change(f"DELETE FROM {table}")
    finding = trail.finding(published)
    assert (finding.kind, finding.seq) == ("truncated", 0)


def test_an_unsigned_larger_checkpoint_does_not_make_a_trail_truncated(
    trail: Trail, thief: NoteSigner
) -> None:
    note = thief.sign(Checkpoint(thief.origin, 40, bytes(32)).text())
    trail.change("INSERT INTO audit_checkpoint VALUES (40, :note)", note=note)
    finding = trail.finding()
    assert (finding.kind, finding.after_size, finding.up_to_size) == ("bad_signature", 25, 40)


def test_rows_beyond_the_head_are_forged(trail: Trail, thief: NoteSigner) -> None:
    for seq in (25, 26):
        trail.change(
            "INSERT INTO audit_entry VALUES (:seq, 'call-x', 'done', :body, :leaf)",
            seq=seq,
            body=body_of(seq, "call-x"),
            leaf=leaf_of(body_of(seq, "call-x")),
        )
    finding = trail.finding()
    assert (finding.kind, finding.seq, finding.id) == ("forged", 25, "call-x")
    trail.change("INSERT INTO audit_checkpoint VALUES (26, :note)", note=trail.note(26, thief))
    assert trail.finding() == finding


def test_a_row_before_the_first_is_forged(trail: Trail) -> None:
    trail.change("INSERT INTO audit_entry VALUES (-1, 'call-x', 'done', '{}', x'00')")
    finding = trail.finding()
    assert (finding.kind, finding.seq, finding.id) == ("forged", -1, "call-x")


def test_an_old_head_put_back_before_signed_rows_is_a_mismatch(trail: Trail) -> None:
    trail.set_head(15)
    finding = trail.finding()
    assert (finding.kind, finding.after_size, finding.up_to_size) == ("head_mismatch", 15, 20)


@pytest.mark.parametrize(
    ("seq", "after_size", "up_to_size"), [(0, 0, 10), (10, 10, 20), (19, 10, 20), (24, 20, 25)]
)
def test_a_body_forged_with_its_leaf_lies_between_two_checkpoints(
    trail: Trail, seq: int, after_size: int, up_to_size: int
) -> None:
    trail.rewrite(seq, body_of(seq, who="mallory"))
    finding = trail.finding()
    assert (finding.kind, finding.seq) == ("forged", None)
    assert (finding.after_size, finding.up_to_size) == (after_size, up_to_size)


def test_a_published_checkpoint_narrows_the_interval(trail: Trail) -> None:
    published = [trail.note(16), trail.note(12)]
    trail.rewrite(14, body_of(14, who="mallory"))
    finding = trail.finding(*published)
    assert (finding.kind, finding.after_size, finding.up_to_size) == ("forged", 12, 16)
    assert finding.message == (
        "published checkpoint of size `16` signs another root: "
        "a row from `12` to `15` was rewritten together with its leaf"
    )


def test_a_history_signed_anew_with_the_stolen_key_is_found_by_a_published_checkpoint(
    trail: Trail,
) -> None:
    published = trail.note(18)
    trail.rewrite(14, body_of(14, who="mallory"))
    leaves = Frontier()
    for seq in range(ROWS):
        leaves.append(leaf_of(body_of(seq, who="mallory") if seq == 14 else body_of(seq)))
    trail.change("UPDATE audit_checkpoint SET note = :note WHERE size = 20", note=trail.note(20))
    trail.change(
        "UPDATE audit_head SET frontier = :frontier, note = :note",
        frontier=leaves.to_bytes(),
        note=trail.note(ROWS),
    )
    assert verify(trail.path, expected_vkey=trail.signer.vkey).ok
    finding = trail.finding(published)
    assert (finding.kind, finding.after_size, finding.up_to_size) == ("forged", 10, 18)


def test_a_history_signed_anew_with_another_key_has_bad_signatures(
    trail: Trail, thief: NoteSigner
) -> None:
    trail.rewrite(4, body_of(4, who="mallory"))
    trail.change("UPDATE audit_checkpoint SET note = :n WHERE size = 10", n=trail.note(10, thief))
    finding = trail.finding()
    assert (finding.kind, finding.after_size, finding.up_to_size) == ("bad_signature", 0, 10)


def test_a_published_checkpoint_of_another_key_is_a_bad_signature(
    trail: Trail, thief: NoteSigner
) -> None:
    finding = trail.finding(trail.note(12, thief))
    assert (finding.kind, finding.up_to_size) == ("bad_signature", 12)
    assert finding.message.startswith("published checkpoint of size `12` does not verify: ")


def test_a_good_signature_over_another_size_does_not_pass(trail: Trail) -> None:
    trail.change("UPDATE audit_checkpoint SET size = 15 WHERE size = 10")
    finding = trail.finding()
    assert (finding.kind, finding.message) == ("forged", "checkpoint of size `15` signs size `10`")


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("DELETE FROM audit_head", "head_mismatch"),
        ("UPDATE audit_head SET frontier = zeroblob(96)", "head_mismatch"),
        ("UPDATE audit_head SET frontier = x''", "head_mismatch"),
        ("UPDATE audit_head SET size = 24", "head_mismatch"),
        ("UPDATE audit_head SET size = -1", "head_mismatch"),
        ("UPDATE audit_head SET size = 26", "head_mismatch"),
        ("UPDATE audit_head SET note = ''", "bad_signature"),
        ("UPDATE audit_head SET note = replace(note, '25', '24')", "bad_signature"),
        ("UPDATE audit_head SET note = (SELECT note FROM audit_checkpoint)", "head_mismatch"),
        ("UPDATE audit_head SET note = x'00'", "unreadable"),
        ("UPDATE audit_head SET size = 'many'", "unreadable"),
    ],
)
def test_a_head_that_is_not_that_of_the_rows_is_found(
    trail: Trail, statement: str, kind: str
) -> None:
    trail.change(statement)
    assert trail.finding().kind == kind


@pytest.mark.parametrize(
    "body",
    [
        "",
        "not json",
        "[]",
        "null",
        "13",
        '{"id":"call-13","seq":13',
        '{"id":"call-13","state":"done"}',
        '{"id":"call-13","seq":13.0,"state":"done"}',
        '{"id":"call-13","seq":"13\\n","state":"done"}',
        '{"id":"call-13","seq":true,"state":"done"}',
        '{"seq":13,"id":"call-13","state":"done"}',
        '{"id": "call-13", "seq": 13, "state": "done"}',
        '{"id":"call-13","seq":12,"seq":13,"state":"done"}',
        '{"a":NaN,"id":"call-13","seq":13,"state":"done"}',
        '{"a":' + "[" * 5000 + "]" * 5000 + ',"id":"call-13","seq":13,"state":"done"}',
        '{"a":' + "[" * 500 + "]" * 500 + ',"id":"call-13","seq":13,"state":"done"}',
        '{"a":"\\ud800","id":"call-13","seq":13,"state":"done"}',
    ],
)
def test_a_body_that_is_not_canonical_json_is_unreadable(trail: Trail, body: str) -> None:
    trail.rewrite(13, body)
    finding = trail.finding()
    assert (finding.kind, finding.seq, finding.id) == ("unreadable", 13, "call-13")


@pytest.mark.parametrize("value", ["x'41'", "CAST(x'ff' AS TEXT)", "zeroblob(20000000)"])
@pytest.mark.parametrize("column", ["id", "state", "body"])
def test_a_value_of_the_wrong_type_is_unreadable(trail: Trail, column: str, value: str) -> None:
    trail.change(f"UPDATE audit_entry SET {column} = {value} WHERE seq = 13")
    finding = trail.finding()
    assert (finding.kind, finding.seq) == ("unreadable", 13)


def test_a_table_of_another_make_does_not_hide_a_null_or_a_second_row(trail: Trail) -> None:
    trail.change(
        "CREATE TABLE loose AS SELECT * FROM audit_entry",
        "DROP TABLE audit_entry",
        "ALTER TABLE loose RENAME TO audit_entry",
    )
    assert verify(trail.path, expected_vkey=trail.signer.vkey).ok
    trail.change("INSERT INTO audit_entry SELECT * FROM audit_entry WHERE seq = 13")
    finding = trail.finding()
    assert (finding.kind, finding.seq) == ("forged", 13)
    trail.change("UPDATE audit_entry SET leaf = NULL WHERE seq = 7")
    finding = trail.finding()
    assert (finding.kind, finding.seq, finding.id) == ("unreadable", 7, "call-7")
    trail.change("UPDATE audit_entry SET seq = NULL WHERE seq = 20")
    finding = trail.finding()
    assert (finding.kind, finding.seq, finding.id) == ("unreadable", 0, "call-20")


def test_loose_checkpoint_and_head_tables_are_findings(trail: Trail) -> None:
    trail.change(
        "CREATE TABLE loose AS SELECT * FROM audit_head",
        "DROP TABLE audit_head",
        "ALTER TABLE loose RENAME TO audit_head",
        "INSERT INTO audit_head SELECT * FROM audit_head",
    )
    assert trail.finding().kind == "head_mismatch"
    trail.change(
        "DELETE FROM audit_head WHERE rowid = 2",
        "DROP TABLE audit_checkpoint",
        "CREATE TABLE audit_checkpoint(size, note)",
        "INSERT INTO audit_checkpoint VALUES (NULL, 'x')",
    )
    assert trail.finding().kind == "unreadable"
    trail.change("UPDATE audit_checkpoint SET size = 10, note = x'41'")
    assert trail.finding().kind == "bad_signature"


@pytest.mark.parametrize("table", ["audit_entry", "audit_checkpoint", "audit_head"])
def test_a_missing_table_or_a_made_up_one_in_its_place_is_unreadable(
    trail: Trail, table: str
) -> None:
    trail.change(f"ALTER TABLE {table} RENAME TO kept")
    expected = Finding("unreadable", f"trail has no table `{table}`")
    assert trail.finding() == expected
    trail.change(f"CREATE VIEW {table} AS SELECT * FROM kept")
    assert trail.finding() == expected
    trail.change(f"DROP VIEW {table}", f"CREATE VIRTUAL TABLE {table} USING fts5(seq, size)")
    assert trail.finding() == expected


def test_a_file_that_is_no_database_is_unreadable(trail: Trail) -> None:
    trail.path.write_bytes(b"not a database, but long enough to be read" * 30)
    assert trail.finding() == Finding("unreadable", "trail cannot be read: file is not a database")


def test_an_empty_file_is_unreadable(trail: Trail) -> None:
    trail.path.write_bytes(b"")
    assert trail.finding() == Finding("unreadable", "trail has no table `audit_entry`")


@pytest.mark.parametrize("name", ["absent.db", "."])
def test_a_path_without_a_file_is_a_fault(trail: Trail, name: str) -> None:
    path = trail.path.parent / name
    with pytest.raises(VerifyError, match="there is no such file"):
        verify(path, expected_vkey=trail.signer.vkey)
    with pytest.raises(VerifyError, match="there is no such file"):
        prove(path, "call-1")


def test_a_damaged_file_is_never_good_with_other_rows_and_never_a_traceback(trail: Trail) -> None:
    def content() -> list[list[tuple[object, ...]]]:
        with closing(sqlite3.connect(f"{trail.path.as_uri()}?mode=ro", uri=True)) as connection:
            return [
                connection.execute("SELECT * FROM audit_entry ORDER BY seq").fetchall(),
                connection.execute("SELECT size, frontier, note FROM audit_head").fetchall(),
            ]

    whole = trail.path.read_bytes()
    before = content()
    bad = 0
    for at in range(0, len(whole), 29):
        trail.path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            good = verify(trail.path, expected_vkey=trail.signer.vkey).ok
        except LimenError:
            good = False
        bad += not good
        assert not good or content() == before
    assert bad > 100


@pytest.mark.parametrize("left", [100, 512, 4096, 10_000])
def test_a_file_cut_short_is_a_finding(trail: Trail, left: int) -> None:
    trail.path.write_bytes(trail.path.read_bytes()[:left])
    assert trail.finding().kind in ("unreadable", "truncated", "missing")


def test_rows_that_are_still_in_the_write_ahead_log_are_seen(trail: Trail) -> None:
    with closing(sqlite3.connect(trail.path)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("UPDATE audit_entry SET state = 'x' WHERE seq = 24")
        writer.commit()
        copy = trail.path.with_name("copy of a live one?#.db")
        for suffix in ("", "-wal"):
            shutil.copyfile(f"{trail.path}{suffix}", f"{copy}{suffix}")
        for path in (trail.path, copy):
            finding = verify(path, expected_vkey=trail.signer.vkey).finding
            assert finding is not None
            assert (finding.kind, finding.seq) == ("edited", 24)


def test_without_a_key_all_else_is_checked_and_the_report_is_never_ok(
    trail: Trail, thief: NoteSigner
) -> None:
    report = verify(trail.path, expected_vkey=None)
    assert (report.ok, report.rows, report.size) == (False, ROWS, ROWS)
    assert report.finding is not None
    assert report.finding.message == "signatures were not checked: no verifier key was given"
    trail.rewrite(14, body_of(14, who="mallory"))
    finding = verify(trail.path, expected_vkey=None).finding
    assert finding is not None
    assert (finding.kind, finding.after_size, finding.up_to_size) == ("forged", 10, 20)


def test_a_wrong_argument_is_a_fault_and_not_a_finding(trail: Trail) -> None:
    with pytest.raises(NoteError, match="text is not a verifier key"):
        verify(trail.path, expected_vkey="nonsense")
    with pytest.raises(VerifyError, match="published checkpoint cannot be read: note "):
        verify(trail.path, expected_vkey=trail.signer.vkey, published=["nonsense"])


def test_each_entry_of_a_call_is_proven_without_the_others(trail: Trail) -> None:
    with closing(sqlite3.connect(trail.path)) as connection:
        frontier = Frontier()
        for seq in range(ROWS):
            body = body_of(seq, "call-twice" if seq in (4, 21) else "")
            frontier.append(leaf_of(body))
            connection.execute(
                "UPDATE audit_entry SET id = json_extract(:b, '$.id'), body = :b, leaf = :l "
                "WHERE seq = :s",
                {"b": body, "l": leaf_of(body), "s": seq},
            )
        connection.commit()
    note = trail.note(ROWS)
    trail.change("UPDATE audit_head SET note = :note", note=note)
    proven = prove(trail.path, "call-twice")
    assert [body for body, _ in proven] == [body_of(seq, "call-twice").encode() for seq in (4, 21)]
    for (proven_body, proof), seq in zip(proven, (4, 21), strict=True):
        assert parse_proof(proof).index == seq
        checkpoint = check_proof(proof, proven_body, trail.signer.vkey)
        assert checkpoint == Checkpoint("limen.example/audit", ROWS, frontier.root())
        assert "call-5" not in proof


def test_a_proof_holds_for_its_own_body_and_key_alone(trail: Trail, thief: NoteSigner) -> None:
    [(body, proof)] = prove(trail.path, "call-13")
    [(other_body, other_proof)] = prove(trail.path, "call-14")
    for wrong in (other_body, body + b" ", b""):
        with pytest.raises(MerkleError, match="it leads to another root"):
            check_proof(proof, wrong, trail.signer.vkey)
    with pytest.raises(MerkleError):
        check_proof(proof.replace("index 13", "index 14"), body, trail.signer.vkey)
    with pytest.raises(NoteError, match="no signature by the expected key"):
        check_proof(proof, body, thief.vkey)
    with pytest.raises(NoteError, match="bad signature"):
        check_proof(proof.replace("\n25\n", "\n24\n"), body, trail.signer.vkey)
    with pytest.raises(NoteError, match="text is not a proof"):
        check_proof(other_proof[1:], other_body, trail.signer.vkey)
    forged = format_proof(0, [], thief.sign(Checkpoint(thief.origin, 1, leaf_hash(body)).text()))
    with pytest.raises(NoteError):
        check_proof(forged, body, trail.signer.vkey)


def edit_row(trail: Trail) -> None:
    trail.change("UPDATE audit_entry SET body = '{}' WHERE seq = 13")


def rewrite_other_row(trail: Trail) -> None:
    trail.rewrite(2, body_of(2, who="mallory"))


def cut_rows(trail: Trail) -> None:
    trail.change("DELETE FROM audit_entry WHERE seq > 20")


def damage_other_leaf(trail: Trail) -> None:
    trail.change("UPDATE audit_entry SET leaf = 'text' WHERE seq = 2")


def turn_body_to_bytes(trail: Trail) -> None:
    trail.change("UPDATE audit_entry SET body = CAST(body AS BLOB) WHERE seq = 13")


def drop_head(trail: Trail) -> None:
    trail.change("DELETE FROM audit_head")


def drop_table(trail: Trail) -> None:
    trail.change("DROP TABLE audit_head")


def blank_note(trail: Trail) -> None:
    trail.change("UPDATE audit_head SET note = 'x'")


def damage_file(trail: Trail) -> None:
    trail.path.write_bytes(b"x" * 5000)


@pytest.mark.parametrize(
    "tamper",
    [
        edit_row,
        rewrite_other_row,
        cut_rows,
        damage_other_leaf,
        turn_body_to_bytes,
        drop_head,
        drop_table,
        blank_note,
        damage_file,
    ],
)
def test_no_proof_comes_from_a_trail_that_does_not_agree_with_its_head(
    trail: Trail, tamper: Callable[[Trail], None]
) -> None:
    tamper(trail)
    with pytest.raises(VerifyError) as caught:
        prove(trail.path, "call-13")
    assert "\n" not in str(caught.value)


def test_a_call_that_is_not_in_the_trail_has_no_proof(trail: Trail) -> None:
    for row_id in ("call-99", "", "call-1'", "\udcff"):
        with pytest.raises(VerifyError, match="no entry has id `"):
            prove(trail.path, row_id)
