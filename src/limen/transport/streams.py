"""Event streams over HTTP: answers as events, and streams that stay open for notices.

Source: WHATWG HTML, "Server-sent events"; MCP specification 2026-07-28, "subscriptions/listen".
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import orjson

EVENT_STREAM = "text/event-stream"
HEADERS = [
    (b"content-type", EVENT_STREAM.encode()),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
KEEP_ALIVE_S = 15.0
"""Seconds between two comments on a quiet stream. Proxies close one after 30 to 60."""

MAX_OF_CALLER = 8
MAX_STREAMS = 1_000
"""Streams open at once. Each holds a connection and about 10 kB."""

SUBSCRIPTION_KEY = "io.modelcontextprotocol/subscriptionId"

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


def event(message: bytes) -> bytes:
    """Return a JSON-RPC message as one event. It is one line of JSON."""
    return b"event: message\ndata: " + message + b"\n\n"


def acknowledged(request_id: str | int | None) -> bytes:
    """Return the first notice of a subscription: what was agreed to.

    Nothing is: what our own servers list changes only with a restart.
    """
    params = {"notifications": {}, "_meta": {SUBSCRIPTION_KEY: request_id}}
    method = "notifications/subscriptions/acknowledged"
    return orjson.dumps({"jsonrpc": "2.0", "method": method, "params": params})


class Streams:
    """Keep streams open until their client leaves or we end. Bounded by caller and in all."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()
        self._ended = asyncio.Event()

    def has_room(self, caller: str) -> bool:
        """Tell whether a caller may open another stream."""
        return self._open[caller] < MAX_OF_CALLER and self._open.total() < MAX_STREAMS

    async def keep_open(
        self, caller: str, first: bytes, last: bytes, receive: Receive, send: Send
    ) -> None:
        """Send `first`, comments while it is quiet, and `last` if it is us who end it."""
        self._open[caller] += 1
        gone = asyncio.ensure_future(_left(receive))
        ended = asyncio.ensure_future(self._ended.wait())
        try:
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            await send({"type": "http.response.body", "body": first, "more_body": True})
            while True:
                done, _ = await asyncio.wait(
                    (gone, ended), timeout=KEEP_ALIVE_S, return_when=asyncio.FIRST_COMPLETED
                )
                if gone in done:
                    return
                if ended in done:
                    await send({"type": "http.response.body", "body": last})
                    return
                await send({"type": "http.response.body", "body": b":\n\n", "more_body": True})
        finally:
            for waiting in (gone, ended):
                waiting.cancel()
            self._open[caller] -= 1
            if not self._open[caller]:
                del self._open[caller]

    def close(self) -> None:
        """End every stream."""
        self._ended.set()


async def _left(receive: Receive) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        while (await receive())["type"] != "http.disconnect":
            pass
