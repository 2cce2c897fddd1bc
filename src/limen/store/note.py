"""Signed notes, checkpoints and proofs as text, so that other people's tools can check them.

    signed note      c2sp.org/signed-note       text, a blank line, one line a signature
    checkpoint       c2sp.org/tlog-checkpoint   a note of three lines: origin, size, root
    proof            c2sp.org/tlog-proof@v1     index, hashes, and the checkpoint they lead to

Signatures are Ed25519 (type 0x01). A key is one line of text in two files:

    audit.key        PRIVATE+KEY+<name>+<key id, 8 hex digits>+<base64 of 0x01 and 32-byte seed>
    audit.key.pub    <name>+<key id, 8 hex digits>+<base64 of 0x01 and 32-byte public key>

The key's name is the log's origin. Both forms are those of golang.org/x/mod/sumdb/note.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import stat
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from limen.errors import LimenError

ED25519 = b"\x01"
"""The signature type byte of C2SP signed-note."""

MAX_NOTE = 1024 * 1024
"""Bytes. A note of 16 post-quantum signatures has about 80 kB; ours have about 200 B."""

MAX_SIGNATURES = 100
"""Signature lines. The specification asks that at least 16 be accepted."""

MAX_KEY_FILE = 4096
"""Bytes. A key file has about 100."""

PROOF_HEADER = "c2sp.org/tlog-proof@v1"
MAX_PROOF_HASHES = 63
"""Hashes. One for each level of the largest tree that SQLite can count."""

_PRIVATE = "PRIVATE+KEY+"
_DASH = "\u2014 "
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f]")
_DECIMAL = re.compile(r"0|[1-9][0-9]{0,18}")


class NoteError(LimenError):
    """Say why a key, a note, a checkpoint or a proof is not what it should be."""


@dataclass(frozen=True, slots=True)
class VerifierKey:
    """One public key with the name and the 4-byte id that its signatures carry."""

    name: str
    key_id: bytes
    public: Ed25519PublicKey = field(repr=False)


@dataclass(frozen=True, slots=True)
class NoteSigner:
    """Sign notes under one name. `vkey` is what others need to check them."""

    origin: str
    vkey: str
    key_id: bytes = field(repr=False)
    private: Ed25519PrivateKey = field(repr=False)

    @classmethod
    def load_or_create(cls, path: Path, origin: str, *, only_if_new: bool = False) -> NoteSigner:
        """Return the signer of the key file, made now if there is none.

        With `only_if_new`, a key that is there keeps the origin it was made with. Writes the
        verifier key beside it if that is not there yet. Processes that start at once on one path
        all get the same key.

        Raises:
            NoteError: the file is not such a key, is another origin's, can be read by others, or
                cannot be read or written; or the public file belongs to another key.
        """
        _refuse_name(origin)
        try:
            if not path.exists():
                _create_key(path, origin)
            signer = cls.load(path, None if only_if_new else origin)
            _publish(public_path(path), signer.vkey)
        except OSError as error:
            raise NoteError(f"cannot open key file `{path}`: {_reason(error)}") from error
        return signer

    @classmethod
    def load(cls, path: Path, origin: str | None) -> NoteSigner:
        """Return the signer of an existing key file; `origin` None takes whichever it is of.

        Raises:
            NoteError: the file does not exist, is not such a key, is another origin's, or can be
                read by others.
        """
        try:
            text = _read_private(path)
        except OSError as error:
            raise NoteError(f"cannot open key file `{path}`: {_reason(error)}") from error
        try:
            signer = cls.from_text(text)
        except NoteError as error:
            raise NoteError(f"cannot open key file `{path}`: {error}") from error
        if origin is not None and signer.origin != origin:
            raise NoteError(
                f"cannot open key file `{path}`: it is the key of `{signer.origin}`, "
                f"not of `{origin}`"
            )
        return signer

    @classmethod
    def from_text(cls, text: str) -> NoteSigner:
        """Return the signer of one `PRIVATE+KEY+…` line.

        Raises:
            NoteError: the text is not such a line. The message never holds any part of it.
        """
        parts = text.removesuffix("\n").removeprefix(_PRIVATE).split("+", 2)
        if not text.startswith(_PRIVATE) or len(parts) != 3:
            raise NoteError("text is not a private key of the form `PRIVATE+KEY+name+id+base64`")
        name, key_id, encoded = parts
        _refuse_name(name)
        seed = _decode_key(encoded)
        private = Ed25519PrivateKey.from_private_bytes(seed)
        public = _raw_public(private)
        expected_id = _key_id(name, public)
        if key_id != expected_id.hex():
            raise NoteError("private key is damaged: its id does not belong to it")
        return cls(origin=name, vkey=_vkey(name, public), key_id=expected_id, private=private)

    def sign(self, text: str) -> str:
        """Return the note: the text with one signature. The text ends with a newline.

        Raises:
            NoteError: the text cannot stand in a note.
        """
        raw = _text_bytes(text)
        signature = _encode(self.key_id + self.private.sign(raw))
        return f"{text}\n{_DASH}{self.origin} {signature}\n"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a log signs: all its entries up to `size`, by their root.

    Raises:
        NoteError: the three cannot be a checkpoint.
    """

    origin: str
    size: int
    root: bytes

    def __post_init__(self) -> None:
        if not self.origin or "\n" in self.origin:
            raise NoteError(f"checkpoint origin is not one line: `{self.origin!r}`")
        if not 0 <= self.size < 2**63:
            raise NoteError(f"checkpoint size is out of range: `{self.size}`")
        if len(self.root) != 32:
            raise NoteError(f"checkpoint root has {len(self.root)} bytes; expected 32")

    @classmethod
    def parse(cls, text: str) -> Checkpoint:
        """Return the checkpoint of a note's text. Extension lines are allowed and dropped.

        Raises:
            NoteError: the text is not a checkpoint, or writes one in another than the one way.
        """
        lines = text.split("\n")
        if len(lines) < 4 or lines[-1] != "" or "" in lines[:-1]:
            raise NoteError("text is not a checkpoint: expected three lines, none of them empty")
        origin, size, root = lines[:3]
        return cls(origin, _decimal("checkpoint size", size), _decode("checkpoint root", root))

    def text(self) -> str:
        """Return the three lines that are signed."""
        return f"{self.origin}\n{self.size}\n{_encode(self.root)}\n"


