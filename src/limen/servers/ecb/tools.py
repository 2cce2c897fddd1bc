"""The tools of the reference rates. One rate is units of the currency for 1 EUR.

Every answer that has numbers in it says where they are from, and each window of them carries its
certificate. A bad date, an unknown currency and a source without an answer are business answers.
"""

from __future__ import annotations

import asyncio
import base64
import importlib.util
import logging
import re
from collections.abc import Awaitable, Iterable, Sequence
from datetime import date, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Annotated, Any, Literal, NotRequired, TypeVar

from pydantic import Field
from typing_extensions import TypedDict

from limen.answers.calendars import CalendarError
from limen.answers.coverage import (
    BEFORE,
    FUTURE,
    GAP,
    NOT_YET,
    OUTSIDE,
    Coverage,
    CoverageError,
    CoverageJson,
    SpanJson,
    TargetAbsent,
    WeekendsJson,
    window_of,
)
from limen.catalogue import Catalogue, Entry, tool
from limen.servers.ecb.outcomes import DAY
from limen.servers.ecb.series import ENDED, SERIES, SERIES_BEGIN, Series, find
from limen.servers.ecb.sources import SOURCE, DamagedFileError
from limen.servers.ecb.view import Found, RatesView, Window, exact
from limen.upstream.errors import UpstreamError, WrongHostError
from limen.words import Answer, business

READ = "rates:read"
LIST = "series:list"

T = TypeVar("T")

MAX_CURRENCIES = 8
"""Currencies of one window. Each costs the source one request."""

EURO = "EUR"
AMOUNT = re.compile(r"-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,10})?", re.ASCII)
"""A plain decimal: at most 15 digits before the point and 10 after it."""

CONVERTED = Decimal("0.0000000001")
"""To what an amount is rounded, half to even: ten places."""

EXACT = Context(prec=60, rounding=ROUND_HALF_EVEN)
"""Wide enough that only the one division rounds, and then far behind the tenth place."""

ZONE = "Europe/Berlin"

Currency = Annotated[
    str, Field(description="The ISO 4217 code, such as `USD`: three capitals.", max_length=16)
]
Day = Annotated[str, Field(description="A day as YYYY-MM-DD.", max_length=64)]

Observations = Annotated[
    list[tuple[str, float]],
    Field(description="Days with rates, oldest first: units of the currency for 1 EUR."),
]


class No(TypedDict):
    """Say no: `error` is for programs, `message` for people."""

    ok: Literal[False]
    error: str
    message: str


class _Rates(TypedDict):
    currency: str
    series: str
    observations: Observations
    coverage: CoverageJson[TargetAbsent]
    source: str
    origin: str
    placeholders: NotRequired[list[str]]
    missing: NotRequired[list[str]]
    statuses: NotRequired[dict[str, str]]


class RatesWindow(_Rates):
    """A window of one currency."""

    ok: Literal[True]


class RatesWindows(TypedDict):
    """A window of several currencies, in the order in which they were asked for."""

    ok: Literal[True]
    windows: list[_Rates]


class PassedOver(TypedDict):
    """Days after the rate, up to the day that was asked for, and why they have none."""

    days: int
    absent: TargetAbsent
    weekends: WeekendsJson
    spans: list[SpanJson]


class RateOn(TypedDict):
    """The rate of a day. `passed_over` is there when it is an earlier day's."""

    ok: Literal[True]
    currency: str
    series: str
    asked_day: str
    day: str
    rate: float
    is_fallback: bool
    source: str
    origin: str
    as_of_body: str
    evaluated_at: str
    passed_over: NotRequired[PassedOver]


class LatestRate(TypedDict):
    """The last rate of a series that there is.

    `up_to_date` says that no rate was due after `day` that could not be found; `passed_over` says
    what became of the days since.
    """

    currency: str
    series: str
    day: str
    rate: float
    up_to_date: bool
    next_due: str | None
    as_of_body: str
    origin: str
    passed_over: NotRequired[PassedOver]


