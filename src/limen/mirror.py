"""Headers that mirror the body, as the 2026-07-28 revision has them over HTTP.

A header value is plain text, or `=?base64?…?=` around the base64 of UTF-8. It is decoded before it
is compared, because what routes by the header and what runs by the body must mean the same.

Source: MCP specification 2026-07-28, Streamable HTTP, sections "Value Encoding" and "Custom
Headers from Tool Parameters".
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from limen.errors import CatalogueError

KEYWORD = "x-mcp-header"
PREFIX = "mcp-param-"
TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
"""A field name of HTTP, RFC 9110 §5.1."""

PRIMITIVES = frozenset({"integer", "string", "boolean"})
_PLAIN = re.compile(r"[\t\x20-\x7e]*\Z")
_ENCODED = re.compile(r"=\?base64\?(.*)\?=\Z")


@dataclass(frozen=True, slots=True)
class Mirrored:
    """One argument that a header repeats: its path in the arguments, and the header's name."""

    path: tuple[str, ...]
    header: str
    """In lower case, with `mcp-param-` before it."""

    def flaw(self, arguments: Any, headers: Mapping[str, Sequence[str]]) -> str | None:
        """Return what does not agree, in words that repeat no value; None when all does."""
        values = headers.get(self.header, ())
        expected = _at(arguments, self.path)
        if expected is None:
            return f"header `{self.header}` mirrors what is not there" if values else None
        if not values:
            return f"header `{self.header}` is missing"
        if len(values) > 1:
            return f"header `{self.header}` came twice"
        said = decoded(values[0])
        if said is None:
            return f"header `{self.header}` is malformed"
        if not _means(said, expected):
            return f"header `{self.header}` does not match the arguments"
        return None


def decoded(value: str) -> str | None:
    """Return what a header value says, or None when it is malformed."""
    value = value.strip(" \t")
    if not _PLAIN.match(value):
        return None
    encoded = _ENCODED.match(value)
    if encoded is None:
        return value
    try:
        return base64.b64decode(encoded[1], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


def mirrored_by(schema: Mapping[str, Any]) -> tuple[Mirrored, ...]:
    """Return the arguments that a tool's schema wants repeated in headers.

    Raises:
        CatalogueError: an annotation stands where the specification does not allow it.
    """
    found = tuple(_reachable(schema, ()))
    everywhere = _count(schema)
    if everywhere != len(found):
        raise CatalogueError(
            f"`{KEYWORD}` stands where no chain of `properties` leads: move it to an argument"
        )
    names = [one.header for one in found]
    if len(set(names)) != len(names):
        raise CatalogueError(f"two arguments have the same `{KEYWORD}`: give each its own")
    return found


def _reachable(schema: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[Mirrored]:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return
    for name, inner in properties.items():
        if not isinstance(inner, Mapping):
            continue
        if KEYWORD in inner:
            header = inner[KEYWORD]
            if not isinstance(header, str) or not TOKEN.match(header):
                raise CatalogueError(f"`{KEYWORD}` of `{name}` is no header name: use letters")
            if inner.get("type") not in PRIMITIVES:
                raise CatalogueError(
                    f"`{KEYWORD}` of `{name}` needs the type `integer`, `string` or `boolean`"
                )
            yield Mirrored((*path, name), PREFIX + header.lower())
        yield from _reachable(inner, (*path, name))


def _count(node: Any) -> int:
    if isinstance(node, Mapping):
        # As a property's name it is an argument like any other.
        own = int(KEYWORD in node and not isinstance(node[KEYWORD], Mapping))
        return own + sum(_count(inner) for inner in node.values())
    return sum(_count(inner) for inner in node) if isinstance(node, list) else 0


def _at(arguments: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        if not isinstance(arguments, Mapping):
            return None
        arguments = arguments.get(name)
    return arguments


def _means(said: str, expected: Any) -> bool:
    if isinstance(expected, bool):
        return said == ("true" if expected else "false")
    if isinstance(expected, int):
        try:
            return Decimal(said) == expected
        except InvalidOperation:
            return False
    return bool(said == expected)
