"""One spelling for every document's path, so that policy and store mean the same thing.

A path is a key, not a place on a disk. It is checked and never repaired: what is not canonical
names nothing.
"""

from __future__ import annotations

import re
import unicodedata

TOP_FOLDERS = ("public", "drafts", "private", "team")

MAX_PATH = 512
"""Characters. Four or five full segments; policy and people read paths whole."""

MAX_SEGMENT = 100
"""Characters. Leaves room for an approval id in front when a name becomes a file's."""

_REFUSED_CATEGORIES = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"})

# Drawn as nothing although their category says letter, mark or symbol: the assigned characters
# of Default_Ignorable_Code_Point outside Cf (Unicode 14, DerivedCoreProperties), and the blank
# Braille cell.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)


def why_not_canonical(path: str) -> str | None:
    """Return why a path is not canonical, as one line without the path, or None if it is.

    Canonical: `public/…`, `drafts/…`, `private/…` or `team/<name>/…`, relative, in NFC, at most
    512 characters, every segment 1 to 100 visible characters, inner plain spaces allowed. Case
    is kept and tells paths apart.
    """
    if not path:
        return "it is empty"
    if len(path) > MAX_PATH:
        return f"it has more than {MAX_PATH} characters"
    if "\\" in path:
        return "it has a backslash"
    if "%" in path:
        return "it has a percent sign"
    # Most paths are plain ASCII, of which all that is printable is visible and in form NFC.
    if not (path.isascii() and path.isprintable()):
        if any(map(_is_unseen, path)):
            return "it has a control, invisible or unassigned character"
        if not unicodedata.is_normalized("NFC", path):
            return "it is not in Unicode form NFC"
    segments = path.split("/")
    for segment in segments:
        if (reason := _why_not_a_segment(segment)) is not None:
            return reason
    return _why_not_placed(segments)


def folders_of(path: str) -> tuple[str, ...]:
    """Return the folders that hold a canonical path, outermost first.

    `team/support/faq/vpn.txt` is in `team`, `team/support` and `team/support/faq`.
    """
    folders = []
    end = path.find("/")
    while end >= 0:
        folders.append(path[:end])
        end = path.find("/", end + 1)
    return tuple(folders)


def _is_unseen(character: str) -> bool:
    if character == " ":
        return False
    if unicodedata.category(character) in _REFUSED_CATEGORIES:
        return True
    return _INVISIBLE.match(character) is not None


def _why_not_a_segment(segment: str) -> str | None:
    if not segment:
        return "it has an empty segment"
    if segment in {".", ".."}:
        return "it has a `.` or `..` segment"
    if segment.endswith("."):
        return "a segment ends in a dot"
    if segment != segment.strip(" "):
        return "a segment begins or ends with a space"
    if len(segment) > MAX_SEGMENT:
        return f"a segment has more than {MAX_SEGMENT} characters"
    return None


def _why_not_placed(segments: list[str]) -> str | None:
    if segments[0] not in TOP_FOLDERS:
        return "it does not begin with `public/`, `drafts/`, `private/` or `team/<name>/`"
    if len(segments) < (3 if segments[0] == "team" else 2):
        return "it names a folder, not a document"
    return None