@dataclass(frozen=True, slots=True)
class Proof:
    """The text of a proof, taken apart. Nothing in it is checked yet.

    `hashes` lead from the entry at `index` to the root of the checkpoint, lowest first.
    """

    index: int
    hashes: tuple[bytes, ...]
    checkpoint_note: str


def public_path(path: Path) -> Path:
    """Return where the verifier key of a key file stands: the same name with `.pub` added."""
    return path.with_name(path.name + ".pub")


def read_vkey(path: Path) -> str:
    """Return the verifier key in a `.pub` file, without its newline.

    Raises:
        NoteError: the file cannot be read or holds no verifier key.
    """
    try:
        vkey = path.read_bytes().decode().removesuffix("\n")
        parse_vkey(vkey)
    except OSError as error:
        raise NoteError(f"cannot read verifier key `{path}`: {_reason(error)}") from error
    except UnicodeDecodeError as error:
        raise NoteError(f"cannot read verifier key `{path}`: it is not UTF-8") from error
    except NoteError as error:
        raise NoteError(f"cannot read verifier key `{path}`: {error}") from error
    return vkey


def parse_vkey(vkey: str) -> VerifierKey:
    """Return the parts of a verifier key `name+id+base64`.

    Raises:
        NoteError: the text is no Ed25519 verifier key, or its id does not belong to it.
    """
    # The base64 part may hold a plus of its own.
    parts = vkey.split("+", 2)
    if len(parts) != 3:
        raise NoteError("text is not a verifier key of the form `name+id+base64`")
    name, key_id, encoded = parts
    _refuse_name(name)
    raw = _decode_key(encoded)
    expected_id = _key_id(name, raw)
    if key_id != expected_id.hex():
        raise NoteError(f"verifier key of `{name}` is damaged: its id does not belong to it")
    try:
        public = Ed25519PublicKey.from_public_bytes(raw)
    except ValueError as error:
        raise NoteError(f"verifier key of `{name}` is no Ed25519 key") from error
    return VerifierKey(name=name, key_id=expected_id, public=public)


