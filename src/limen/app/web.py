"""Composition of what is served over HTTP: endpoints, their tokens, and the site around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from limen.app import SystemClock, new_call_id
from limen.catalogue import Catalogue
from limen.gate import Gate
from limen.ports import CallerReader, Clock
from limen.transport.envelope import Envelope
from limen.transport.http import HttpEndpoint, Switches
from limen.transport.site import Mounted, challenge
from limen.version import __version__


class Served(Protocol):
    """A server, put together."""

    @property
    def catalogue(self) -> Catalogue:
        """Return what it offers."""

    @property
    def gate(self) -> Gate:
        """Return its gate."""


@dataclass(frozen=True, slots=True)
class StillClock:
    """A clock for budgets whose arithmetic has to be exact: it never goes on."""

    real: SystemClock

    def now(self) -> datetime:
        """Return the time of day, aware UTC."""
        return self.real.now()

    def monotonic(self) -> float:
        """Return the same second for ever."""
        return 0.0


def mount(
    server: Served,
    path: str,
    resource: str,
    callers: CallerReader,
    *,
    issuers: Sequence[str],
    scopes: Sequence[str],
    clock: Clock,
    max_message: int,
    switches: Switches,
) -> Mounted:
    """Return a server at a path. `resource` is what tokens for it name; it is its public URL."""
    catalogue = server.catalogue
    envelope = Envelope(catalogue.server, catalogue.title, __version__, "http", clock, new_call_id)
    endpoint = HttpEndpoint(
        server.gate,
        envelope,
        callers,
        max_message=max_message,
        challenge=challenge(resource, scopes),
        switches=switches,
    )
    return Mounted(path, endpoint, resource, catalogue.title, tuple(issuers), tuple(scopes))
