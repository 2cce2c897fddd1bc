"""Check a copy of the audit trail offline, and prove single entries of it to third parties.

What is compared, in the order of the log, so that the first bad thing is the one reported:

    each row          seq without gaps; body hashes to leaf; body's seq, id, state are the columns
    each checkpoint   signed by the expected key; its root is the root over the rows so far
    each published    the same, for notes that the owner kept elsewhere
    the head          the same, and its frontier; nothing lies beyond it

Who can write the file but lacks the signing key can change no row unseen, but can cut the trail
back to a checkpoint that it holds, or wipe it: an empty trail is good. Who has the key too can sign
another history, and then the interval it gives starts no better than the key is. Only a published
checkpoint shows either.
"""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import orjson

from limen.errors import LimenError
from limen.store.merkle import (
    EMPTY_ROOT,
    HASH_SIZE,
    Frontier,
    MerkleError,
    inclusion_proof,
    leaf_hash,
    verify_inclusion,
)
from limen.store.note import (
    Checkpoint,
    NoteError,
    format_proof,
    open_checkpoint,
    parse_proof,
    parse_vkey,
    unverified_checkpoint,
)

PROGRESS_EVERY = 10_000
"""Rows. About 0.1 s of work between two calls of `progress`."""

MAX_CELL = 16 * 1024 * 1024
"""Bytes. A hostile file must not make us take more memory than that for one value."""

Kind = Literal[
    "edited",
    "missing",
    "reordered",
    "truncated",
    "forged",
    "bad_signature",
    "head_mismatch",
    "unreadable",
]

_ROWS = "SELECT seq, id, state, body, leaf FROM audit_entry ORDER BY seq"
_CHECKPOINTS = "SELECT size, note FROM audit_checkpoint ORDER BY size"
_HEAD = "SELECT size, frontier, note FROM audit_head LIMIT 2"
_HEAD_TYPES = [int, bytes, str]
_TABLES = ("audit_entry", "audit_checkpoint", "audit_head")
_UNREADABLE = (sqlite3.Error, UnicodeDecodeError)
"""The driver raises the second for an error message that quotes a damaged schema."""
_PLACE = {"checkpoint": 0, "published checkpoint": 1, "head": 2}