def open_note(note: str, vkey: str) -> str:
    """Return the text of a note that the expected key has signed.

    Signatures of other keys are ignored. One of the expected key that does not verify rejects
    the note, even beside one that does.

    Raises:
        NoteError: the note is malformed or has no good signature; or `vkey` is no verifier key.
    """
    key = parse_vkey(vkey)
    text, signatures = _split(note)
    good = False
    for name, blob in signatures:
        if (name, blob[:4]) != (key.name, key.key_id):
            continue
        try:
            key.public.verify(blob[4:], text.encode())
        except InvalidSignature as error:
            raise NoteError(f"note has a bad signature by `{name}`") from error
        good = True
    if not good:
        raise NoteError(f"note has no signature by the expected key of `{key.name}`")
    return text


def open_checkpoint(note: str, vkey: str) -> Checkpoint:
    """Return the checkpoint in a note that the log's own key has signed.

    Raises:
        NoteError: as `open_note`; or the text is no checkpoint, or another origin's.
    """
    checkpoint = Checkpoint.parse(open_note(note, vkey))
    name = parse_vkey(vkey).name
    if checkpoint.origin != name:
        raise NoteError(f"checkpoint is of origin `{checkpoint.origin}`, not of `{name}`")
    return checkpoint


def unverified_checkpoint(note: str) -> Checkpoint:
    """Return the checkpoint that a note claims. Anybody can have written it.

    Raises:
        NoteError: the note is malformed or its text is no checkpoint.
    """
    return Checkpoint.parse(_split(note)[0])


def format_proof(index: int, hashes: Sequence[bytes], checkpoint_note: str) -> str:
    """Return the text of a proof. `hashes` are as `inclusion_proof` gives them."""
    lines = [PROOF_HEADER, f"index {index}", *(_encode(found) for found in hashes)]
    return "\n".join(lines) + "\n\n" + checkpoint_note


def parse_proof(text: str) -> Proof:
    """Return the parts of a proof. An `extra` line is allowed and dropped: nobody signed it.

    Raises:
        NoteError: the text is not such a proof.
    """
    if len(text) > MAX_NOTE:
        raise NoteError(f"proof has {len(text)} characters; at most {MAX_NOTE} are allowed")
    head, blank, checkpoint_note = text.partition("\n\n")
    lines = head.split("\n")
    if not blank or lines[0] != PROOF_HEADER:
        raise NoteError(f"text is not a proof: expected `{PROOF_HEADER}` and a blank line")
    del lines[0]
    if lines and lines[0].startswith("extra "):
        _decode("proof extra", lines[0].removeprefix("extra "))
        del lines[0]
    if not lines or not lines[0].startswith("index "):
        raise NoteError("proof has no index line")
    index = _decimal("proof index", lines[0].removeprefix("index "))
    if len(lines) - 1 > MAX_PROOF_HASHES:
        raise NoteError(
            f"proof has {len(lines) - 1} hashes; at most {MAX_PROOF_HASHES} are allowed"
        )
    hashes = tuple(_decode("proof hash", line) for line in lines[1:])
    for found in hashes:
        if len(found) != 32:
            raise NoteError(f"proof hash has {len(found)} bytes; expected 32")
    return Proof(index=index, hashes=hashes, checkpoint_note=checkpoint_note)


def _split(note: str) -> tuple[str, list[tuple[str, bytes]]]:
    """Return a note's text, and the name and the bytes of each signature."""
    if len(note) > MAX_NOTE:
        raise NoteError(f"note has {len(note)} characters; at most {MAX_NOTE} are allowed")
    _text_bytes(note)
    # The text may hold blank lines of its own: the last one parts it from the signatures.
    end = note.rfind("\n\n")
    if end < 0:
        raise NoteError("note has no blank line before its signatures")
    lines = note[end + 2 :].split("\n")[:-1]
    if not 1 <= len(lines) <= MAX_SIGNATURES:
        raise NoteError(f"note has {len(lines)} signatures; expected 1 to {MAX_SIGNATURES}")
    return note[: end + 1], [_signature(line) for line in lines]


