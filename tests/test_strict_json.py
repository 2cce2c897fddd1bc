"""JSON as it was sent: exact, bounded, and loud about keys that came twice."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limen.strict_json import MAX_DEPTH, MAX_PLACE, NOT_JSON, TOO_DEEP, NotJsonError, Parsed, read
from promised import promise


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b'{"a":1}', {"a": 1}),
        (b' {"a" : 1 } ', {"a": 1}),
        (b'{"a":":{}[]"}', {"a": ":{}[]"}),
        (b"[1.5,-0.0,true,null]", [1.5, -0.0, True, None]),
        (b'"\\u00e9\\ud83d\\ude00"', "é😀"),
        (b"18446744073709551615", 18446744073709551615),
        (b'{"a":123456789012345678901234567890}', {"a": 123456789012345678901234567890}),
    ],
)
def test_json_is_read_as_it_was_sent(raw: bytes, expected: Any) -> None:
    assert read(raw) == Parsed(expected)


@promise("duplicate-keys")
@pytest.mark.parametrize(
    ("raw", "value", "duplicates"),
    [
        (b'{"a":1,"a":2}', {"a": 2}, ("a",)),
        (b'{"a":1,"a":1}', {"a": 1}, ("a",)),
        (b'{"a":1,"\\u0061":2}', {"a": 2}, ("a",)),
        (b'{"p":{"q":[{"x":1,"x":2}]}}', {"p": {"q": [{"x": 2}]}}, ("p.q.0.x",)),
        (b'{"a":{"b":1,"b":2},"a":{}}', {"a": {}}, ("a.b", "a")),
        (b'[{"a":1,"a":2}]', [{"a": 2}], ("0.a",)),
        (b'{"a:b":1,"a:b":2}', {"a:b": 2}, ("a:b",)),
        (b'{"":1,"":2}', {"": 2}, ("",)),
    ],
)
def test_keys_that_came_twice_are_named_with_their_place(
    raw: bytes, value: Any, duplicates: tuple[str, ...]
) -> None:
    assert read(raw) == Parsed(value, duplicates)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"NaN",
        b"[Infinity]",
        b"-Infinity",
        b"[1,]",
        b"{'a':1}",
        b"\xff",
        b'"\xc3"',
        b'"\\ud800"',
        b"1e999",
        b"\xef\xbb\xbf{}",
        b"{} {}",
        b'{"a":' + b"1" * 5000 + b"}",
        b"01",
        b'"\x01"',
        b"\x00",
    ],
)
def test_what_is_not_json_is_refused_without_being_repeated(raw: bytes) -> None:
    with pytest.raises(NotJsonError, match=NOT_JSON):
        read(raw)


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_nesting_has_a_bound(opening: bytes, closing: bytes) -> None:
    read(opening * (MAX_DEPTH - 1) + b"[]" + closing * (MAX_DEPTH - 1))
    for depth in (MAX_DEPTH + 1, 100_000):
        with pytest.raises(NotJsonError, match=TOO_DEEP):
            read(opening * depth + b"1" + closing * depth)


def test_brackets_inside_strings_are_no_nesting() -> None:
    text = "[{" * 1_000 + '\\"'
    assert read(json.dumps([text]).encode()).value == [text]


@promise("duplicate-keys")
def test_a_long_key_around_many_repeats_does_not_make_the_message_larger() -> None:
    repeats = ",".join(['{"a":1,"a":1}'] * 2_000)
    parsed = read(f'{{"params":{{"{"k" * 50_000}":[{repeats}]}}}}'.encode())
    assert len(parsed.duplicates) == 2_000
    assert all(len(place) <= MAX_PLACE for place in parsed.duplicates)
    assert all(place.startswith("params.kkk") for place in parsed.duplicates)


def depth_of(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(map(depth_of, inner), default=0) if isinstance(value, (dict, list)) else 0


pieces = st.text(st.sampled_from('[]{}\\" a'), max_size=8)


@given(
    depth=st.integers(MAX_DEPTH - 3, MAX_DEPTH + 3),
    wide=st.lists(pieces, max_size=4),
    keys=st.lists(pieces, min_size=1, max_size=3),
)
@settings(max_examples=150, deadline=None)
def test_depth_is_that_of_the_value_whatever_stands_in_strings(
    depth: int, wide: list[str], keys: list[str]
) -> None:
    value: Any = []
    for level in range(depth - 1):
        value = [[], *wide, value, {}] if level % 3 else {keys[level % len(keys)]: value}
    assert depth_of(value) == depth
    raw = json.dumps(value).encode()
    if depth <= MAX_DEPTH:
        assert read(raw) == Parsed(value)
    else:
        with pytest.raises(NotJsonError, match=TOO_DEEP):
            read(raw)


def test_many_brackets_that_never_close_are_no_json_rather_than_deep() -> None:
    with pytest.raises(NotJsonError, match=NOT_JSON):
        read(b"[" + b"[]," * 1_000)


class Twice(list[tuple[str, Any]]):
    """An object whose keys may stand in it twice."""


def spelled(node: Any) -> str:
    if isinstance(node, Twice):
        return "{" + ",".join(f"{json.dumps(key)}:{spelled(inner)}" for key, inner in node) + "}"
    if isinstance(node, list):
        return "[" + ",".join(spelled(inner) for inner in node) + "]"
    return json.dumps(node)


def plain(node: Any) -> Any:
    if isinstance(node, Twice):
        return {key: plain(inner) for key, inner in node}
    return [plain(inner) for inner in node] if isinstance(node, list) else node


def has_twice(node: Any) -> bool:
    if isinstance(node, Twice):
        keys = [key for key, _ in node]
        return len(keys) != len(set(keys)) or any(has_twice(inner) for _, inner in node)
    return isinstance(node, list) and any(has_twice(inner) for inner in node)


json_with_repeats = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(st.tuples(st.sampled_from(["a", "b", "c:", 'd"']), inner), max_size=4).map(Twice)
    ),
    max_leaves=12,
)


@promise("duplicate-keys")
@given(node=json_with_repeats)
@settings(max_examples=400, deadline=None)
def test_values_and_repeats_agree_with_how_they_were_spelled(node: Any) -> None:
    parsed = read(spelled(node).encode())
    assert parsed.value == plain(node)
    assert bool(parsed.duplicates) == has_twice(node)


@given(raw=st.binary(max_size=40))
@settings(max_examples=400, deadline=None)
def test_bytes_are_json_here_only_if_the_standard_library_says_so_too(raw: bytes) -> None:
    try:
        value = read(raw).value
    except NotJsonError:
        return
    assert json.loads(raw) == value