class LatestRates(TypedDict):
    """The last rates, and in `without` the currencies for which there is none now, and why."""

    ok: Literal[True]
    asked_day: str
    rates: list[LatestRate]
    without: list[WithoutRate]
    source: str
    timezone: str
    evaluated_at: str


class WithoutRate(TypedDict):
    """A currency of which there is no rate now, with the code and the words of the reason."""

    currency: str
    error: str
    message: str


class Leg(TypedDict):
    """A rate that a conversion went through: units of the currency for 1 EUR."""

    currency: str
    day: str
    rate: float


class Converted(TypedDict):
    """An amount in another currency, through the euro, both rates of one day.

    `result` is rounded half to even, to ten places.
    """

    ok: Literal[True]
    amount: float
    from_currency: str
    to_currency: str
    result: float
    day: str
    legs: list[Leg]
    direction: str
    source: str
    evaluated_at: str


class CalendarWhy(TypedDict):
    """What the calendar says of a day.

    `before_the_series`; `closed`, with the reason; `in_the_future`; `not_yet_published`, which is
    a rate's state until an hour after it is due; or `expected`: a rate was due and should exist.
    """

    ok: Literal[True]
    day: str
    status: Literal["before_the_series", "closed", "in_the_future", "not_yet_published", "expected"]
    closed_because: str | None
    due_at: str | None
    previous_open: str | None
    next_open: str | None
    calendar: str
    timezone: str
    source: str
    evaluated_at: str


class Closing(TypedDict):
    """A closed day that is no weekend."""

    day: str
    reason: str


class CalendarWindow(TypedDict):
    """The open and closed days of a window: weekends as a rule, other closings one by one."""

    ok: Literal[True]
    start: str
    end: str
    calendar_days: int
    open_days: int
    before_the_series: int
    weekends: WeekendsJson
    closings: list[Closing]
    calendar: str
    timezone: str
    published_at: str
    source: str


class Pause(TypedDict):
    """Days, both included, in which a series had no rates."""

    first: str
    last: str


class SeriesDescription(TypedDict):
    """What there is to know of a series. `last_day` is null while it goes on."""

    ok: Literal[True]
    currency: str
    title: str
    series: str
    quote: str
    status: Literal["current", "ended"]
    first_day: str
    last_day: str | None
    why_ended: str | None
    suspended: list[Pause]
    decimals: int | None
    published_at: str
    timezone: str
    calendar: str
    source: str


class SeriesLine(TypedDict):
    """One series of the catalogue."""

    currency: str
    title: str
    series: str
    first_day: str
    last_day: str | None


class SeriesCatalogue(TypedDict):
    """All series that this server has."""

    ok: Literal[True]
    series: list[SeriesLine]
    note: str
    source: str


class NoError(Exception):
    """Carry a business no out of the depth of a tool. It never leaves this module."""

    def __init__(self, code: str, message: str, **more: Any) -> None:
        super().__init__(message)
        self.answer = business(code, message, **more)


@tool(scope=READ, title="Rates over a window", open_world=True)
async def rates_window(
    view: RatesView,
    *,
    currency: Annotated[
        Currency | Annotated[list[Currency], Field(min_length=1, max_length=MAX_CURRENCIES)],
        Field(description="One ISO 4217 code, such as `USD`, or a list of up to 8 of them."),
    ],
    start: Day,
    end: Day,
) -> RatesWindow | RatesWindows | No | Answer:
    """Return the euro reference rates of a window of days, with a certificate of its coverage.

    A rate is units of the currency for 1 EUR, in exactly the digits that the ECB printed. The
    certificate says how many were expected, how many came, and why each other day has none.
    """

    async def work() -> RatesWindow | RatesWindows:
        first, last = _day(start, "start"), _day(end, "end")
        if isinstance(currency, str):
            only = await view.window(_series(currency), first, last)
            return {"ok": True, **_rates(only, view.clock.now())}
        several = [_series(one) for one in currency]
        windows = await _all(view.window(one, first, last) for one in several)
        return {"ok": True, "windows": [_rates(window, view.clock.now()) for window in windows]}

    return await _said(work())


