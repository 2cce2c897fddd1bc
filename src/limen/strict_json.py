"""Read JSON as it was sent: what a lenient parser would mend is an error or is reported.

No NaN, no lone surrogates, no bytes that are not UTF-8, no nesting without end; numbers beyond
64 bits stay exact; and keys that came twice in one object are named.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NoReturn

import orjson

from limen.errors import LimenError

MAX_DEPTH = 64
"""Objects and arrays inside each other, of a whole message. Real calls have about 8."""

NOT_JSON = "message is not JSON"
TOO_DEEP = f"message nests deeper than {MAX_DEPTH} levels"


class NotJsonError(LimenError):
    """Say that a message is not JSON as this boundary reads it. Repeats nothing of it."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """A JSON value, and the places of keys that came twice: `params.arguments.path`.

    Of a key that came twice, the value is its last. Places in arrays are numbers: `items.0.key`.
    """

    value: Any
    duplicates: tuple[str, ...] = ()


def read(raw: bytes) -> Parsed:
    """Return the value of JSON text.

    Raises:
        NotJsonError: it is not JSON in UTF-8, or nests too deeply.
    """
    _refuse_depth(raw)
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


def _refuse_depth(raw: bytes) -> None:
    # Most messages have fewer opening brackets than levels are allowed, strings included.
    if raw.count(b"{") + raw.count(b"[") <= MAX_DEPTH:
        return
    depth = 0
    in_string = is_escaped = False
    for byte in raw:
        if in_string:
            if is_escaped:
                is_escaped = False
            elif byte == 0x5C:
                is_escaped = True
            elif byte == 0x22:
                in_string = False
        elif byte == 0x22:
            in_string = True
        elif byte in b"{[":
            depth += 1
            if depth > MAX_DEPTH:
                raise NotJsonError(TOO_DEEP)
        elif byte in b"}]":
            depth -= 1


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
            inner_place = f"{place}.{key}" if place else key
            if key in made:
                duplicates.append(inner_place)
            made[key] = _plain(inner, inner_place, duplicates)
        return made
    if isinstance(node, list):
        return [
            _plain(inner, f"{place}.{number}" if place else str(number), duplicates)
            for number, inner in enumerate(node)
        ]
    return node


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"`{text}` is no JSON number")
