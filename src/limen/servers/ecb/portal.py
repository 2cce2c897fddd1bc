"""The ECB data portal, live: asked as seldom as its publication calendar allows.

Rates come out once on an open day, about 16:00 in Frankfurt. So a body is good until the next
ones are due, and then the question is `has anything changed since`, which mostly costs a 304.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import partial
from urllib.parse import urlsplit

from limen.ports import Clock
from limen.servers.ecb.kept import LEAST_SIZE, Kept, KeptBodies, Key
from limen.servers.ecb.outcomes import NotModified, body_of, classify, observations_of
from limen.servers.ecb.series import SERIES_BEGIN, Series, find
from limen.servers.ecb.sources import Body, Calendar, RejectedError, UnknownSeriesError
from limen.upstream.client import Ask, Client, Manners
from limen.upstream.errors import SourceChangedError, WrongHostError
from limen.upstream.single_flight import SingleFlight
from limen.upstream.throttle import Sleep

BASE_URL = "https://data-api.ecb.europa.eu"
EXR_PATH = "/service/data/EXR/"
"""The one dataflow that is asked for: the ECB's own reference rates, nobody else's numbers."""

GONE_HOST = "sdw-wsrest.ecb.europa.eu"
"""Where this was until 2025-10-01. The name no longer resolves."""

ORIGIN = "ECB data portal"

LEAST_FRESH = timedelta(seconds=30)
"""What the portal itself says: `max-age=30`. A rate that is late is asked for no more often."""

PAST_FRESH = timedelta(days=1)
"""For windows that ended before the last publication. A correction shows after a day at most."""

MAX_KEPT = 32 * 1024 * 1024
"""Bytes of bodies as they came. Twenty times the longest series."""


class Portal:
    """Serve rates from the data portal. For the tasks of one event loop; connects when asked.

    A failure is raised, never papered over with an older body.
    """

    def __init__(
        self,
        calendar: Calendar,
        clock: Clock,
        *,
        base_url: str = BASE_URL,
        manners: Manners | None = None,
        sleep: Sleep = asyncio.sleep,
        max_kept: int = MAX_KEPT,
    ) -> None:
        """Prepare to ask.

        Args:
            calendar: when rates are due.
            clock: the time of day, for freshness, and the monotonic one, for waiting.
            base_url: scheme and host of the portal, or of a stand-in on loopback.
            manners: how politely to ask.
            sleep: how to wait.
            max_kept: bytes of bodies to keep.

        Raises:
            WrongHostError: the URL is none that may be asked, or is the host of old.
        """
        _refuse_gone_host(base_url)
        self._calendar = calendar
        self._clock = clock
        self._client = Client(base_url, clock, manners, sleep=sleep)
        self._kept = KeptBodies(max_kept)
        self._flights: SingleFlight[Key, Body] = SingleFlight()

    async def window(self, currency: str, first: date, last: date) -> Body:
        """Return the rates of one currency, from a fresh body if there is one.

        Everyone who asks for the same window at the same time shares one request.

        Raises:
            UnknownSeriesError: there is no such series.
            RejectedError: the window ends before it starts, or the portal refused our question.
            SourceDownError, SourceThrottledError, SourceChangedError: there is no answer now.
        """
        series = find(currency)
        if series is None:
            raise UnknownSeriesError(f"there is no such series: `{currency[:10]}`")
        if last < first:
            raise RejectedError(f"window ends on {last}, before it starts on {first}")
        key = (currency, first, last)
        fresh = self._kept.find_fresh(key, self._clock.now())
        if fresh is not None:
            return fresh
        return await self._flights.fly(key, partial(self._ask, series, key))

    async def close(self) -> None:
        """End what is under way and close all connections."""
        await self._flights.close()
        await self._client.close()

    async def _ask(self, series: Series, key: Key) -> Body:
        kept = self._kept.find(key)
        since = kept.if_modified_since if kept is not None else ""
        fetched = await self._client.fetch(_question(series, key, since))
        outcome = classify(
            fetched.status,
            fetched.body,
            expected_key=series.key,
            retry_after_s=fetched.retry_after_s,
        )
        if isinstance(outcome, NotModified) and kept is not None and since:
            body = replace(kept.body, completed_at=fetched.completed_at)
            size = kept.size
        else:
            asked = f"series `{series.key}` from {key[1]} to {key[2]}"
            stamp = fetched.headers.get("last-modified", "")
            since = stamp if _http_date(stamp) is not None else ""
            said = observations_of(outcome, asked)
            body = body_of(said, series, key[1:], fetched.completed_at, ORIGIN, _http_date(stamp))
            _refuse_other_days(body, key)
            size = max(LEAST_SIZE, len(fetched.body))
        self._kept.put(key, Kept(body, self._fresh_until(body, key), since, size))
        return body

    def _fresh_until(self, body: Body, key: Key) -> datetime:
        _, first, last = key
        at = body.completed_at
        ends = min(last, body.series.last_day or last)
        if ends < self._last_published(at):
            return at + PAST_FRESH
        newest = max(body.rates, default=max(first, SERIES_BEGIN) - timedelta(days=1))
        # A rate that was due and is not there makes this a moment of the past.
        return max(at + LEAST_FRESH, self._calendar.due_at(self._calendar.next_open(newest)))

    def _last_published(self, at: datetime) -> date:
        # From a day that is not over anywhere: the calendar's own date may be ahead of ours.
        day = self._calendar.previous_open(at.date() + timedelta(days=2))
        while self._calendar.due_at(day) > at:
            day = self._calendar.previous_open(day)
        return day


def _question(series: Series, key: Key, since: str) -> Ask:
    return Ask(
        f"{EXR_PATH}{series.key}",
        (
            ("format", "csvdata"),
            ("startPeriod", key[1].isoformat()),
            ("endPeriod", key[2].isoformat()),
        ),
        (("If-Modified-Since", since),) if since else (),
    )


def _refuse_other_days(body: Body, key: Key) -> None:
    # Fails closed: a window that was not honoured may have been cut as well as widened.
    for day in (*body.rates, *body.placeholders, *body.missing):
        if not key[1] <= day <= key[2]:
            raise SourceChangedError(
                f"ECB answered for `{day}` when asked for {key[1]} to {key[2]}"
            )


def _refuse_gone_host(base_url: str) -> None:
    try:
        host = urlsplit(base_url).hostname
    except ValueError:
        return
    if host == GONE_HOST:
        raise WrongHostError(
            f"host `{GONE_HOST}` is gone since 2025-10-01: set `base_url` to `{BASE_URL}`"
        )


def _http_date(text: str) -> datetime | None:
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC)