@tool(scope=READ, title="Rate on a day", open_world=True)
async def rates_on(
    view: RatesView,
    *,
    currency: Currency,
    day: Day,
    fallback: Annotated[
        Literal["none", "previous"],
        Field(description="`previous` takes the last rate before a day that has none."),
    ] = "none",
) -> RateOn | No | Answer:
    """Return the euro reference rate of one day: units of the currency for 1 EUR.

    A day without a rate is answered `no_rate` with the cause, unless `fallback` is `previous`;
    then the answer says which day's rate it is and what each day passed over was.
    """

    async def work() -> RateOn:
        series, asked = _series(currency), _day(day, "day")
        window = await view.window(series, asked, asked)
        if window.body is not None and window.body.rates:
            found = Found(asked, window.body.rates[asked], window.body, None)
        elif fallback == "previous":
            found = await _previous(view, window, asked)
        else:
            raise await _no_rate(view, window, asked)
        return _rate_on(view, series, asked, found)

    return await _said(work())


@tool(scope=READ, title="Latest rates", open_world=True)
async def rates_latest(
    view: RatesView,
    *,
    currency: Annotated[
        Currency | None,
        Field(description="One ISO 4217 code; without it, all that are still published."),
    ] = None,
) -> LatestRates | No | Answer:
    """Return the last euro reference rate that there is, of one currency or of all current ones.

    `up_to_date` is false when a later one was due and could not be found; `passed_over` says why
    each day since has none.
    """

    async def work() -> LatestRates:
        today = view.today()
        asked = [_series(currency)] if currency is not None else _current()
        rates: list[LatestRate] = []
        without: list[WithoutRate] = []
        for series, found in zip(
            asked, await _all(_latest(view, one, today) for one in asked), strict=True
        ):
            if isinstance(found, NoError):
                if currency is not None:
                    raise found
                said = found.answer.result or {}
                without.append(
                    {
                        "currency": series.currency,
                        "error": said["error"],
                        "message": said["message"],
                    }
                )
            else:
                rates.append(_latest_rate(view, series, found))
        return {
            "ok": True,
            "asked_day": today.isoformat(),
            "rates": rates,
            "without": without,
            "source": SOURCE,
            "timezone": ZONE,
            "evaluated_at": view.clock.now().isoformat(),
        }

    return await _said(work())


@tool(scope=READ, title="Convert an amount", open_world=True)
async def convert(
    view: RatesView,
    *,
    amount: Annotated[
        Annotated[str, Field(max_length=40)]
        | Annotated[float, Field(ge=-1_000_000_000_000_000, le=1_000_000_000_000_000)],
        Field(description="A number, or a decimal in quotes, such as `12.50`, to keep its digits."),
    ],
    from_currency: Currency,
    to_currency: Currency,
    day: Annotated[
        str | None,
        Field(description="A day as YYYY-MM-DD; without it, the last with both.", max_length=64),
    ] = None,
) -> Converted | No | Answer:
    """Convert an amount through the euro, with both reference rates of one and the same day.

    Reference rates are for information: nobody trades at them. `EUR` itself is 1.
    """

    async def work() -> Converted:
        money = _amount(amount)
        legs = [_leg(from_currency), _leg(to_currency)]
        asked = view.today() if day is None else _day(day, "day")
        on, rates = await _common(view, [leg for leg in legs if leg], asked, latest=day is None)
        divisor, factor = (Decimal(rates[leg.currency]) if leg else Decimal(1) for leg in legs)
        result = EXACT.divide(EXACT.multiply(money, factor), divisor)
        result = result.quantize(CONVERTED, context=EXACT)
        used = {leg.currency: rates[leg.currency] for leg in legs if leg}
        return {
            "ok": True,
            "amount": exact(f"{money:f}"),
            "from_currency": from_currency,
            "to_currency": to_currency,
            "result": exact(f"{result:f}"),
            "day": on.isoformat(),
            "legs": [
                {"currency": one, "day": on.isoformat(), "rate": exact(rate)}
                for one, rate in used.items()
            ],
            "direction": _direction(from_currency, to_currency),
            "source": SOURCE,
            "evaluated_at": view.clock.now().isoformat(),
        }

    return await _said(work())


