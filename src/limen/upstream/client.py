"""Ask one host over HTTP, politely: few requests, each of them paid for, none for ever."""

from __future__ import annotations

import asyncio
import ipaddress
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Literal
from urllib.parse import parse_qsl, urljoin, urlsplit

from limen.ports import Clock
from limen.upstream.breaker import Breaker
from limen.upstream.errors import (
    NoAnswerError,
    SourceChangedError,
    SourceDownError,
    SourceThrottledError,
    WrongHostError,
)
from limen.upstream.throttle import Sleep, Throttle
from limen.version import __version__

if TYPE_CHECKING:
    from limen.upstream.connection import Connection

USER_AGENT = f"limen/{__version__} (+an MCP server; it asks for whoever runs it)"
"""What every request says it is, whoever called."""

CREDENTIALS = frozenset({"authorization", "proxy-authorization", "cookie"})
"""Headers that no request ever has: a caller's credential stays at the boundary."""

TRY_AGAIN = frozenset({429, 500, 502, 503, 504})
"""Statuses after which the same request may get an answer. A 501 will not change in a minute."""

REDIRECTS = frozenset({301, 302, 303, 307, 308})

MAX_REDIRECTS = 3
"""Hops on the same host. Each is a request and pays as one."""

MAX_RETRY_AFTER_S = 86_400.0
"""Seconds. A source that names a later time is asked again after a day all the same."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request, and its own key: two that are equal ask the same.

    It must be safe to send twice. `path` starts with `/`; query and headers keep their order.
    """

    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    method: Literal["GET", "POST"] = "GET"
    content: bytes = b""


