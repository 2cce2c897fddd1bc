"""One spelling for every JSON value, so that equal values have equal digests.

Keys sorted by code point, no spaces, UTF-8: the form of RFC 8785 for every value without floats
and without keys beyond the basic plane, which is all that an audit row can hold.
"""

from __future__ import annotations

import hashlib
from typing import Any

import orjson


def canonical(value: Any) -> bytes:
    """Return the canonical bytes of a JSON value.

    Raises:
        TypeError: the value has no JSON form, or has an integer beyond 64 bits.
    """
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def digest(value: Any) -> str:
    """Return `sha-256:` and the hex digest of the canonical bytes of a JSON value."""
    return digest_bytes(canonical(value))


def digest_bytes(raw: bytes) -> str:
    """Return `sha-256:` and the hex digest of bytes as they are."""
    return "sha-256:" + hashlib.sha256(raw).hexdigest()