@tool(scope=READ, title="Why a day has or has no rate")
async def calendar_why(view: RatesView, *, day: Day) -> CalendarWhy | No | Answer:
    """Say whether a day gets reference rates, and why not: weekend, holiday, future, not yet out.

    Days are those of Frankfurt. Nothing is fetched for this answer.
    """

    async def work() -> CalendarWhy:
        asked = _day(day, "day")
        calendar, now = view.calendar, view.clock.now()
        reason = calendar.closing_reason(asked)
        status: Any = "expected"
        if asked < SERIES_BEGIN:
            status = "before_the_series"
        elif reason is not None:
            status = "closed"
        elif asked > calendar.today(now):
            status = "in_the_future"
        elif now < calendar.late_at(asked):
            status = "not_yet_published"
        has_rates = reason is None and asked >= SERIES_BEGIN
        before = calendar.previous_open(asked) if asked > SERIES_BEGIN else None
        after = max(calendar.next_open(asked), SERIES_BEGIN)
        return {
            "ok": True,
            "day": asked.isoformat(),
            "status": status,
            "closed_because": reason if status == "closed" else None,
            "due_at": calendar.due_at(asked).isoformat() if has_rates else None,
            "previous_open": before.isoformat() if before else None,
            "next_open": after.isoformat(),
            "calendar": calendar.name,
            "timezone": ZONE,
            "source": SOURCE,
            "evaluated_at": now.isoformat(),
        }

    return await _said(work())


@tool(scope=READ, title="Open and closed days")
async def calendar_window(view: RatesView, *, start: Day, end: Day) -> CalendarWindow | No | Answer:
    """Return how many days of a window get reference rates, and every closing in it.

    Weekends are counted, not listed. Nothing is fetched for this answer.
    """

    async def work() -> CalendarWindow:
        first, last = _day(start, "start"), _day(end, "end")
        size = len(window_of(first, last))
        calendar = view.calendar
        since = max(first, SERIES_BEGIN)
        before = max(0, (min(last, SERIES_BEGIN - timedelta(days=1)) - first).days + 1)
        open_days = calendar.count_open(since, last) if since <= last else 0
        closed = list(calendar.closures(since, last))
        weekend = size - before - open_days - len(closed)
        return {
            "ok": True,
            "start": first.isoformat(),
            "end": last.isoformat(),
            "calendar_days": size,
            "open_days": open_days,
            "before_the_series": before,
            "weekends": {"closed": list(calendar.weekend), "days": weekend},
            "closings": [{"day": day.isoformat(), "reason": reason} for day, reason in closed],
            "calendar": calendar.name,
            "timezone": ZONE,
            "published_at": calendar.published_at.isoformat("minutes"),
            "source": SOURCE,
        }

    return await _said(work())


@tool(scope=READ, title="Describe a series")
async def series_describe(
    view: RatesView, *, currency: Currency
) -> SeriesDescription | No | Answer:
    """Return when the series of a currency began and ended, and how its numbers are to be read."""

    async def work() -> SeriesDescription:
        series = _series(currency)
        return {
            "ok": True,
            "currency": series.currency,
            "title": series.title,
            "series": f"EXR.{series.key}",
            "quote": f"units of {series.currency} for 1 EUR",
            "status": "current" if series.last_day is None else "ended",
            "first_day": series.first_day.isoformat(),
            "last_day": series.last_day.isoformat() if series.last_day else None,
            "why_ended": ENDED.get(series.currency),
            "suspended": [
                {"first": first.isoformat(), "last": last.isoformat()}
                for first, last in series.suspended
            ],
            "decimals": series.decimals,
            "published_at": view.calendar.published_at.isoformat("minutes"),
            "timezone": ZONE,
            "calendar": view.calendar.name,
            "source": SOURCE,
        }

    return await _said(work())


