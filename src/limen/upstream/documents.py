"""Small documents of other parties, such as key sets: one request, no redirect, bounded."""

from __future__ import annotations

import httpx

from limen.upstream.errors import SourceDownError

WAIT_S = 10.0
"""Seconds for one document, from connecting to its last byte of each read."""


async def fetch_document(url: str, max_size: int) -> bytes:
    """Return a document.

    Args:
        url: where it is.
        max_size: bytes; a longer one is none.

    Raises:
        SourceDownError: there is no answer, or none of status 200, or it is too long.
    """
    body = bytearray()
    try:
        async with (
            httpx.AsyncClient(timeout=WAIT_S, follow_redirects=False) as client,
            client.stream("GET", url, headers={"Accept": "application/json"}) as response,
        ):
            if response.status_code != 200:
                raise SourceDownError(f"`{url}` answered with status {response.status_code}")
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > max_size:
                    raise SourceDownError(f"`{url}` has more than {max_size} bytes")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise SourceDownError(f"`{url}` gave no answer: {type(error).__name__}") from error
    return bytes(body)
