import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limen.servers.desk.paths import folders_of, why_not_canonical


@pytest.mark.parametrize(
    "path",
    [
        "public/handbook.txt",
        "drafts/a b/c.txt",
        "private/Überblick.md",
        "team/support/faq.txt",
        "team/support/a/b/c.txt",
        "public/.profile",
        "public/a..b",
        "public/~root",
        "public/" + "s" * 100,
    ],
)
def test_a_canonical_path_has_nothing_against_it(path: str) -> None:
    assert why_not_canonical(path) is None


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("", "it is empty"),
        ("public", "it names a folder, not a document"),
        ("team/support", "it names a folder, not a document"),
        ("handbook.txt", "it does not begin with"),
        ("Public/handbook.txt", "it does not begin with"),
        ("publicity/handbook.txt", "it does not begin with"),
        ("/public/handbook.txt", "it has an empty segment"),
        ("public//handbook.txt", "it has an empty segment"),
        ("public/", "it has an empty segment"),
        ("./public/handbook.txt", "it has a `.` or `..` segment"),
        ("public/./handbook.txt", "it has a `.` or `..` segment"),
        ("public/../private/customer-secrets.txt", "it has a `.` or `..` segment"),
        ("public/..", "it has a `.` or `..` segment"),
        ("public\\..\\private\\customer-secrets.txt", "it has a backslash"),
        ("public/%2e%2e/private/customer-secrets.txt", "it has a percent sign"),
        ("public%2fhandbook.txt", "it has a percent sign"),
        ("public/handbook.txt.", "a segment ends in a dot"),
        ("public/...", "a segment ends in a dot"),
        ("public./handbook.txt", "a segment ends in a dot"),
        ("public/handbook.txt ", "a segment begins or ends with a space"),
        ("public/ handbook.txt", "a segment begins or ends with a space"),
        ("public /handbook.txt", "a segment begins or ends with a space"),
        ("public/handbook.txt\0", "it has a control"),
        ("public/hand\nbook.txt", "it has a control"),
        ("public/hand\u200bbook.txt", "it has a control"),
        ("public/hand\u202ebook.txt", "it has a control"),
        ("public/hand\u00a0book.txt", "it has a control"),
        ("public/hand\u2028book.txt", "it has a control"),
        ("public/hand\u3164book.txt", "it has a control"),
        ("public/handbook\ufe0f.txt", "it has a control"),
        ("public/hand\ue000book.txt", "it has a control"),
        ("public/hand\ud800book.txt", "it has a control"),
        ("public/hand\u0378book.txt", "it has a control"),
        ("public/U\u0308berblick.md", "it is not in Unicode form NFC"),
        ("public/\u212bngstrom.md", "it is not in Unicode form NFC"),
        ("public/" + "s" * 101, "a segment has more than 100 characters"),
        ("public/" + "s/" * 300 + "s", "it has more than 512 characters"),
    ],
)
def test_a_path_that_is_not_canonical_is_refused_with_its_reason(path: str, reason: str) -> None:
    said = why_not_canonical(path)
    assert said is not None
    assert said.startswith(reason)


def test_the_reason_never_repeats_the_path() -> None:
    assert "secret" not in (why_not_canonical("public/../secret") or "")


def test_a_path_of_512_characters_is_the_longest() -> None:
    longest = "public/" + "/".join(["s" * 100] * 5)
    assert len(longest) == 511
    assert why_not_canonical(longest + "/") == "it has an empty segment"
    assert why_not_canonical(longest[:-1] + "/s") is None
    assert why_not_canonical(longest + "/s") == "it has more than 512 characters"


SEGMENTS = st.text(min_size=1, max_size=6) | st.sampled_from(["team", ".", "..", "", "a ", "é"])
TOPS = st.sampled_from(["public/", "team/a/", "/", ""])


@given(TOPS, st.lists(SEGMENTS, max_size=4).map("/".join))
def test_whatever_passes_has_one_spelling(top: str, rest: str) -> None:
    path = top + rest
    if why_not_canonical(path) is not None:
        return
    segments = path.split("/")
    assert unicodedata.normalize("NFC", path) == path
    assert path == path.strip()
    assert not {"", ".", ".."} & set(segments)
    assert "\\" not in path
    assert "%" not in path
    assert path.isprintable()
    assert segments[0] in {"public", "drafts", "private", "team"}
    assert path.encode().decode() == path


LETTERS = st.characters(categories=["Lu", "Ll", "Nd"])
NAMES = st.text(LETTERS, min_size=1, max_size=8)


@given(st.lists(NAMES, min_size=1, max_size=8))
def test_ordinary_names_under_a_top_folder_pass_in_nfc(names: list[str]) -> None:
    path = unicodedata.normalize("NFC", "public/" + "/".join(names))
    assert why_not_canonical(path) is None
    assert len(folders_of(path)) == len(names)
    assert all(path.startswith(folder + "/") for folder in folders_of(path))


def test_the_folders_of_a_path_come_outermost_first() -> None:
    assert folders_of("team/support/faq/vpn.txt") == ("team", "team/support", "team/support/faq")
    assert folders_of("public/handbook.txt") == ("public",)