@tool(scope=LIST, title="List the series")
async def series_catalogue(view: RatesView) -> SeriesCatalogue | No | Answer:
    """List all series of this server: currency, key, first day and last."""
    return {
        "ok": True,
        "series": [
            {
                "currency": series.currency,
                "title": series.title,
                "series": f"EXR.{series.key}",
                "first_day": series.first_day.isoformat(),
                "last_day": series.last_day.isoformat() if series.last_day else None,
            }
            for series in SERIES.values()
        ],
        "note": "Daily euro foreign exchange reference rates: units of the currency for 1 EUR.",
        "source": SOURCE,
    }


@tool(scope=READ, title="Draw rates", open_world=True)
async def rates_chart(
    view: RatesView, *, currency: Currency, start: Day, end: Day
) -> RatesWindow | No | Answer:
    """Draw the rates of a window as a PNG, with each gap drawn as what it is.

    The numbers and their certificate come with the picture.
    """
    # Imported here: the plotting library is optional, and slow to start.
    from limen.servers.ecb.chart import draw

    async def work() -> Answer:
        first, last = _day(start, "start"), _day(end, "end")
        window = await view.window(_series(currency), first, last)
        picture = await asyncio.to_thread(draw, window)
        image = {
            "type": "image",
            "data": base64.b64encode(picture).decode("ascii"),
            "mimeType": "image/png",
        }
        return Answer(result={"ok": True, **_rates(window, view.clock.now())}, content=(image,))

    return await _said(work())


def ecb_catalogue(version: str) -> Catalogue:
    """Build the catalogue; `version` is the package's. The chart is in it if it can be drawn."""
    entries: list[Entry] = [
        rates_window,
        rates_on,
        rates_latest,
        convert,
        calendar_why,
        calendar_window,
        series_describe,
        series_catalogue,
    ]
    if importlib.util.find_spec("matplotlib") is not None:
        entries.append(rates_chart)
    return Catalogue.of(
        "ecb",
        entries,
        title="ECB euro reference rates",
        version=version,
        instructions=(
            "Daily euro reference rates since 1999-01-04: units of the currency for 1 EUR, for"
            " information only. A window's `coverage` says what is not in it and why: read"
            " `complete` before you count, sum or average. Days are those of Frankfurt; rates are"
            f" due at 16:00 there. Always quote the source: {SOURCE}"
        ),
    )


async def _said(work: Awaitable[T]) -> T | Answer:
    """Return what a tool says, every known trouble as its business answer."""
    try:
        return await work
    except NoError as no:
        return no.answer
    except CoverageError as error:
        return business(error.code, str(error))
    except CalendarError as error:
        return business("outside_the_calendar", str(error))
    except UpstreamError as error:
        return _no_answer(error).answer


def _no_answer(error: UpstreamError) -> NoError:
    if isinstance(error, DamagedFileError | WrongHostError):
        # These name a file or a host of the owner's, which is not the caller's to know.
        logging.getLogger(__name__).error("the source of rates cannot be used: %s", error)
        return NoError(error.code, "the source cannot be used: its owner has to look at it")
    after = getattr(error, "retry_after_s", None)
    more = {} if after is None else {"retry_after_s": after}
    return NoError(error.code, str(error), **more)