class VerifyError(LimenError):
    """Say why a copy cannot be looked at, or why an entry of it cannot be proven."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The first bad thing in a copy.

    `seq` names one row (for `missing` and `truncated`, the first that should be there). Where no
    row can be named, it lies in the interval of rows `after_size <= seq < up_to_size`.
    """

    kind: Kind
    message: str
    seq: int | None = None
    id: str | None = None
    after_size: int | None = None
    up_to_size: int | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What was found good, up to the finding if there is one.

    `rows` were read and are good in themselves; `checkpoints` agreed, the head and published ones
    among them; `size` and `root` are those of the largest checkpoint that agreed.
    """

    rows: int
    checkpoints: int
    ok: bool
    size: int
    root: bytes
    finding: Finding | None


@dataclass(frozen=True, slots=True)
class _Mark:
    """A size of the log at which somebody kept a signed root."""

    size: int
    source: str
    note: str | None
    frontier: bytes = b""

    def __lt__(self, other: _Mark) -> bool:
        return (self.size, _PLACE[self.source]) < (other.size, _PLACE[other.source])

    def __str__(self) -> str:
        return f"{self.source} of size `{self.size}`"


def verify(
    path: Path,
    *,
    expected_vkey: str | None,
    published: Sequence[str] = (),
    progress: Callable[[int], None] | None = None,
) -> Report:
    """Compare every row of a copy with every signed checkpoint, and report the first bad thing.

    Args:
        path: the SQLite file. It is opened read-only and never changed.
        expected_vkey: the key that signs the log. Without it all else is checked, and the report
            is never ok.
        published: checkpoint notes kept elsewhere; the log must extend each.
        progress: called with the number of rows done so far.

    Raises:
        NoteError: `expected_vkey` is no verifier key.
        VerifyError: there is no such file, or a published note is no checkpoint.
    """
    if expected_vkey is not None:
        parse_vkey(expected_vkey)
    marks = [_published(note) for note in published]
    with closing(_open(path)) as connection:
        walk = _Walk(connection, expected_vkey, progress)
        try:
            with closing(walk.entries):
                finding = walk.run(marks)
        except _UNREADABLE as error:
            seq = walk.unreadable_seq
            place = "trail" if seq is None else f"row `{seq}`"
            finding = Finding("unreadable", f"{place} cannot be read: {_cause(error)}", seq=seq)
    if finding is None and expected_vkey is None:
        # Fails closed: whoever rewrote the rows can have rewritten the checkpoints.
        message = "signatures were not checked: no verifier key was given"
        finding = Finding("bad_signature", message, after_size=0, up_to_size=walk.rows.size)
    return Report(
        rows=walk.rows.size,
        checkpoints=walk.checkpoints,
        ok=finding is None,
        size=walk.agreed_size,
        root=walk.agreed_root,
        finding=finding,
    )


def prove(path: Path, row_id: str) -> list[tuple[bytes, str]]:
    """Return body and proof text of each entry of one call, in the order of the log.

    The proofs lead to the head. Its signature is for whoever checks the proof to check.

    Raises:
        VerifyError: no entry has that id, or the trail does not agree with its own head.
    """
    with closing(_open(path)) as connection:
        try:
            heads = connection.execute(_HEAD).fetchall()
            # The plus keeps the index out: a damaged one must not hide an entry.
            entries = connection.execute(
                "SELECT seq, body FROM audit_entry WHERE +id = ? ORDER BY seq", (row_id,)
            ).fetchall()
            leaves = [
                leaf for (leaf,) in connection.execute("SELECT leaf FROM audit_entry ORDER BY seq")
            ]
        except _UNREADABLE as error:
            raise VerifyError(f"cannot read trail `{path}`: {_cause(error)}") from error
        except UnicodeEncodeError as error:
            raise VerifyError(f"no entry has id `{row_id!a}`: it is not UTF-8 text") from error
    if not entries:
        raise VerifyError(f"no entry has id `{row_id}`")
    if len(heads) != 1 or [*map(type, heads[0])] != _HEAD_TYPES:
        raise VerifyError(f"cannot prove entry `{row_id}`: the trail has no readable head")
    if any(type(leaf) is not bytes or len(leaf) != HASH_SIZE for leaf in leaves):
        raise VerifyError(f"cannot prove entry `{row_id}`: the trail has a leaf that is no hash")
    try:
        note = heads[0][2]
        head = unverified_checkpoint(note)
        return [_proven(leaves, head, note, row) for row in entries]
    except (NoteError, MerkleError) as error:
        raise VerifyError(
            f"cannot prove entry `{row_id}`: the trail does not agree with its head: {error}"
        ) from error


def check_proof(proof_text: str, row_body: bytes, expected_vkey: str) -> Checkpoint:
    """Return the signed checkpoint whose log holds exactly this body; else raise.

    Needs nothing but its arguments, and sees no other entry.

    Raises:
        NoteError: the text is no proof, or the expected key has not signed its checkpoint.
        MerkleError: the body is not the entry that the proof is for.
    """
    proof = parse_proof(proof_text)
    checkpoint = open_checkpoint(proof.checkpoint_note, expected_vkey)
    verify_inclusion(
        leaf_hash(row_body),
        proof.index,
        checkpoint.size,
        proof.hashes,
        expected_root=checkpoint.root,
    )
    return checkpoint


def _proven(
    leaves: Sequence[bytes], head: Checkpoint, note: str, row: tuple[Any, ...]
) -> tuple[bytes, str]:
    seq, text = row
    if type(seq) is not int or type(text) is not str:
        raise MerkleError(f"row `{seq}` has a value of the wrong type")
    if len(leaves) != head.size:
        raise MerkleError(f"it has {len(leaves)} rows and a head of size `{head.size}`")
    hashes = inclusion_proof(leaves, seq)
    body = text.encode()
    verify_inclusion(leaf_hash(body), seq, head.size, hashes, expected_root=head.root)
    return body, format_proof(seq, hashes, note)


def _published(note: str) -> _Mark:
    try:
        return _Mark(unverified_checkpoint(note).size, "published checkpoint", note)
    except NoteError as error:
        raise VerifyError(f"published checkpoint cannot be read: {error}") from error


class _Walk:
    """One pass over a copy, with what was found good on the way. For one use."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        expected_vkey: str | None,
        progress: Callable[[int], None] | None,
    ) -> None:
        self.connection = connection
        self.expected_vkey = expected_vkey
        self.progress = progress
        self.entries = self._entries()
        self.unreadable_seq: int | None = None
        self.rows = Frontier()
        self.checkpoints = 0
        self.agreed_size = 0
        self.agreed_root = EMPTY_ROOT

    def run(self, published: list[_Mark]) -> Finding | None:
        """Walk the whole log. Lets errors of the driver through, wherever they come from."""
        missing_table = _missing_table(self.connection)
        if missing_table is not None:
            return Finding("unreadable", f"trail has no table `{missing_table}`")
        head = self._head()
        if isinstance(head, Finding):
            return head
        apart = sorted(published if head is None else [*published, head])
        marks = heapq.merge(self._kept(), apart)
        for mark in marks:
            finding = self._rows_up_to(mark.size)
            if finding is None and self.rows.size < mark.size:
                return self._too_short([mark, *marks])
            finding = finding or self._compare(mark)
            if finding is not None:
                return finding
            if mark.source == "head":
                return self._beyond_head(marks)
        return self._without_head()

    def _entries(self) -> Generator[tuple[Any, ...], None, None]:
        try:
            yield from self.connection.execute(_ROWS)
        except _UNREADABLE:
            self.unreadable_seq = self.rows.size + self._is_readable(self.rows.size)
            raise

    def _is_readable(self, seq: int) -> bool:
        # The driver reads one row ahead, so that the one in hand is lost with the next.
        try:
            one = self.connection.execute(
                "SELECT seq, id, state, body, leaf FROM audit_entry WHERE seq = ?", (seq,)
            ).fetchone()
            return one is not None
        except _UNREADABLE:
            return False

    def _rows_up_to(self, size: int) -> Finding | None:
        """Read rows until there are `size` or no more, and check each in itself."""
        while (before := self.rows.size) < size:
            for row in islice(self.entries, min(PROGRESS_EVERY, size - before)):
                finding = self._row(row)
                if finding is not None:
                    return finding
            if self.rows.size == before:
                break
            if self.progress is not None:
                self.progress(self.rows.size)
        return None

    def _row(self, row: tuple[Any, ...]) -> Finding | None:
        expected_seq = self.rows.size
        seq, row_id, state, text, leaf = row
        # `type`, because SQLite lets any column hold anything, and true is equal to 1.
        if (
            type(seq) is not int
            or type(row_id) is not str
            or type(state) is not str
            or type(text) is not str
            or type(leaf) is not bytes
        ):
            return _at(row, "unreadable", "has a value of the wrong type", expected_seq)
        if seq != expected_seq:
            return self._out_of_step(row, expected_seq)
        body = text.encode()
        if leaf_hash(body) != leaf:
            return self._edited(row)
        entry = _canonical_object(body)
        if entry is None:
            return _at(row, "unreadable", "has a body that is not one canonical JSON object", seq)
        claimed_seq = entry.get("seq")
        # `type`, because true and 1.0 are equal to 1.
        if type(claimed_seq) is not int:
            return _at(row, "unreadable", "has a body without a seq", seq)
        if claimed_seq != seq:
            return _at(row, "reordered", f"holds the entry of seq `{claimed_seq}`", seq)
        if entry.get("id") != row_id or entry.get("state") != state:
            return _at(row, "edited", "was edited: its id or state is not its body's", seq)
        self.rows.append(leaf)
        return None

    def _out_of_step(self, row: tuple[Any, ...], expected_seq: int) -> Finding:
        seq = row[0]
        if seq > expected_seq:
            message = f"row `{expected_seq}` is missing: the next is row `{seq}`"
            return Finding("missing", message, seq=expected_seq)
        return _at(row, "forged", "was added: its seq is negative or there twice", seq)

    def _edited(self, row: tuple[Any, ...]) -> Finding:
        """Tell a body of its own from the untouched body of another row."""
        seq, body = row[0], row[3].encode()
        entry = _canonical_object(body) or {}
        claimed_seq = entry.get("seq")
        if type(claimed_seq) is int and 0 <= claimed_seq < 2**63 and claimed_seq != seq:
            other = self.connection.execute(
                "SELECT leaf FROM audit_entry WHERE seq = ?", (claimed_seq,)
            ).fetchone()
            if other is not None and other[0] == leaf_hash(body):
                return _at(row, "reordered", f"holds the body of row `{claimed_seq}`", seq)
        return _at(row, "edited", "was edited: its body does not hash to its leaf", seq)

    def _signed(self, mark: _Mark) -> Checkpoint:
        """Return the checkpoint of a mark, once its signature is found good."""
        if mark.note is None:
            raise NoteError("note is not text")
        if self.expected_vkey is None:
            return unverified_checkpoint(mark.note)
        return open_checkpoint(mark.note, self.expected_vkey)

    def _is_signed(self, mark: _Mark) -> bool:
        try:
            return self._signed(mark).size == mark.size
        except NoteError:
            return False

    def _compare(self, mark: _Mark) -> Finding | None:
        """Compare one signed root with the rows so far, which are as many."""
        try:
            checkpoint = self._signed(mark)
        except NoteError as error:
            return self._between("bad_signature", f"{mark} does not verify: {error}", mark)
        mismatch: Kind = "head_mismatch" if mark.source == "head" else "forged"
        if checkpoint.size != mark.size:
            return self._between(mismatch, f"{mark} signs size `{checkpoint.size}`", mark)
        if checkpoint.root != self.rows.root():
            rows = f"a row from `{self.agreed_size}` to `{mark.size - 1}`"
            message = f"{mark} signs another root: {rows} was rewritten together with its leaf"
            return self._between("forged", message, mark)
        if mark.source == "head" and mark.frontier != self.rows.to_bytes():
            message = f"{mark} has another frontier than that of the rows"
            return self._between("head_mismatch", message, mark)
        self.checkpoints += 1
        self.agreed_size = mark.size
        self.agreed_root = checkpoint.root
        return None

    def _between(self, kind: Kind, message: str, mark: _Mark) -> Finding:
        return Finding(kind, message, after_size=self.agreed_size, up_to_size=mark.size)

    def _too_short(self, beyond: Sequence[_Mark]) -> Finding | None:
        """Say that rows end before a signed size; or, if none is signed, that it is not."""
        rows = self.rows.size
        for mark in beyond:
            if self._is_signed(mark):
                message = f"row `{rows}` and all after it are missing: there is a {mark}"
                return Finding("truncated", message, seq=rows)
        return self._compare(beyond[0])

    def _beyond_head(self, marks: Iterator[_Mark]) -> Finding | None:
        """Expect nothing after the head: no row, and no larger checkpoint."""
        row = next(self.entries, None)
        beyond = list(marks)
        if row is None:
            return self._too_short(beyond) if beyond else None
        for mark in beyond:
            if self._is_signed(mark):
                message = f"head is of size `{self.rows.size}`, but there is a {mark}"
                return self._between("head_mismatch", message, mark)
        return _at(row, "forged", "is beyond the head: no checkpoint covers it", self.rows.size)

    def _without_head(self) -> Finding | None:
        finding = self._rows_up_to(2**63 - 1)
        if finding is None and (self.rows.size or self.checkpoints):
            message = "head is missing: table `audit_head` has no row"
            return Finding(
                "head_mismatch", message, after_size=self.agreed_size, up_to_size=self.rows.size
            )
        return finding

    def _kept(self) -> Iterator[_Mark]:
        for size, note in self.connection.execute(_CHECKPOINTS):
            if type(size) is not int:
                raise sqlite3.DataError("a checkpoint has a size that is not an integer")
            yield _Mark(size, "checkpoint", note if type(note) is str else None)

    def _head(self) -> _Mark | Finding | None:
        heads = self.connection.execute(_HEAD).fetchall()
        if not heads:
            return None
        if len(heads) > 1:
            return Finding("head_mismatch", "table `audit_head` has more than one row")
        if [*map(type, heads[0])] != _HEAD_TYPES:
            return Finding("unreadable", "head has a value of the wrong type")
        size, frontier, note = heads[0]
        return _Mark(size, "head", note, frontier)


