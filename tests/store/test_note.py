import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limen.store.note import (
    Checkpoint,
    NoteError,
    NoteSigner,
    format_proof,
    open_checkpoint,
    open_note,
    parse_proof,
    parse_vkey,
    public_path,
    read_vkey,
    unverified_checkpoint,
)

# The example key and note in the documentation of golang.org/x/mod/sumdb/note.
GO_PRIVATE = "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz"
GO_VKEY = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
GO_TEXT = (
    "If you think cryptography is the answer to your problem,\n"
    "then you don't know what your problem is.\n"
)
GO_SIGNATURE = (
    "— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngot"
    "pRZb6KE6RyyBwJnAM=\n"
)
GO_NOTE = f"{GO_TEXT}\n{GO_SIGNATURE}"

# The two examples of c2sp.org. Their keys are not published, so their form alone can be tested.
SALVATORE_NOTE = (
    "Ognuno sta solo sul cuor della terra\ntrafitto da un raggio di sole:\n\ned è subito sera.\n\n"
    "— quasimodo.example/salvatore NnugSzTjtVAewIS+Z/iJhUPeFDkO/5QQ2i5ddnGITLlC+EhfLW9oJKONrMou"
    "FSQU0xMcXxj99ihAQwaqP3ZekRwNtIc=\n"
)
SOFA_TEXT = "example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n"
SOFA_NOTE = (
    f"{SOFA_TEXT}\n— example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe"
    "4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=\n"
)

ORIGIN = "limen.example/audit"
ROOT = bytes(range(32))


@pytest.fixture
def signer(tmp_path: Path) -> NoteSigner:
    return NoteSigner.load_or_create(tmp_path / "audit.key", ORIGIN)


@pytest.fixture
def stranger(tmp_path: Path) -> NoteSigner:
    return NoteSigner.load_or_create(tmp_path / "stranger.key", ORIGIN)


def signature(note: str) -> str:
    return note.rpartition("\n\n")[2]


def test_the_reference_note_is_reproduced_byte_for_byte() -> None:
    signer = NoteSigner.from_text(GO_PRIVATE)
    assert signer.vkey == GO_VKEY
    assert signer.sign(GO_TEXT) == GO_NOTE
    assert open_note(GO_NOTE, GO_VKEY) == GO_TEXT


def test_a_note_changed_by_one_letter_does_not_open() -> None:
    with pytest.raises(NoteError, match="note has a bad signature by `PeterNeumann`"):
        open_note(GO_NOTE.replace("answer", "Answer"), GO_VKEY)


def test_a_text_may_hold_blank_lines_and_any_letters(signer: NoteSigner) -> None:
    text = "Ognuno sta solo\n\n\ned è subito sera.\n\n"
    assert open_note(signer.sign(text), signer.vkey) == text
    assert open_note(signer.sign("\n"), signer.vkey) == "\n"


def test_signatures_of_unknown_keys_are_ignored(signer: NoteSigner, stranger: NoteSigner) -> None:
    same_name = signature(stranger.sign(GO_TEXT))
    note = f"{GO_TEXT}\n{same_name}{GO_SIGNATURE}{signature(signer.sign(GO_TEXT))}{same_name}"
    assert open_note(note, signer.vkey) == GO_TEXT
    assert open_note(note, GO_VKEY) == GO_TEXT


def test_a_note_without_a_signature_by_the_expected_key_does_not_open(
    signer: NoteSigner, stranger: NoteSigner
) -> None:
    for note in (stranger.sign(GO_TEXT), GO_NOTE, SALVATORE_NOTE):
        with pytest.raises(NoteError, match="note has no signature by the expected key of `limen"):
            open_note(note, signer.vkey)


def test_a_bad_signature_by_the_expected_key_rejects_even_beside_a_good_one(
    signer: NoteSigner,
) -> None:
    good, bad = signature(signer.sign(GO_TEXT)), signature(signer.sign("another\n"))
    for lines in (good + bad, bad + good, bad):
        with pytest.raises(NoteError, match=r"bad signature by `limen\.example/audit`"):
            open_note(f"{GO_TEXT}\n{lines}", signer.vkey)
    assert open_note(f"{GO_TEXT}\n{good}{good}", signer.vkey) == GO_TEXT