async def _all(works: Iterable[Awaitable[T]]) -> list[T]:
    """Return what several questions bring, in their order; the first failure ends the others."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()


def _day(text: str, name: str) -> date:
    # Asked first: `fromisoformat` takes `20260330` and `2026-W14-1` too.
    if DAY.fullmatch(text):
        try:
            return date.fromisoformat(text)
        except ValueError:
            pass
    raise NoError(
        "invalid_date", f"`{name}` is `{text[:40]}`: write a day as YYYY-MM-DD, such as 2026-03-30"
    )


def _series(currency: str) -> Series:
    series = find(currency)
    if series is not None:
        return series
    if currency == EURO:
        raise NoError("unknown_series", "the euro has no rate against itself: it is 1")
    capitals = currency.strip().upper()
    hint = f"write `{capitals}`" if find(capitals) else "write an ISO 4217 code, such as `USD`"
    raise NoError("unknown_series", f"there is no series `{currency}`: {hint}")


def _current() -> list[Series]:
    return [series for series in SERIES.values() if series.last_day is None]


def _rates(window: Window, now: datetime) -> _Rates:
    body = window.body
    said: _Rates = {
        "currency": window.series.currency,
        "series": f"EXR.{window.series.key}",
        "observations": window.pairs,
        "coverage": _as_certificate(window.certificate(now)),
        "source": SOURCE,
        "origin": body.origin if body is not None else "nothing had to be asked",
    }
    if body is not None and body.placeholders:
        said["placeholders"] = [day.isoformat() for day in body.placeholders]
    if body is not None and body.missing:
        said["missing"] = [day.isoformat() for day in body.missing]
    if body is not None and body.statuses:
        said["statuses"] = {day.isoformat(): status for day, status in body.statuses.items()}
    return said


def _as_certificate(written: Any) -> CoverageJson[TargetAbsent]:
    certificate: CoverageJson[TargetAbsent] = written
    return certificate


def _passed(coverage: Coverage) -> PassedOver:
    certificate = _as_certificate(coverage.as_json())
    return {
        "days": coverage.requested_calendar_days,
        "absent": certificate["absent"],
        "weekends": certificate["weekends"],
        "spans": certificate["spans"],
    }


async def _previous(view: RatesView, window: Window, asked: date) -> Found:
    """Return the last rate before a day that has none, if it is certain that it is the last."""
    if window.coverage.absent[FUTURE]:
        # The last rate before a day to come may still come itself.
        raise await _no_rate(view, window, asked)
    found = await view.last_rate(window.series, asked)
    passed = found.passed_over if found is not None else None
    if found is None or (passed is not None and (passed.absent[OUTSIDE] or passed.absent[GAP])):
        raise await _no_rate(view, window, asked)
    return found


async def _no_rate(view: RatesView, window: Window, asked: date) -> NoError:
    """Return why a day has no rate, with the last day that has one where that is known."""
    cause, reason = _cause(window.coverage)
    if cause == OUTSIDE and window.body is not None:
        through = window.body.covers_to
        return NoError(
            "not_covered",
            f"the source ends on {through}: nothing is known of {asked}",
            cause=cause,
            data_through=through.isoformat() if through else None,
        )
    words = {
        BEFORE: f"the series begins on {window.series.first_day}",
        FUTURE: "the day is in the future",
        NOT_YET: f"its rate is due at {view.calendar.due_at(asked):%Y-%m-%dT%H:%MZ}",
        GAP: "a rate was due, and the source has none",
    }.get(cause, reason or cause.replace("_", " "))
    more: dict[str, Any] = {"cause": cause}
    if reason is not None:
        more["closed_because"] = reason
    found = None
    if cause not in (BEFORE, FUTURE):
        found = await view.last_rate(window.series, asked)
    if found is not None and not (found.passed_over and found.passed_over.absent[OUTSIDE]):
        more["previous_day"] = found.day.isoformat()
    return NoError("no_rate", f"{window.series.currency} has no rate on {asked}: {words}", **more)


def _cause(coverage: Coverage) -> tuple[str, str | None]:
    """Return why the one day of a certificate has no rate, and the calendar's reason."""
    cause = next(cause for cause, days in coverage.absent.items() if days)
    if coverage.weekends["days"]:
        return cause, "weekend"
    return cause, coverage.spans[0].reason if coverage.spans else None