def _missing_table(connection: sqlite3.Connection) -> str | None:
    # A view or a virtual table has no root page; either could make up rows without end.
    found = connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0"
    ).fetchall()
    return next((name for name in _TABLES if (name,) not in found), None)


def _at(row: tuple[Any, ...], kind: Kind, what: str, expected_seq: int) -> Finding:
    seq = row[0] if type(row[0]) is int else expected_seq
    row_id = row[1] if type(row[1]) is str else None
    return Finding(kind, f"row `{seq}` {what}", seq=seq, id=row_id)


def _cause(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "its schema is not utf-8 text"
    # Some messages of the driver end with the whole text of the value.
    return str(error).partition(" with text ")[0].lower().replace("\n", " ")


def _canonical_object(body: bytes) -> dict[str, Any] | None:
    """Return the JSON object whose canonical bytes these are, or None."""
    try:
        entry = orjson.loads(body)
        # Spelling it again shows duplicate keys, spaces and any other second spelling.
        if type(entry) is dict and orjson.dumps(entry, option=orjson.OPT_SORT_KEYS) == body:
            return entry
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        pass
    return None


def _open(path: Path) -> sqlite3.Connection:
    """Open a copy read-only, inside one read transaction: it may be written to meanwhile."""
    if not path.is_file():
        raise VerifyError(f"cannot open trail `{path}`: there is no such file")
    logs = [path.with_name(path.name + suffix) for suffix in ("-wal", "-journal")]
    # Immutable opens a copy on read-only media, but does not see what is in such a log.
    immutable = "" if any(log.exists() for log in logs) else "&immutable=1"
    try:
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro{immutable}", uri=True, isolation_level=None
        )
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_CELL)
        # The schema in the file is a stranger's too: no function may run because it says so.
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("BEGIN")
    except _UNREADABLE as error:
        raise VerifyError(f"cannot open trail `{path}`: {_cause(error)}") from error
    return connection