def test_sixteen_signatures_are_accepted_and_a_flood_is_not(signer: NoteSigner) -> None:
    good = signature(signer.sign(GO_TEXT))
    assert open_note(f"{GO_TEXT}\n{GO_SIGNATURE * 15}{good}", signer.vkey) == GO_TEXT
    with pytest.raises(NoteError, match="note has 101 signatures; expected 1 to 100"):
        open_note(f"{GO_TEXT}\n{GO_SIGNATURE * 100}{good}", signer.vkey)
    with pytest.raises(NoteError, match="characters; at most 1048576 are allowed"):
        open_note("x" * 1024 * 1024 + "\n" + GO_NOTE, GO_VKEY)


@pytest.mark.parametrize(
    "note",
    [
        "",
        "\n",
        GO_TEXT,
        GO_TEXT + "\n",
        GO_TEXT + GO_SIGNATURE,
        GO_NOTE.removesuffix("\n"),
        GO_NOTE + "\n",
        GO_NOTE + "— \n",
        GO_NOTE + "not a signature\n",
        GO_NOTE.replace("—", "-"),
        GO_NOTE.replace("— ", "—"),
        GO_NOTE.replace("PeterNeumann x0", "PeterNeumann  x0"),
        GO_NOTE.replace("PeterNeumann x0", "Peter+Neumann x0"),
        GO_NOTE.replace("PeterNeumann x0", "Peter\u00a0Neumann x0"),
        GO_NOTE.replace("JnAM=", "JnAM"),
        GO_NOTE.replace("JnAM=", "JnAN="),
        GO_NOTE.replace("JnAM=", "Jn*M="),
        GO_NOTE + "— PeterNeumann x08gow==\n",
        GO_NOTE.replace("you", "y\tu", 1),
        GO_NOTE.replace("\n", "\r\n"),
        GO_NOTE.replace("you", "y\x00u", 1),
        GO_NOTE.replace("you", "y\ud800u", 1),
    ],
)
def test_a_malformed_note_does_not_open(note: str) -> None:
    with pytest.raises(NoteError):
        open_note(note, GO_VKEY)


@pytest.mark.parametrize("text", ["", "no newline", "a\tb\n", "\ud800\n"])
def test_a_text_that_cannot_stand_in_a_note_is_not_signed(signer: NoteSigner, text: str) -> None:
    with pytest.raises(NoteError, match=r"^note "):
        signer.sign(text)


def test_no_part_of_a_verifier_key_and_no_other_spelling_of_it_is_one() -> None:
    assert parse_vkey(GO_VKEY).name == "PeterNeumann"
    parts = {GO_VKEY[a:b] for a in range(len(GO_VKEY)) for b in range(a, len(GO_VKEY) + 1)}
    changed = {
        GO_VKEY[:at] + chr(ord(GO_VKEY[at]) + 1) + GO_VKEY[at + 1 :] for at in range(len(GO_VKEY))
    }
    for vkey in (parts | changed | {GO_VKEY + "\n", GO_VKEY + "="}) - {GO_VKEY}:
        with pytest.raises(NoteError):
            parse_vkey(vkey)


def test_a_checkpoint_is_the_three_lines_of_the_specification() -> None:
    checkpoint = unverified_checkpoint(SOFA_NOTE)
    assert (checkpoint.origin, checkpoint.size) == ("example.com/behind-the-sofa", 20852163)
    assert checkpoint.text() == SOFA_TEXT


def test_a_signed_checkpoint_opens_with_the_key_of_its_origin_only(
    signer: NoteSigner, stranger: NoteSigner
) -> None:
    checkpoint = Checkpoint(ORIGIN, 7, ROOT)
    assert open_checkpoint(signer.sign(checkpoint.text()), signer.vkey) == checkpoint
    with pytest.raises(NoteError, match="no signature by the expected key"):
        open_checkpoint(stranger.sign(checkpoint.text()), signer.vkey)
    elsewhere = Checkpoint("elsewhere.example/log", 7, ROOT)
    with pytest.raises(NoteError, match=r"checkpoint is of origin `elsewhere\.example/log`"):
        open_checkpoint(signer.sign(elsewhere.text()), signer.vkey)


