"""Bodies that were fetched, kept up to a number of bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime

from limen.servers.ecb.sources import Body

LEAST_SIZE = 1024
"""Bytes. What keeping even an empty body costs."""

Key = tuple[str, date, date]
"""Currency, first day, last day: what one request asks for."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A body and what is known of it: until when it is fresh, and the portal's own time stamp.

    `if_modified_since` is that stamp to the letter, empty without one. `size` is in bytes.
    """

    body: Body
    fresh_until: datetime
    if_modified_since: str
    size: int


class KeptBodies:
    """Keep bodies up to a number of bytes; the ones longest unused go first."""

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._size = 0
        self._kept: OrderedDict[Key, Kept] = OrderedDict()

    def find(self, key: Key) -> Kept | None:
        """Return what is kept for exactly this key, fresh or not."""
        return self._kept.get(key)

    def find_fresh(self, key: Key, now: datetime) -> Body | None:
        """Return a fresh body whose window has this one in it, clipped, or None."""
        for kept_key in self._covering(key):
            kept = self._kept[kept_key]
            if now < kept.fresh_until:
                self._kept.move_to_end(kept_key)
                return kept.body.within(key[1], key[2])
        return None

    def put(self, key: Key, kept: Kept) -> None:
        """Keep a body in place of an older one; drop others if there is no room."""
        before = self._kept.pop(key, None)
        self._size += kept.size - (before.size if before else 0)
        self._kept[key] = kept
        while self._size > self._max_size:
            _, dropped = self._kept.popitem(last=False)
            self._size -= dropped.size

    def _covering(self, key: Key) -> Iterator[Key]:
        currency, first, last = key
        if key in self._kept:
            yield key
        yield from [
            (other, since, until)
            for other, since, until in self._kept
            if other == currency and since <= first and last <= until
        ]
