"""What the tools of this server get, and how a question becomes numbers with their papers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import cast

import orjson

from limen.answers.calendars import PublicationCalendar
from limen.answers.coverage import Coverage, SeriesLife, SourceReach, certify, window_of
from limen.answers.days import Days
from limen.ports import Clock
from limen.servers.ecb.series import Series
from limen.servers.ecb.sources import SOURCE, Body, RateSource

LOOK_BACK = timedelta(days=14)
"""How far before a day its last rate is looked for. The longest closing of TARGET has five days."""


@dataclass(frozen=True, slots=True)
class RatesView:
    """The source of the rates, when they are published, and what time it is."""

    source: RateSource
    calendar: PublicationCalendar
    clock: Clock

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
        window_of(first, last)
        since = max(first, series.first_day)
        until = min(last, self.today(), series.last_day or last)
        body = await self.source.window(series.currency, since, until) if since <= until else None
        return self.certified(series, body, first, last)

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
        return Window(series, body, coverage)

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
    """A series over a window: what came (None when nobody had to be asked), and its certificate."""

    series: Series
    body: Body | None
    coverage: Coverage


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
