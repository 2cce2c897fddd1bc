"""The one place where a request leaves the house: one attempt, bounded in time and in bytes."""

from __future__ import annotations

import asyncio
import functools
import ssl
import zlib
from urllib.parse import urlsplit

import httpx

from limen.ports import Clock
from limen.upstream.client import USER_AGENT, Ask, Fetched, Manners
from limen.upstream.errors import NoAnswerError, SourceChangedError

ONE_GZIP_MEMBER = 16 + zlib.MAX_WBITS
"""What tells zlib to expect a gzip header."""


class Connection:
    """Keep the connections to one host, and send single requests over them."""

    def __init__(self, base_url: str, clock: Clock, manners: Manners) -> None:
        self._host = urlsplit(base_url).netloc
        self._clock = clock
        self._manners = manners
        self._http = httpx.AsyncClient(
            base_url=base_url,
            verify=_tls(),
            headers={"User-Agent": USER_AGENT, "Accept-Encoding": "gzip"},
            timeout=manners.attempt_timeout_s,
            limits=httpx.Limits(max_connections=manners.connections),
            follow_redirects=False,
            # A proxy of the environment cannot reach this machine's own loopback.
            trust_env=base_url.startswith("https:"),
        )

    async def send(self, ask: Ask) -> Fetched:
        """Send one request and return its whole answer, of any status.

        Raises:
            NoAnswerError: none came in time, or not all of it.
            SourceChangedError: it is longer than allowed, or packed in a way we do not read.
        """
        try:
            async with (
                asyncio.timeout(self._manners.attempt_timeout_s),
                self._http.stream(
                    ask.method,
                    ask.path,
                    params=ask.query,
                    headers=ask.headers,
                    content=ask.content,
                ) as response,
            ):
                body = await self._read(response)
        except (TimeoutError, httpx.TimeoutException) as error:
            raise NoAnswerError(
                f"host `{self._host}` gave no whole answer within"
                f" {self._manners.attempt_timeout_s:g} s"
            ) from error
        except httpx.TransportError as error:
            raise NoAnswerError(
                f"host `{self._host}` gave no whole answer: {type(error).__name__}"
            ) from error
        # INVARIANT: no answer's cookie goes out with another request.
        self._http.cookies.clear()
        return Fetched(response.status_code, dict(response.headers), body, self._clock.now())

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def _read(self, response: httpx.Response) -> bytes:
        packed = response.headers.get("content-encoding", "identity").strip().lower()
        if packed not in {"identity", "", "gzip"}:
            raise SourceChangedError(f"host `{self._host}` packs its answer as `{packed[:40]}`")
        unpacking = zlib.decompressobj(ONE_GZIP_MEMBER) if packed == "gzip" else None
        limit = self._manners.max_body
        body, came = bytearray(), 0
        async for chunk in response.aiter_raw():
            came += len(chunk)
            # Unpacked to one byte beyond the limit and no further: a small answer may hide much.
            body += self._unpacked(unpacking, chunk, limit - len(body) + 1)
            if len(body) > limit:
                raise SourceChangedError(
                    f"host `{self._host}` answers with more than {limit} bytes"
                )
        # An answer without a body (304, or an empty window) may name a packing all the same.
        if unpacking is not None and came and not unpacking.eof:
            raise NoAnswerError(f"host `{self._host}` gave no whole answer: the packing ends early")
        return bytes(body)

    def _unpacked(self, unpacking: zlib._Decompress | None, chunk: bytes, room: int) -> bytes:
        if unpacking is None:
            return chunk
        try:
            unpacked = unpacking.decompress(chunk, room)
        except zlib.error as error:
            raise SourceChangedError(
                f"host `{self._host}` says `gzip` and sends something else"
            ) from error
        if unpacking.unused_data:
            raise SourceChangedError(f"host `{self._host}` sends more after its packed answer")
        return unpacked


@functools.cache
def _tls() -> ssl.SSLContext:
    # Made once a process, at the first request: reading the certificates costs 20 ms.
    return httpx.create_ssl_context()