def _signature(line: str) -> tuple[str, bytes]:
    parts = line.removeprefix(_DASH).split(" ")
    if not line.startswith(_DASH) or len(parts) != 2:
        raise NoteError("note has a signature line that is not a dash, a name and base64")
    name, encoded = parts
    _refuse_name(name)
    blob = _decode("note signature", encoded)
    if len(blob) < 5:
        raise NoteError(f"note signature has {len(blob)} bytes; expected 5 or more")
    return name, blob


def _text_bytes(text: str) -> bytes:
    """Return the bytes of a text that can stand in a note."""
    try:
        raw = text.encode()
    except UnicodeEncodeError as error:
        raise NoteError("note is not UTF-8 text") from error
    if not text.endswith("\n"):
        raise NoteError("note does not end with a newline")
    if _CONTROL.search(text):
        raise NoteError("note has a control character that is not a newline")
    return raw


def _refuse_name(name: str) -> None:
    # Half of a surrogate pair is no character: it could not be hashed into the key id.
    unfit = re.search(r"[+\s\x00-\x1f\ud800-\udfff]", name)
    if unfit or not name:
        raise NoteError(f"key name is empty, or has a space, plus or control: `{name!r}`")


def _decimal(what: str, digits: str) -> int:
    if not _DECIMAL.fullmatch(digits):
        raise NoteError(f"{what} is not a plain decimal number")
    return int(digits)


def _encode(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _decode(what: str, encoded: str) -> bytes:
    try:
        raw = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise NoteError(f"{what} is not base64") from error
    # The standard library accepts stray bits at the end: one value must have one spelling.
    if _encode(raw) != encoded:
        raise NoteError(f"{what} is not base64 in its one spelling")
    return raw


def _decode_key(encoded: str) -> bytes:
    raw = _decode("key", encoded)
    if len(raw) != 33 or raw[:1] != ED25519:
        raise NoteError("key is not an Ed25519 key of type 0x01 and 32 bytes")
    return raw[1:]


def _raw_public(private: Ed25519PrivateKey) -> bytes:
    return private.public_key().public_bytes_raw()


def _key_id(name: str, public: bytes) -> bytes:
    return sha256(name.encode() + b"\n" + ED25519 + public).digest()[:4]


def _vkey(name: str, public: bytes) -> str:
    return f"{name}+{_key_id(name, public).hex()}+{_encode(ED25519 + public)}"


def _create_key(path: Path, origin: str) -> None:
    """Make a key file, or leave the one that another process has just made."""
    private = Ed25519PrivateKey.generate()
    key_id = _key_id(origin, _raw_public(private)).hex()
    line = f"{_PRIVATE}{origin}+{key_id}+{_encode(ED25519 + private.private_bytes_raw())}\n"
    # O_CREAT | O_EXCL and mode 0600 are in `mkstemp`. The link is exclusive too and shows the key
    # only once it is whole and on disk, so that nobody can load half of it.
    made = _write_beside(path, line, mode=0o600)
    try:
        os.link(made, path)
    except FileExistsError:
        return
    finally:
        os.unlink(made)
    _sync_directory(path.parent)


def _publish(path: Path, vkey: str) -> None:
    if path.exists():
        if read_vkey(path) != vkey:
            raise NoteError(f"verifier key `{path}` belongs to another key than the one beside it")
        return
    os.replace(_write_beside(path, vkey + "\n", mode=0o644), path)
    _sync_directory(path.parent)


def _write_beside(path: Path, text: str, *, mode: int) -> str:
    """Write a new file in the same directory, whole and on disk, and return its path."""
    descriptor, made = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(descriptor, mode)
            file.write(text)
            file.flush()
            os.fsync(descriptor)
    except OSError:
        os.unlink(made)
        raise
    return made


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_private(path: Path) -> str:
    # A pipe in the key's place must not make us wait.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        # Of the open file, not of the path: nobody can swap it in between.
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise NoteError(f"key file is not a regular file: `{path}`")
        mode = stat.S_IMODE(status.st_mode)
        if mode & 0o077:
            raise NoteError(
                f"key file can be used by group or others: `{path}` has mode {mode:04o}; "
                f"run `chmod 600 {path}`"
            )
        try:
            return file.read(MAX_KEY_FILE).decode()
        except UnicodeDecodeError as error:
            raise NoteError(f"cannot open key file `{path}`: it is not UTF-8") from error


def _reason(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()
