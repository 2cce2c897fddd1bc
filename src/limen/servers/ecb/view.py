"""What the tools of this server get, and how a question becomes numbers with their papers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any, cast

import orjson

from limen.answers.calendars import PublicationCalendar
from limen.answers.coverage import Coverage, SeriesLife, SourceReach, certify, window_of
from limen.answers.days import Days
from limen.ports import Clock
from limen.servers.ecb.series import Series
from limen.servers.ecb.sources import SOURCE, Body, RateSource

LOOK_BACK = timedelta(days=14)
"""How far before a day its last rate is looked for. The longest closing of TARGET has five days."""

MAX_KNOWN = 64
"""Windows whose certificates are remembered. All of them over the whole history have 10 MB."""

Question = tuple[str, date, date]
"""Currency, first day, last day."""


@dataclass(frozen=True, slots=True)
class RatesView:
    """The source of the rates, when they are published, and what time it is."""

    source: RateSource
    calendar: PublicationCalendar
    clock: Clock
    known: OrderedDict[Question, Known] = field(default_factory=OrderedDict)
    """Windows that were certified, the longest unused first."""

    def today(self) -> date:
        """Return which day it is in Frankfurt, which is what dates rates."""
        return self.calendar.today(self.clock.now())

    async def window(self, series: Series, first: date, last: date) -> Window:
        """Return the rates of a window with their certificate.

        The source is asked only about days of which it can know something: in the life of the
        series, and not after today.

        Raises:
            CoverageError: the window ends before it begins, or is too wide.
            UpstreamError: the source has no answer now.
        """
        now, key = self.clock.now(), (series.currency, first, last)
        known = self.known.get(key)
        if known is not None and known.made_at <= now < known.same_until:
            # The source is asked all the same: it knows whether it has anything newer.
            body = await self.source.window(*known.asked) if known.asked is not None else None
            if body is known.body:
                self.known.move_to_end(key)
                return known.window
        window_of(first, last)
        since = max(first, series.first_day)
        until = min(last, self.today(), series.last_day or last)
        asked = (series.currency, since, until) if since <= until else None
        body = await self.source.window(*asked) if asked is not None else None
        window = self.certified(series, body, first, last)
        self.known[key] = Known(now, self.calendar.same_until(now), asked, body, window)
        if len(self.known) > MAX_KNOWN:
            self.known.popitem(last=False)
        return window

    def certified(self, series: Series, body: Body | None, first: date, last: date) -> Window:
        """Return what a body has of a window, certified. Without a body nothing was asked."""
        now = self.clock.now()
        reach = SourceReach(None, None, now)
        days: tuple[date, ...] = ()
        if body is not None:
            body = body.within(first, last)
            days = body.days()
            reach = SourceReach(body.covers_from, body.covers_to, body.completed_at)
        coverage = certify(
            self.calendar,
            life_of(series),
            reach,
            requested_from=first,
            requested_to=last,
            delivered=Days.of(days),
            evaluated_at=now,
            source=SOURCE,
        )
        return Window(series, body, coverage, coverage.as_json(), exact_pairs(body))

    def last_expected(self, series: Series, day: date) -> date | None:
        """Return the last day up to `day` that should have a rate, None before the series."""
        while day >= series.first_day:
            day = min(day, series.last_day or day)
            if not self.calendar.is_open(day):
                day = self.calendar.previous_open(day)
                continue
            pause = next((span for span in series.suspended if span[0] <= day <= span[1]), None)
            if pause is None:
                return day
            day = pause[0] - timedelta(days=1)
        return None

    async def last_rate(self, series: Series, day: date) -> Found | None:
        """Return the last rate up to `day`, or None when there is none.

        Raises:
            UpstreamError: the source has no answer now.
        """
        expected = self.last_expected(series, min(day, self.today()))
        if expected is None:
            return None
        body = await self.source.window(series.currency, expected - LOOK_BACK, expected)
        if not body.rates and body.covers_to is not None and body.covers_to < expected:
            # A source that ends before this day is asked for its own last days.
            end = body.covers_to
            body = await self.source.window(series.currency, end - LOOK_BACK, end)
        if not body.rates:
            return None
        found = body.days()[-1]
        passed = None
        if found < day:
            passed = self.certified(series, body, found + timedelta(days=1), day).coverage
        return Found(found, body.rates[found], body, passed)


@dataclass(frozen=True, slots=True)
class Window:
    """A series over a window: what came (None when nobody had to be asked), and its certificate.

    `written` is the certificate as JSON, and `pairs` are the rates, both made once.
    """

    series: Series
    body: Body | None
    coverage: Coverage
    written: Mapping[str, Any]
    pairs: list[tuple[str, float]]

    def certificate(self, now: datetime) -> dict[str, Any]:
        """Return the certificate as JSON values, in the order of its fields, as of now."""
        moment = now.isoformat()
        if self.body is not None:
            return {**self.written, "evaluated_at": moment}
        # Nobody was asked, because nothing could come: that is so now, too.
        more = dict.fromkeys(("body_completed_at", "as_of_body", "evaluated_at"), moment)
        return {**self.written, **more}


@dataclass(frozen=True, slots=True)
class Known:
    """A window that was certified, what the source was asked for it, and what it brought.

    From `made_at` up to `same_until` the calendar says the same of every day, so for the same body
    the certificate is the same, but for when it was made.
    """

    made_at: datetime
    same_until: datetime
    asked: Question | None
    body: Body | None
    window: Window


@dataclass(frozen=True, slots=True)
class Found:
    """The last rate up to a day. `passed_over` certifies the days after it, None without any."""

    day: date
    rate: str
    body: Body
    passed_over: Coverage | None

    @property
    def completed_at(self) -> datetime:
        """Return when the source last said that this is all."""
        return self.body.completed_at


def life_of(series: Series) -> SeriesLife:
    """Return when a series has observations at all."""
    return SeriesLife(series.first_day, series.last_day, series.suspended)


def exact(printed: str) -> float:
    """Return a JSON number of exactly these digits. It never passes through a binary float."""
    # The JSON writer copies a fragment as it is; for the type checker it is what it is written as.
    return cast("float", orjson.Fragment(printed))


def exact_pairs(body: Body | None) -> list[tuple[str, float]]:
    """Return days with their rates as JSON, in exactly the digits that were printed."""
    rates = body.rates if body is not None else {}
    pairs = ",".join([f'["{day.isoformat()}",{rate}]' for day, rate in rates.items()])
    return cast("list[tuple[str, float]]", orjson.Fragment(f"[{pairs}]"))
