"""Composition of what is served over HTTP: endpoints, their tokens, and the site around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from limen.app import new_call_id
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
