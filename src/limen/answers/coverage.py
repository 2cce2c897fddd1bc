"""Coverage: what was asked, what came, what did not, and why; a certificate for one window.

Every day of the window is in exactly one place: delivered, or absent for one cause. What is
expected is what the publication calendar says minus what the series and nothing else explains.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import date, datetime
from functools import lru_cache
from itertools import islice
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Generic, NotRequired, TypeVar

from typing_extensions import TypedDict

from limen.answers.calendars import PublicationCalendar
from limen.answers.days import NONE, Days
from limen.errors import LimenError

MAX_SPAN = 15_338
"""Days of one window: 1999-01-04 to 2040-12-31."""

MAX_SPANS = 64
"""Spans that a certificate names. What explains a gap comes before known closings."""

NOT_YET = "not_yet_published"
GAP = "no_such_observation"
BEFORE = "before_the_series"
FUTURE = "in_the_future"
AFTER = "after_the_series"
SUSPENDED = "series_suspended"
OUTSIDE = "outside_the_source"
CAUSES = (NOT_YET, GAP, BEFORE, FUTURE, AFTER, SUSPENDED, OUTSIDE)
"""Why a day has no observation, besides that the calendar is closed."""


class CoverageError(LimenError):
    """Say why no certificate can be made. `code` is the business code for the caller."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class SeriesLife:
    """When a series has observations at all; None where that is not known, never a guess.

    `suspended` are spans, both ends included, without observations inside its life.
    """

    first_day: date | None
    last_day: date | None
    suspended: tuple[tuple[date, date], ...]


@dataclass(frozen=True, slots=True)
class SourceReach:
    """What the source was asked, and when it said that this is all: None is no bound.

    `as_of` is when the answer was fetched or recorded, aware.
    """

    covers_from: date | None
    covers_to: date | None
    as_of: datetime


@dataclass(frozen=True, slots=True)
class Span:
    """Days absent for one cause. Between `first` and `last` are no others that were expected.

    `reason` is the calendar's, for closed days alone.
    """

    cause: str
    first: date
    last: date
    days: int
    reason: str | None


class SpanJson(TypedDict):
    """Days absent for one cause, from `first` to `last`; other expected days lie not between."""

    cause: str
    first: str
    last: str
    days: int
    reason: NotRequired[str]


class WeekendsJson(TypedDict):
    """The weekends of the window as a rule: which weekdays are closed, and how many days."""

    closed: list[str]
    days: int


Absent = TypeVar("Absent")


class CoverageJson(TypedDict, Generic[Absent]):
    """What was asked, what came, what did not, and why. Dates are ISO 8601, times aware UTC."""

    requested_from: str
    requested_to: str
    requested_calendar_days: int
    expected_observations: int
    delivered_observations: int
    delivered_from: str | None
    delivered_to: str | None
    absent: Absent
    window_still_open: bool
    body_completed_at: str
    source: str
    complete: bool
    as_of_body: str
    evaluated_at: str
    calendar: str
    weekends: WeekendsJson
    spans: list[SpanJson]
    spans_cut: bool


class TargetAbsent(TypedDict):
    """Days without an observation, by cause; each day is counted once."""

    target_closed: int
    not_yet_published: int
    no_such_observation: int
    before_the_series: int
    in_the_future: int
    after_the_series: int
    series_suspended: int
    outside_the_source: int


