"""The web server around a site: uvicorn, with the parser and the loop that measured fastest."""

from __future__ import annotations

import signal
import socket
import sys
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn

from limen.errors import LimenError

if TYPE_CHECKING:
    from limen.transport.site import Site

BACKLOG = 1_024
KEEP_ALIVE_S = 75
"""Seconds that an idle connection stays open: longer than most proxies keep theirs."""

GRACE_S = 5
"""Seconds that running calls get when we end."""

SWITCH_S = 0.0005
"""Seconds after which a thread that waits for its turn gets it, a tenth of what is usual."""

MAX_CONNECTIONS = 2_048


class WebServer(uvicorn.Server):
    """Serve a site until SIGINT or SIGTERM; then streams end first, and calls are answered."""

    def __init__(self, site: Site) -> None:
        super().__init__(
            uvicorn.Config(
                site,
                http="httptools",
                loop="auto",
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=GRACE_S,
                limit_concurrency=MAX_CONNECTIONS,
                backlog=BACKLOG,
            )
        )
        self._site = site

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End the streams that stay open, or the server would wait for them."""
        # uvicorn's own notes the signal and raises it again in the end. By then the handlers are
        # those of before, and a SIGTERM would kill us before the store is closed.
        self._site.close()
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True


def bind(host: str, port: int) -> socket.socket:
    """Return a socket bound to an address, not listening yet. Port 0 takes any free one.

    Raises:
        LimenError: the address cannot be used.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise LimenError(f"cannot serve at `{host}:{port}`: {reason}") from error
    return bound


def serve(site: Site, bound: socket.socket) -> None:
    """Serve a site at a bound socket until a signal ends us."""
    # Calls wait for the thread that commits their rows, and that thread for its turn.
    sys.setswitchinterval(SWITCH_S)
    WebServer(site).run(sockets=[bound])
