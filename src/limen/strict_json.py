"""Read JSON as it was sent: what a lenient parser would mend is an error or is reported.

No NaN, no lone surrogates, no bytes that are not UTF-8, no nesting without end; numbers beyond
64 bits stay exact; and keys that came twice in one object are named.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, NoReturn

import orjson

from limen.errors import LimenError

MAX_DEPTH = 64
"""Objects and arrays inside each other, of a whole message. Real calls have about 8."""

MAX_PLACE = 256
"""Characters of the place of a key that came twice; a longer one is cut. Without it a long key
around many short ones makes a message a thousand times its size."""

NOT_JSON = "message is not JSON"
TOO_DEEP = f"message nests deeper than {MAX_DEPTH} levels"


class NotJsonError(LimenError):
    """Say that a message is not JSON as this boundary reads it. Repeats nothing of it."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """A JSON value, and the places of keys that came twice: `params.arguments.path`.

    Of a key that came twice, the value is its last. Places in arrays are numbers: `items.0.key`.
    A place is cut after `MAX_PLACE` characters.
    """

    value: Any
    duplicates: tuple[str, ...] = ()


def read(raw: bytes) -> Parsed:
    """Return the value of JSON text.

    Raises:
        NotJsonError: it is not JSON in UTF-8, or nests too deeply.
    """
    # Most messages have fewer opening brackets than levels are allowed, strings included.
    if raw.count(b"{") + raw.count(b"[") > MAX_DEPTH and _nests_too_deep(raw):
        raise NotJsonError(TOO_DEEP)
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise NotJsonError(NOT_JSON) from error
    # Spelled again it is the same text, so nothing was lost in reading: no key came twice.
    if orjson.dumps(value) == raw or _has_no_room_for_more(value, raw):
        return Parsed(value)
    return _read_slowly(raw)


def _has_no_room_for_more(value: Any, raw: bytes) -> bool:
    """Tell whether the value has as many keys as the text has colons outside its strings.

    A duplicate key has a colon of its own but no place in the value. Strings may hold colons too,
    so fewer keys prove nothing. Large integers have to be read exactly, whatever the keys say.
    """
    keys = 0
    rest = [value]
    while rest:
        node = rest.pop()
        if type(node) is dict:
            keys += len(node)
            rest.extend(node.values())
        elif type(node) is list:
            rest.extend(node)
        elif type(node) is float:
            return False
    return keys == raw.count(b":")


_STRING = re.compile(rb'"[^"]*"')
_BRACKETS = bytes.maketrans(b"{}[]", b"()()")
_NO_BRACKETS = bytes(set(range(256)) - set(b"{}[]"))


def _nests_too_deep(raw: bytes) -> bool:
    # In passes that run in C, since a message may be nothing but brackets: what is left of the
    # text are its brackets, and each pass takes away the innermost pair of every nest.
    text = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    nests = _STRING.sub(b"", text).translate(_BRACKETS, _NO_BRACKETS)
    for _ in range(MAX_DEPTH):
        if not nests:
            return False
        nests = nests.replace(b"()", b"")
    # Brackets without their other half are no JSON, unless they are too many to be told apart.
    return b"()" in nests or nests.count(b"(") > MAX_DEPTH


class _Pairs(list[tuple[str, Any]]):
    """An object as it stands in the text: its keys and values in order, twice where they are."""


def _read_slowly(raw: bytes) -> Parsed:
    try:
        spelled = json.loads(raw, object_pairs_hook=_Pairs, parse_constant=_refuse_constant)
    except ValueError as error:
        # `orjson` has read it, so what is left is an integer of thousands of digits.
        raise NotJsonError(NOT_JSON) from error
    duplicates: list[str] = []
    return Parsed(_plain(spelled, "", duplicates), tuple(duplicates))


def _plain(node: Any, place: str, duplicates: list[str]) -> Any:
    if isinstance(node, _Pairs):
        made: dict[str, Any] = {}
        for key, inner in node:
            inner_place = _inside(place, key)
            if key in made:
                duplicates.append(inner_place)
            made[key] = _plain(inner, inner_place, duplicates)
        return made
    if isinstance(node, list):
        return [
            _plain(inner, _inside(place, str(number)), duplicates)
            for number, inner in enumerate(node)
        ]
    return node


def _inside(place: str, key: str) -> str:
    key = key[:MAX_PLACE]
    return f"{place}.{key}"[:MAX_PLACE] if place else key


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"`{text}` is no JSON number")