@dataclass(frozen=True, slots=True)
class Coverage:
    """A certificate of coverage. No field has a default: nothing about it is left open.

    `expected_observations` are the days that the calendar and the series' life promise, plus what
    came beyond them. `body_completed_at` is when the source last said that this is all it has, and
    `as_of_body` the same moment under the name that says what it is for: nothing after it can be in
    the body. `evaluated_at` is when this certificate was made. Times are aware.
    """

    requested_from: date
    requested_to: date
    requested_calendar_days: int
    expected_observations: int
    delivered_observations: int
    delivered_from: date | None
    delivered_to: date | None
    absent: Mapping[str, int]
    window_still_open: bool
    body_completed_at: datetime
    source: str
    complete: bool
    as_of_body: datetime
    evaluated_at: datetime
    calendar: str
    weekends: Mapping[str, Any]
    spans: tuple[Span, ...]
    spans_cut: bool

    def as_json(self) -> dict[str, Any]:
        """Return the certificate as JSON values, in the order of its fields."""
        values: dict[str, Any] = {}
        for name in _FIELDS:
            value = getattr(self, name)
            values[name] = value.isoformat() if isinstance(value, date) else value
        values["absent"] = dict(self.absent)
        values["weekends"] = dict(self.weekends)
        values["spans"] = [_span_json(span) for span in self.spans]
        return values


_FIELDS = tuple(field.name for field in fields(Coverage))


def certify(
    calendar: PublicationCalendar,
    life: SeriesLife,
    reach: SourceReach,
    *,
    requested_from: date,
    requested_to: date,
    delivered: Days | Iterable[date],
    evaluated_at: datetime,
    source: str,
) -> Coverage:
    """Return the certificate of a window for which the days `delivered` came.

    Raises:
        CoverageError: the window is reversed or too wide, something came from outside it, or a
            time has no zone.
        CalendarError: the window goes beyond what the calendar knows.
    """
    window = window_of(requested_from, requested_to)
    for moment in (evaluated_at, reach.as_of):
        if moment.tzinfo is None:
            raise CoverageError("naive_time", f"time `{moment.isoformat()}` has no zone")
    came = delivered if isinstance(delivered, Days) else Days.of(delivered)
    if came - window:
        raise CoverageError(
            "outside_the_window", "an observation lies outside the window: clip the body first"
        )
    open_days, closings = calendar.open_and_closed(requested_from, requested_to)
    absent = _causes(calendar, life, reach, window, came, open_days, evaluated_at)
    closed = absent.pop(calendar.closed_as)
    counts = {calendar.closed_as: len(closed), **{cause: len(absent[cause]) for cause in CAUSES}}
    unexpected = len(closed) + sum(counts[cause] for cause in (BEFORE, AFTER, SUSPENDED))
    expected = len(window) - unexpected
    closed_weekdays = closed & closings
    whole = closed_weekdays.bits == closings.bits
    spans, is_cut = _spans(calendar, absent, closed_weekdays, open_days | came, whole=whole)
    return Coverage(
        requested_from=requested_from,
        requested_to=requested_to,
        requested_calendar_days=len(window),
        expected_observations=expected,
        delivered_observations=len(came),
        delivered_from=came.first(),
        delivered_to=came.last(),
        absent=MappingProxyType(counts),
        window_still_open=bool(counts[NOT_YET] or counts[FUTURE]),
        body_completed_at=reach.as_of,
        source=source,
        complete=len(came) == expected,
        as_of_body=reach.as_of,
        evaluated_at=evaluated_at,
        calendar=calendar.name,
        weekends=MappingProxyType(
            {"closed": list(calendar.weekend), "days": len(closed) - len(closed_weekdays)}
        ),
        spans=spans,
        spans_cut=is_cut,
    )


def window_of(first: date, last: date) -> Days:
    """Return the days of a window.

    Raises:
        CoverageError: it ends before it begins, or has more than `MAX_SPAN` days.
    """
    if last < first:
        raise CoverageError("reversed_window", f"window ends on `{last}`, before it begins")
    span = last.toordinal() - first.toordinal() + 1
    if span > MAX_SPAN:
        raise CoverageError(
            "window_too_wide", f"window has {span} days; at most {MAX_SPAN} are allowed"
        )
    return Days.between(first.toordinal(), last.toordinal())