def test_extension_lines_of_a_checkpoint_are_allowed_and_dropped() -> None:
    assert Checkpoint.parse(SOFA_TEXT + "more\n") == Checkpoint.parse(SOFA_TEXT)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a\n1\n",
        SOFA_TEXT.removesuffix("\n"),
        SOFA_TEXT + "\n",
        SOFA_TEXT + "\nmore\n",
        "\n" + SOFA_TEXT,
        SOFA_TEXT.replace("20852163", "020852163"),
        SOFA_TEXT.replace("20852163", "00"),
        SOFA_TEXT.replace("20852163", "+20852163"),
        SOFA_TEXT.replace("20852163", "-1"),
        SOFA_TEXT.replace("20852163", "2_0"),
        SOFA_TEXT.replace("20852163", " 20852163"),
        SOFA_TEXT.replace("20852163", "\u0662"),
        SOFA_TEXT.replace("20852163", str(2**63)),
        SOFA_TEXT.replace("20852163", "9" * 5000),
        SOFA_TEXT.replace("xq2I=", "xq2I"),
        SOFA_TEXT.replace("xq2I=", "xq2J="),
        SOFA_TEXT.replace("CsUYapGG", ""),
    ],
)
def test_a_checkpoint_written_in_another_than_the_one_way_is_refused(text: str) -> None:
    with pytest.raises(NoteError):
        Checkpoint.parse(text)


@pytest.mark.parametrize(
    "build",
    [
        lambda: Checkpoint("", 1, ROOT),
        lambda: Checkpoint("a\nb", 1, ROOT),
        lambda: Checkpoint("a", -1, ROOT),
        lambda: Checkpoint("a", 1, ROOT[1:]),
    ],
)
def test_a_checkpoint_that_could_not_be_read_back_is_not_built(
    build: Callable[[], Checkpoint],
) -> None:
    with pytest.raises(NoteError, match=r"^checkpoint "):
        build()


@given(st.integers(0, 2**63 - 1), st.lists(st.binary(min_size=32, max_size=32), max_size=63))
def test_a_proof_reads_back_as_it_was_written(index: int, hashes: list[bytes]) -> None:
    proof = parse_proof(format_proof(index, hashes, SOFA_NOTE))
    assert (proof.index, list(proof.hashes)) == (index, hashes)
    assert proof.checkpoint_note == SOFA_NOTE


def test_a_proof_has_the_lines_of_the_specification() -> None:
    encoded = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
    expected = f"c2sp.org/tlog-proof@v1\nindex 73894\n{encoded}\n\n{SOFA_NOTE}"
    assert format_proof(73894, [ROOT], SOFA_NOTE) == expected
    with_extra = expected.replace("index", "extra YWdl\nindex")
    assert parse_proof(with_extra) == parse_proof(expected)


PROOF = format_proof(7, [ROOT], SOFA_NOTE)


@pytest.mark.parametrize(
    "text",
    [
        "",
        SOFA_NOTE,
        PROOF.replace("@v1", "@v2"),
        PROOF.replace("index 7", "index 07"),
        PROOF.replace("index 7", "index"),
        PROOF.replace("index 7", "index -7"),
        PROOF.replace("index 7\n", ""),
        PROOF.replace("index 7", "index 7\nextra YWdl"),
        PROOF.replace("index 7", "extra ***\nindex 7"),
        PROOF.replace("Hh8=", "Hh8"),
        PROOF.replace("Hh8=", "Hh9="),
        PROOF.replace("AAEC", ""),
        PROOF.partition("\n\n")[0],
        format_proof(7, [ROOT] * 64, SOFA_NOTE),
        "x" * 1024 * 1024 + PROOF,
    ],
)
def test_a_malformed_proof_is_refused(text: str) -> None:
    with pytest.raises(NoteError, match=r"^(proof|text) "):
        parse_proof(text)


def test_the_first_start_makes_a_private_key_and_its_public_file(tmp_path: Path) -> None:
    path = tmp_path / "audit.key"
    old_mask = os.umask(0)
    try:
        signer = NoteSigner.load_or_create(path, ORIGIN)
    finally:
        os.umask(old_mask)
    assert path.stat().st_mode & 0o777 == 0o600
    assert public_path(path).stat().st_mode & 0o777 == 0o644
    assert public_path(path).read_text() == signer.vkey + "\n"
    assert read_vkey(public_path(path)) == signer.vkey
    assert path.read_text().startswith(f"PRIVATE+KEY+{ORIGIN}+")
    assert sorted(found.name for found in tmp_path.iterdir()) == ["audit.key", "audit.key.pub"]


def test_the_second_start_signs_with_the_same_key(tmp_path: Path) -> None:
    path = tmp_path / "audit.key"
    first = NoteSigner.load_or_create(path, ORIGIN)
    public_path(path).unlink()
    second = NoteSigner.load_or_create(path, ORIGIN)
    assert second.sign("text\n") == first.sign("text\n")
    assert read_vkey(public_path(path)) == first.vkey