def _rate_on(view: RatesView, series: Series, asked: date, found: Found) -> RateOn:
    said: RateOn = {
        "ok": True,
        "currency": series.currency,
        "series": f"EXR.{series.key}",
        "asked_day": asked.isoformat(),
        "day": found.day.isoformat(),
        "rate": exact(found.rate),
        "is_fallback": found.day != asked,
        "source": SOURCE,
        "origin": found.body.origin,
        "as_of_body": found.completed_at.isoformat(),
        "evaluated_at": view.clock.now().isoformat(),
    }
    if found.passed_over is not None:
        said["passed_over"] = _passed(found.passed_over)
    return said


async def _latest(view: RatesView, series: Series, today: date) -> Found | NoError:
    try:
        found = await view.last_rate(series, today)
    except UpstreamError as error:
        return _no_answer(error)
    return found or NoError("no_rate", f"the source has no recent rate of {series.currency}")


def _latest_rate(view: RatesView, series: Series, found: Found) -> LatestRate:
    passed = found.passed_over
    said: LatestRate = {
        "currency": series.currency,
        "series": f"EXR.{series.key}",
        "day": found.day.isoformat(),
        "rate": exact(found.rate),
        "up_to_date": passed is None or not (passed.absent[OUTSIDE] or passed.absent[GAP]),
        "next_due": None,
        "as_of_body": found.completed_at.isoformat(),
        "origin": found.body.origin,
    }
    if series.last_day is None:
        said["next_due"] = view.calendar.due_at(view.calendar.next_open(found.day)).isoformat()
    if passed is not None:
        said["passed_over"] = _passed(passed)
    return said


def _amount(amount: str | float) -> Decimal:
    # `repr` of a float is the shortest decimal that means it: what the caller wrote, but for zeros.
    text = amount if isinstance(amount, str) else f"{Decimal(repr(amount)):f}"
    if not AMOUNT.fullmatch(text):
        raise NoError(
            "invalid_amount",
            f"`amount` is `{text[:40]}`: write a plain decimal such as 12.50, with at most 15"
            " digits before the point and 10 after it",
        )
    return Decimal(text)


def _leg(currency: str) -> Series | None:
    """Return the series that a conversion goes through, None for the euro itself."""
    return None if currency == EURO else _series(currency)


async def _common(
    view: RatesView, legs: Sequence[Series], asked: date, *, latest: bool
) -> tuple[date, dict[str, str]]:
    """Return a day that all legs have a rate of, and their rates: the last one, or that asked."""
    if not legs:
        return asked, {}
    if not latest:
        windows = await _all(view.window(leg, asked, asked) for leg in legs)
        for window in windows:
            if window.body is None or not window.body.rates:
                raise await _no_rate(view, window, asked)
        return asked, {
            window.series.currency: window.body.rates[asked] for window in windows if window.body
        }
    found = await _all(_latest(view, leg, asked) for leg in legs)
    bodies = []
    for one in found:
        if isinstance(one, NoError):
            raise one
        bodies.append(one.body)
    shared = set(bodies[0].rates).intersection(*(body.rates for body in bodies[1:]))
    if not shared:
        raise NoError("no_rate", "the currencies have no recent day in common: name a `day`")
    on = max(shared)
    return on, {body.series.currency: body.rates[on] for body in bodies}


def _direction(from_currency: str, to_currency: str) -> str:
    if from_currency == to_currency:
        return f"{from_currency} is itself"
    multiplied = "" if to_currency == EURO else f" × {to_currency} for 1 EUR"
    divided = "" if from_currency == EURO else f" / {from_currency} for 1 EUR"
    return f"amount in {from_currency}{divided}{multiplied} = result in {to_currency}"
