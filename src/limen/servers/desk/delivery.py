"""Empty the outbox: each item is sent once, after any kill, or nobody claims to know.

A kill can fall before `sending` is durable (nothing was sent), after it (the destination is asked),
or after the outcome is durable (nothing is left to do). There is no fourth place.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from limen.canonical import digest_bytes
from limen.errors import DeliveryError, StoreError
from limen.servers.desk.destinations import Arrival, Destination, Item


class Outbox(Protocol):
    """Show what is committed at the time of each look."""

    def keys_in(self, state: str) -> Sequence[str]:
        """Return the keys of all items in a state, those queued first before the others."""

    def find(self, key: str) -> Item | None:
        """Return an item, or None."""


class Change(Protocol):
    """Move an item from one state to another, with its audit row, in one transaction."""

    def __call__(self, key: str, from_state: str, to_state: str, detail: str) -> bool:
        """Durable once it returns true. False when the item was not in `from_state`."""


def deliver(
    outbox: Outbox, destinations: Mapping[str, Destination], lock_path: Path, change: Change
) -> Counter[str]:
    """Send all that is queued, first settle what a dead process left, and count the outcomes.

    Blocks while another process or thread is at it. Returns how many items came to `delivered`,
    `failed` and `unconfirmed`. `unconfirmed` is final here: only a person can tell.

    Raises:
        StoreError: an item left `sending` although only this process may move it.
        OSError: the lock file cannot be opened.
    """
    with _locked(lock_path):
        drain = _Drain(outbox, destinations, change)
        # INVARIANT: whoever sends holds the lock, so a row seen `sending` here has no sender.
        for key in outbox.keys_in("sending"):
            drain.settle_abandoned(key)
        drain.send_queued()
        return drain.outcomes


@dataclass(frozen=True, slots=True)
class _Drain:
    outbox: Outbox
    destinations: Mapping[str, Destination]
    change: Change
    outcomes: Counter[str] = field(default_factory=Counter)

    def settle_abandoned(self, key: str) -> None:
        item = self.outbox.find(key)
        if item is None:
            return
        destination = self.destinations.get(item.destination)
        arrival = destination.confirm(item) if destination is not None else Arrival.UNKNOWN
        if arrival is Arrival.ABSENT:
            # Under the same key, and still `sending`: the first attempt has left nothing behind.
            self._send(item)
        elif arrival is Arrival.DELIVERED:
            self._end(key, "delivered", "found delivered after the sender had died")
        else:
            self._end(key, "unconfirmed", "the sender died and the destination cannot tell")

    def send_queued(self) -> None:
        offered: set[str] = set()
        while keys := [key for key in self.outbox.keys_in("queued") if key not in offered]:
            for key in keys:
                offered.add(key)
                item = self.outbox.find(key)
                if item is not None and self.change(key, "queued", "sending", ""):
                    self._send(item)

    def _send(self, item: Item) -> None:
        # From here on: `sending` is durable, so a kill at any line is found by the next drain.
        destination = self.destinations.get(item.destination)
        if destination is None:
            self._end(item.key, "failed", "no destination by that name is set up")
        elif digest_bytes(item.content.encode()) != item.content_digest:
            # Fails closed: a person approved the digest, not whatever the row holds now.
            self._end(item.key, "failed", "content does not have the digest that was approved")
        else:
            try:
                receipt = destination.send(item)
            except DeliveryError as error:
                self._end(item.key, "failed" if error.confirmed else "unconfirmed", str(error))
            else:
                self._end(item.key, "delivered", receipt)

    def _end(self, key: str, state: str, detail: str) -> None:
        if not self.change(key, "sending", state, detail):
            raise StoreError(f"outbox item is no longer `sending`: `{key}` ended as `{state}`")
        self.outcomes[state] += 1


@contextlib.contextmanager
def _locked(lock_path: Path) -> Iterator[None]:
    # The file stays: removing it would let two holders lock two files of the same name.
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(lock_path, flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