@dataclass(frozen=True, slots=True)
class Fetched:
    """One whole answer, of any status.

    Header names are lower case. `completed_at` is when the last byte was here. `retry_after_s` is
    what `Retry-After` says, from then on; None without one.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    completed_at: datetime
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Manners:
    """How politely one source is asked.

    `burst` requests at once and `per_second` afterwards; `attempts` for one answer, the first
    pause `backoff_s` long and each next one twice that, with as much again at random;
    `attempt_timeout_s` for one attempt from connecting to the last byte, and `deadline_s` for
    everything, waiting included. `max_body` is in bytes, unpacked.
    """

    burst: int = 5
    per_second: float = 2.0
    connections: int = 4
    attempts: int = 3
    backoff_s: float = 0.5
    attempt_timeout_s: float = 15.0
    deadline_s: float = 60.0
    max_body: int = 8 * 1024 * 1024
    failures_to_open: int = 5
    cool_down_s: float = 30.0


class Client:
    """Ask one host. For the tasks of one event loop; `close` it in that loop.

    It connects at the first request. Redirects are followed on the same host only. Proxies of the
    environment are used, and nothing else of it: no password file, no cookie of another answer.
    """

    def __init__(
        self,
        base_url: str,
        clock: Clock,
        manners: Manners | None = None,
        *,
        sleep: Sleep = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Prepare to ask the host of `base_url`.

        Args:
            base_url: scheme, host and perhaps port; HTTPS, or HTTP to a loopback address.
            clock: the time of day for answers, the monotonic one for waiting.
            manners: how politely to ask; by default as `Manners` says.
            sleep: how to wait.
            chance: a number from 0 to 1, for the jitter between attempts.

        Raises:
            WrongHostError: the URL is none that may be asked.
        """
        self.base_url = checked_base_url(base_url)
        self.host = urlsplit(self.base_url).netloc
        self.manners = manners or Manners()
        self._clock = clock
        self._sleep = sleep
        self._chance = chance
        self._throttle = Throttle(self.manners.burst, self.manners.per_second, clock, sleep)
        self._breaker = Breaker(clock, self.manners.failures_to_open, self.manners.cool_down_s)
        self._held_until = -math.inf
        self._connection: Connection | None = None
        self._closed = False

    async def fetch(self, ask: Ask) -> Fetched:
        """Return the answer to one request, whatever its status.

        A status that may pass, or no answer at all, is tried again; what the last attempt brought
        is returned or raised. `Retry-After` holds back every request to this host.

        Raises:
            SourceDownError: no answer came, the source is left alone for now, or this is closed.
            SourceThrottledError: waiting for the next request would go beyond the deadline.
            SourceChangedError: the answer is too long, oddly packed, or leads elsewhere.
        """
        _refuse_credentials(ask)
        deadline = self._clock.monotonic() + self.manners.deadline_s
        for _ in range(MAX_REDIRECTS + 1):
            fetched = await self._answered(ask, deadline)
            if fetched.status not in REDIRECTS:
                return fetched
            ask = self._redirected(ask, fetched.headers.get("location", ""))
        raise SourceChangedError(f"host `{self.host}` redirects more than {MAX_REDIRECTS} times")

    async def close(self) -> None:
        """Close all connections. Whoever still waits for an answer gets an error."""
        self._closed = True
        if self._connection is not None:
            await self._connection.close()

    async def _answered(self, ask: Ask, deadline: float) -> Fetched:
        pause_s, tries_left = self.manners.backoff_s, self.manners.attempts
        while True:
            tries_left -= 1
            try:
                fetched = await self._attempt(ask, deadline)
            except NoAnswerError:
                wait_s = self._next_try_in(pause_s, tries_left, deadline)
                if wait_s is None:
                    raise
            else:
                wait_s = self._next_try_in(pause_s, tries_left, deadline)
                if fetched.status not in TRY_AGAIN or wait_s is None:
                    return fetched
            await self._sleep(wait_s)
            pause_s *= 2

    def _next_try_in(self, pause_s: float, tries_left: int, deadline: float) -> float | None:
        now = self._clock.monotonic()
        wait_s = max(pause_s * (1 + self._chance()), self._held_until - now)
        return wait_s if tries_left > 0 and now + wait_s <= deadline else None

    async def _attempt(self, ask: Ask, deadline: float) -> Fetched:
        if self._closed:
            raise SourceDownError(f"client for `{self.host}` is closed")
        self._breaker.check()
        await self._wait_while_held(deadline)
        await self._throttle.pay(deadline - self._clock.monotonic())
        # Asked again: it may have opened while this one waited for its turn.
        self._breaker.admit()
        try:
            fetched = await self._connected().send(ask)
        except NoAnswerError:
            self._breaker.failed()
            raise
        except (SourceChangedError, asyncio.CancelledError):
            self._breaker.abandoned()
            raise
        return self._noted(fetched)

    def _noted(self, fetched: Fetched) -> Fetched:
        after_s = retry_after_s(fetched.headers.get("retry-after"), fetched.completed_at)
        if fetched.status in {429, 503} and after_s is not None:
            self._held_until = max(self._held_until, self._clock.monotonic() + after_s)
        if fetched.status >= 500 and after_s is None:
            self._breaker.failed()
        else:
            # One that says when to come back is there, and is obeyed instead.
            self._breaker.succeeded()
        return replace(fetched, retry_after_s=after_s)

    async def _wait_while_held(self, deadline: float) -> None:
        now = self._clock.monotonic()
        if self._held_until <= now:
            return
        wait_s = self._held_until - now
        if self._held_until > deadline:
            raise SourceThrottledError(
                f"host `{self.host}` may be asked again in {math.ceil(wait_s)} s", wait_s
            )
        await self._sleep(wait_s)

    def _connected(self) -> Connection:
        if self._connection is None:
            # Imported here: it costs 60 ms, and a server that is never asked needs none of it.
            from limen.upstream.connection import Connection

            self._connection = Connection(self.base_url, self._clock, self.manners)
        return self._connection

    def _redirected(self, ask: Ask, location: str) -> Ask:
        target = urlsplit(urljoin(self.base_url + ask.path, location))
        base = urlsplit(self.base_url)
        if (target.scheme, target.netloc) != (base.scheme, base.netloc) or ask.method != "GET":
            raise SourceChangedError(
                f"host `{self.host}` redirects to where it is not followed: `{location[:200]}`"
            )
        query = tuple(parse_qsl(target.query, keep_blank_values=True))
        return replace(ask, path=target.path or "/", query=query)


def checked_base_url(url: str) -> str:
    """Return a base URL without a slash at its end.

    Raises:
        WrongHostError: it is not HTTPS (or HTTP to a loopback address), or has more than a host.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        raise WrongHostError(f"base URL `{url}` is not a URL: {error}") from error
    if "@" in parts.netloc:
        raise WrongHostError(f"base URL of `{host}` has a user name or password in it")
    if not host or parts.path not in {"", "/"} or parts.query or parts.fragment:
        raise WrongHostError(f"base URL `{url}` is not just a scheme and a host")
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_loopback(host)):
        raise WrongHostError(f"base URL `{url}` is not encrypted: write `https://`")
    return f"{parts.scheme}://{parts.netloc.lower()}"


def retry_after_s(value: str | None, now: datetime) -> float | None:
    """Read a `Retry-After` header: seconds from `now`, None without one that can be read."""
    # RFC 9110 §10.2.3: seconds as digits, or a date.
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:12]), MAX_RETRY_AFTER_S)
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    # A date without a zone is read as UTC, which is what HTTP dates are.
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return min(max(0.0, (at - now).total_seconds()), MAX_RETRY_AFTER_S)


def _refuse_credentials(ask: Ask) -> None:
    # Fails closed: nothing here may carry who called to somebody else's server.
    for name, _ in ask.headers:
        if name.lower() in CREDENTIALS:
            raise WrongHostError(f"header `{name}` is never sent to a source")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