def test_processes_that_start_at_once_all_sign_with_one_key(tmp_path: Path) -> None:
    script = """
import sys
from pathlib import Path
from limen.store.note import NoteSigner
sys.stdin.readline()
for number in range(25):
    print(NoteSigner.load_or_create(Path(sys.argv[1]) / f"{number}.key", "limen.example/a").vkey)
"""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        for _ in range(4)
    ]
    for process in processes:
        if process.stdin is not None:
            process.stdin.write("go\n")
            process.stdin.flush()
    printed = [process.communicate(timeout=60)[0].splitlines() for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0, 0]
    assert len(set(printed[0])) == 25
    assert printed[1:] == [printed[0]] * 3
    assert [read_vkey(tmp_path / f"{number}.key.pub") for number in range(25)] == printed[0]
    assert len(list(tmp_path.iterdir())) == 50


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_key_file_that_others_can_use_is_refused_with_the_command_that_helps(
    tmp_path: Path, mode: int
) -> None:
    path = tmp_path / "audit.key"
    NoteSigner.load_or_create(path, ORIGIN)
    path.chmod(mode)
    with pytest.raises(NoteError) as caught:
        NoteSigner.load_or_create(path, ORIGIN)
    assert str(caught.value) == (
        f"key file can be used by group or others: `{path}` has mode {mode:04o}; "
        f"run `chmod 600 {path}`"
    )
    path.chmod(0o600)
    NoteSigner.load_or_create(path, ORIGIN)


def test_the_key_of_another_log_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "audit.key"
    NoteSigner.load_or_create(path, ORIGIN)
    with pytest.raises(NoteError, match=r"it is the key of `limen\.example/audit`, not of `other`"):
        NoteSigner.load_or_create(path, "other")


def test_a_public_file_of_another_key_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "audit.key"
    NoteSigner.load_or_create(path, ORIGIN)
    public_path(path).write_text(GO_VKEY + "\n")
    with pytest.raises(NoteError, match="belongs to another key than the one beside it"):
        NoteSigner.load_or_create(path, ORIGIN)
    assert read_vkey(public_path(path)) == GO_VKEY


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        GO_VKEY,
        GO_PRIVATE.removesuffix("z"),
        GO_PRIVATE.replace("c74f20a3", "c74f20a4"),
        GO_PRIVATE.replace("AYEK", "AoEK"),
        GO_PRIVATE + "\n\n",
        "\udcff",
    ],
)
def test_a_damaged_key_file_is_refused_without_repeating_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "audit.key"
    path.touch(mode=0o600)
    path.write_text(text, errors="surrogateescape")
    with pytest.raises(NoteError, match="cannot open key file") as caught:
        NoteSigner.load_or_create(path, "PeterNeumann")
    assert "FALVFGyNhPJEMzD1QIDr" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not public_path(path).exists()


def test_a_signer_does_not_print_its_key(signer: NoteSigner) -> None:
    assert repr(signer) == f"NoteSigner(origin='{ORIGIN}', vkey='{signer.vkey}')"


@pytest.mark.parametrize("origin", ["", "a b", "a+b", "a\nb", "a\x00b", "a\u2003b", "a\ud800b"])
def test_an_origin_that_cannot_be_a_key_name_makes_no_key(tmp_path: Path, origin: str) -> None:
    with pytest.raises(NoteError, match="key name is empty, or has a space, plus or control"):
        NoteSigner.load_or_create(tmp_path / "audit.key", origin)
    assert list(tmp_path.iterdir()) == []


def test_a_key_file_in_no_directory_is_a_fault_of_one_line(tmp_path: Path) -> None:
    path = tmp_path / "absent" / "audit.key"
    with pytest.raises(NoteError) as caught:
        NoteSigner.load_or_create(path, ORIGIN)
    assert str(caught.value) == f"cannot open key file `{path}`: no such file or directory"
    with pytest.raises(NoteError, match=r"cannot read verifier key .*: no such file or directory"):
        read_vkey(public_path(path))


def test_a_key_made_under_another_origin_keeps_it_when_the_origin_is_only_for_new_keys(
    tmp_path: Path,
) -> None:
    path = tmp_path / "audit.key"
    first = NoteSigner.load_or_create(path, ORIGIN)
    second = NoteSigner.load_or_create(path, "limen.invalid/other", only_if_new=True)
    assert (second.origin, second.vkey) == (ORIGIN, first.vkey)
