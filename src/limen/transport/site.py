"""One web address with several MCP endpoints: which hosts and origins it answers, and for what.

Everything follows from the public URL that the owner has set; nothing is made from what a request
says of itself. Requests under a wrong host or from a wrong origin never reach a gate.

Source: MCP specification 2026-07-28, Streamable HTTP; RFC 9728; WHATWG Fetch (CORS).
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import orjson

from limen.transport.http import (
    JSON,
    HttpEndpoint,
    RawHeaders,
    Receive,
    Scope,
    Send,
    respond,
)

WELL_KNOWN = "/.well-known/oauth-protected-resource"
LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})

ALLOWED_METHODS = b"POST, GET, DELETE, OPTIONS"
ALLOWED_HEADERS = re.compile(r"(?:accept|authorization|content-type|last-event-id|mcp-[a-z0-9_-]+)")
EXPOSED = b"WWW-Authenticate, Mcp-Session-Id, Retry-After"
PREFLIGHT_S = b"600"
METADATA_S = b"max-age=300"
"""How long a browser may remember a preflight, and anybody the metadata: seconds."""

MAX_ASKED_HEADERS = 64


@dataclass(frozen=True, slots=True)
class Mounted:
    """One endpoint: its path, what it is called in public, and who issues tokens for it.

    `scopes` are those that a caller can ask for; what only some hold is not told.
    """

    path: str
    endpoint: HttpEndpoint
    resource: str
    title: str
    issuers: tuple[str, ...]
    scopes: tuple[str, ...]

    def metadata(self) -> bytes:
        """Return the document of RFC 9728."""
        described: dict[str, Any] = {
            "resource": self.resource,
            "authorization_servers": self.issuers,
            "scopes_supported": self.scopes,
            "bearer_methods_supported": ["header"],
            "resource_name": self.title,
        }
        return orjson.dumps({key: value for key, value in described.items() if value})


def metadata_url(resource: str) -> str:
    """Return where the document of RFC 9728 of a resource is."""
    parts = urlsplit(resource)
    return f"{parts.scheme}://{parts.netloc}{WELL_KNOWN}{parts.path.rstrip('/')}"


def challenge(resource: str, scopes: Sequence[str]) -> str:
    """Return the `WWW-Authenticate` value of an endpoint, without its `error`."""
    wanted = f', scope="{" ".join(scopes)}"' if scopes else ""
    return f'Bearer resource_metadata="{metadata_url(resource)}"{wanted}'


class Site:
    """Answer what comes to one web address. An ASGI application."""

    def __init__(
        self,
        public_url: str,
        mounted: Sequence[Mounted],
        *,
        origins: Sequence[str] = (),
        ready: Callable[[], bool] = lambda: True,
        at_end: Sequence[Callable[[], Awaitable[None]]] = (),
    ) -> None:
        """Mount the endpoints. `origins` may call from browsers besides `public_url`'s own.

        `at_end` is done last, in the loop that served.
        """
        parts = urlsplit(public_url)
        self._host = parts.netloc.lower()
        self._origins = {f"{parts.scheme}://{self._host}", *(one.lower() for one in origins)}
        self._mounted = tuple(mounted)
        self._ready = ready
        self._at_end = tuple(at_end)
        self._endpoints: dict[str, HttpEndpoint] = {}
        self._documents: dict[str, bytes] = {}
        for one in mounted:
            # INVARIANT: with and without a slash it is one endpoint, and nothing is redirected.
            self._endpoints[one.path] = self._endpoints[one.path + "/"] = one.endpoint
            self._documents[WELL_KNOWN + one.path] = one.metadata()
        if len(mounted) == 1:
            self._documents[WELL_KNOWN] = mounted[0].metadata()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or go along with the start and the end."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        if scope["type"] != "http":
            return
        said = _said(scope["headers"])
        if not self._is_our_host(said.get(b"host", [])):
            await _say(send, 421, "this server does not answer under that host name")
            return
        origins = said.get(b"origin", [])
        if origins and not self._is_our_origin(origins):
            await _say(send, 403, "this server takes no requests from that origin")
            return
        if origins:
            send = _with_cors(send, origins[0])
        await self._route(scope, said, receive, send)

    def close(self) -> None:
        """End the streams that are open."""
        for one in self._mounted:
            one.endpoint.close()

    async def _route(
        self, scope: Scope, said: Mapping[bytes, list[bytes]], receive: Receive, send: Send
    ) -> None:
        path, method = scope["path"], scope["method"]
        endpoint = self._endpoints.get(path)
        if endpoint is not None and method == "OPTIONS":
            await respond(send, 204, _preflight(said))
        elif endpoint is not None:
            await endpoint(scope, receive, send)
        elif method not in ("GET", "HEAD"):
            await _say(send, 404, "there is nothing at this address")
        elif path in self._documents:
            await respond(
                send, 200, [*JSON[:1], (b"cache-control", METADATA_S)], self._documents[path]
            )
        elif path == "/health":
            await respond(send, 200, JSON, b'{"status":"ok"}')
        elif path == "/health/ready":
            is_ready = self._ready()
            body = b'{"status":"ready"}' if is_ready else b'{"status":"not ready"}'
            await respond(send, 200 if is_ready else 503, JSON, body)
        else:
            await _say(send, 404, "there is nothing at this address")

    def _is_our_host(self, hosts: list[bytes]) -> bool:
        if len(hosts) != 1:
            return False
        host = hosts[0].decode("latin-1").lower()
        return host == self._host or _name_of(host) in LOOPBACK

    def _is_our_origin(self, origins: list[bytes]) -> bool:
        if len(origins) != 1:
            return False
        origin = origins[0].decode("latin-1").lower()
        if origin in self._origins:
            return True
        scheme, separator, host = origin.partition("://")
        return bool(separator) and scheme in ("http", "https") and _name_of(host) in LOOPBACK

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            else:
                self.close()
                for ending in self._at_end:
                    await ending()
                await send({"type": "lifespan.shutdown.complete"})
                return


def _said(headers: Sequence[tuple[bytes, bytes]]) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        found.setdefault(name.lower(), []).append(value)
    return found


_NAME = re.compile(r"(\[[0-9a-f:.]*\]|[^:/@\[\]]*)(?::[0-9]{1,5})?\Z")


def _name_of(host: str) -> str:
    """Return a host without its port, or "" when it is malformed."""
    found = _NAME.match(host)
    return found[1] if found else ""


def _preflight(said: Mapping[bytes, list[bytes]]) -> RawHeaders:
    asked = b",".join(said.get(b"access-control-request-headers", [])).decode("latin-1").lower()
    names = [name.strip() for name in asked.split(",", MAX_ASKED_HEADERS)]
    allowed = ", ".join(name for name in names if ALLOWED_HEADERS.fullmatch(name))
    return [
        (b"access-control-allow-methods", ALLOWED_METHODS),
        (b"access-control-allow-headers", allowed.encode("latin-1")),
        (b"access-control-max-age", PREFLIGHT_S),
    ]


def _with_cors(send: Send, origin: bytes) -> Send:
    """Return a `send` that lets a page of an allowed origin read the response."""
    more = [
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", EXPOSED),
        (b"vary", b"Origin"),
    ]

    async def allowing(message: Any) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *more]}
        await send(message)

    return allowing


async def _say(send: Send, status: int, text: str) -> None:
    await respond(send, status, [(b"content-type", b"text/plain; charset=utf-8")], text.encode())