def _causes(
    calendar: PublicationCalendar,
    life: SeriesLife,
    reach: SourceReach,
    window: Days,
    came: Days,
    open_days: Days,
    now: datetime,
) -> dict[str, Days]:
    """Return the days that did not come by cause, the first that explains a day alone."""
    left = window - came
    found: dict[str, Days] = {}

    def take(cause: str, days: Days) -> None:
        nonlocal left
        found[cause] = left & days
        left = left - days

    start, end = window.start, window.start + window.bits.bit_length() - 1
    take(BEFORE, _until(window, life.first_day))
    take(AFTER, _since(window, life.last_day))
    suspended = NONE
    for first, last in life.suspended:
        suspended = suspended | Days.between(first.toordinal(), last.toordinal())
    take(SUSPENDED, suspended)
    take(calendar.closed_as, window - open_days)
    today = calendar.today(now).toordinal()
    take(FUTURE, Days.between(max(start, today + 1), end))
    late = calendar.last_late(now)
    take(NOT_YET, Days.between(max(start, late + 1), end))
    # From here on all was late when we looked; but the source spoke for itself only up to then.
    known = calendar.last_late(reach.as_of)
    outside = Days.between(max(start, known + 1), end)
    outside = outside | _until(window, reach.covers_from) | _since(window, reach.covers_to)
    take(OUTSIDE, outside)
    found[GAP] = left
    return found


def _until(window: Days, first: date | None) -> Days:
    """Return the days of a window before a day."""
    if first is None:
        return NONE
    end = window.start + window.bits.bit_length() - 1
    return Days.between(window.start, min(end, first.toordinal() - 1))


def _since(window: Days, last: date | None) -> Days:
    """Return the days of a window after a day."""
    if last is None:
        return NONE
    end = window.start + window.bits.bit_length() - 1
    return Days.between(max(window.start, last.toordinal() + 1), end)


def _spans(
    calendar: PublicationCalendar,
    absent: Mapping[str, Days],
    closed_weekdays: Days,
    expected: Days,
    *,
    whole: bool,
) -> tuple[tuple[Span, ...], bool]:
    """Return the spans in order, and whether there are more than a certificate names."""
    found: list[Span] = []
    for cause in CAUSES:
        room = MAX_SPANS + 1 - len(found)
        found += islice(_runs(cause, absent[cause], expected), room)
    room = MAX_SPANS + 1 - len(found)
    found += islice(_closings(calendar, closed_weekdays, whole=whole), room)
    is_cut = len(found) > MAX_SPANS
    del found[MAX_SPANS:]
    found.sort(key=_first_of)
    return tuple(found), is_cut


_first_of = attrgetter("first")


def _runs(cause: str, days: Days, expected: Days) -> Iterator[Span]:
    """Yield runs of days; one goes on over days that were not expected anyway."""
    if not days.bits:
        return
    # A day breaks a run only if it was expected and is not of this cause.
    breaking = expected - days
    all_days = Days.between(days.start, days.start + days.bits.bit_length() - 1)
    for start, length in (all_days - breaking).runs():
        run = days & Days.between(start, start + length - 1)
        first, last = run.first(), run.last()
        if first is not None and last is not None:
            yield Span(cause, first, last, len(run), None)


def _closings(calendar: PublicationCalendar, closed: Days, *, whole: bool) -> Iterator[Span]:
    """Yield a span for each closed weekday; `whole` says that all of them count."""
    first, last = closed.first(), closed.last()
    if first is None or last is None:
        return
    for year in range(first.year, last.year + 1):
        spans = _closings_of(calendar, year)
        if whole and first.year < year < last.year:
            yield from spans
        else:
            yield from (span for span in spans if closed.has(span.first))


@lru_cache(maxsize=1024)
def _closings_of(calendar: PublicationCalendar, year: int) -> tuple[Span, ...]:
    closures = calendar.closures(date(year, 1, 1), date(year, 12, 31))
    return tuple(Span(calendar.closed_as, day, day, 1, reason) for day, reason in closures)


def _span_json(span: Span) -> dict[str, Any]:
    described = {
        "cause": span.cause,
        "first": span.first.isoformat(),
        "last": span.last.isoformat(),
        "days": span.days,
    }
    return described if span.reason is None else {**described, "reason": span.reason}
