"""Publication calendars: on which days something is to be expected, and from when on it is late.

A calendar is a data file: weekends, yearly closings (by date or by distance from Easter Sunday),
single closings, and the hour of publication in its own time zone. `target()` is the ECB's.
"""

from __future__ import annotations

import importlib.resources
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from limen.answers.days import Days
from limen.errors import LimenError

WEEKEND = "weekend"
"""The closing reason of a day of the weekend, whatever else the day is."""

MAX_SEARCH = 3_660
"""Days that are looked through for an open one."""

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
Reason = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]


class CalendarError(LimenError):
    """Say why a calendar file cannot be used, or why a calendar does not know a day."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Special(_Part):
    day: date
    reason: Reason


class _Yearly(_Part):
    """A closing in every year: `month` and `day`, or `easter` days after Easter Sunday."""

    reason: Reason
    from_year: int = Field(default=1, ge=1, le=9999)
    to_year: int = Field(default=9999, ge=1, le=9999)
    month: int | None = Field(default=None, ge=1, le=12)
    day: int | None = Field(default=None, ge=1, le=31)
    easter: int | None = Field(default=None, ge=-60, le=60)

    @model_validator(mode="after")
    def _one_kind(self) -> _Yearly:
        by_date = self.month is not None and self.day is not None
        if by_date == (self.easter is not None) or (self.month is None) != (self.day is None):
            raise ValueError("write `month` and `day`, or `easter`")
        if by_date:
            date(2000, self.month or 1, self.day or 1)
        return self

    def in_year(self, year: int) -> date | None:
        """Return the day of this closing in a year, or None when it has none."""
        if not self.from_year <= year <= self.to_year:
            return None
        if self.easter is not None:
            return easter(year) + timedelta(days=self.easter)
        try:
            return date(year, self.month or 1, self.day or 1)
        except ValueError:  # 29 February
            return None


class _File(_Part):
    name: str = Field(min_length=1, max_length=64)
    title: str = Field(min_length=1, max_length=200)
    sources: tuple[str, ...] = Field(min_length=1)
    zone: str
    published_at: time
    grace_minutes: int = Field(ge=0, le=24 * 60)
    closed_as: str = Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")
    weekend: frozenset[
        Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
    ]
    horizon: date | None = None
    special: tuple[_Special, ...] = ()
    yearly: tuple[_Yearly, ...] = ()

    @field_validator("zone")
    @classmethod
    def _known_zone(cls, zone: str) -> str:
        try:
            ZoneInfo(zone)
        except (OSError, ValueError, KeyError) as error:
            raise ValueError(f"there is no time zone `{zone}`") from error
        return zone


@dataclass(frozen=True, slots=True)
class _Year:
    """The days of one year as bits from 1 January, `start`: open ones, and closed ones that are no
    weekend, with their reasons in order."""

    start: int
    open: int
    closed: int
    reasons: Mapping[date, str]


class PublicationCalendar:
    """Tell open days from closed ones, and why. Safe to share: nothing in it changes.

    `zone` is the time zone in which its days begin; `closed_as` is what a certificate calls a
    closed day; `horizon` is the last day that it knows, None when its rules have no end.
    """

    def __init__(self, file: _File) -> None:
        self.name = file.name
        self.title = file.title
        self.sources = file.sources
        self.zone = ZoneInfo(file.zone)
        self.published_at = file.published_at
        self.grace = timedelta(minutes=file.grace_minutes)
        self.closed_as = file.closed_as
        self.weekend = tuple(day for day in WEEKDAYS if day in file.weekend)
        self.horizon = file.horizon
        self._weekend = frozenset(WEEKDAYS.index(day) for day in file.weekend)
        self._yearly = file.yearly
        self._special: Mapping[date, str] = {one.day: one.reason for one in file.special}
        self._year = lru_cache(maxsize=512)(self._make_year)

    def closing_reason(self, day: date) -> str | None:
        """Return why a day is closed, `weekend` first, or None when it is open.

        Raises:
            CalendarError: the day is beyond what this calendar knows.
        """
        self._refuse_unknown(day)
        if day.weekday() in self._weekend:
            return WEEKEND
        return self._year(day.year).reasons.get(day)

    def is_open(self, day: date) -> bool:
        """Tell whether something is to be expected for a day."""
        return self.closing_reason(day) is None

    def open_days(self, first: date, last: date) -> Days:
        """Return the open days from `first` to `last`, both included."""
        return self.open_and_closed(first, last)[0]

    def open_and_closed(self, first: date, last: date) -> tuple[Days, Days]:
        """Return the open days from `first` to `last`, and the closed ones that are no weekend."""
        self._refuse_unknown(max(first, last))
        start, open_bits, closed_bits = first.toordinal(), 0, 0
        for year in range(first.year, last.year + 1):
            found = self._year(year)
            shift = found.start - start
            if shift >= 0:
                open_bits |= found.open << shift
                closed_bits |= found.closed << shift
            else:
                open_bits |= found.open >> -shift
                closed_bits |= found.closed >> -shift
        window = Days.between(start, last.toordinal())
        return Days(start, open_bits & window.bits), Days(start, closed_bits & window.bits)

    def closures(self, first: date, last: date) -> Iterator[tuple[date, str]]:
        """Yield the closed days that are no weekend, with their reasons, in order."""
        for year in range(first.year, last.year + 1):
            for day, reason in self._year(year).reasons.items():
                if first <= day <= last:
                    yield day, reason

    def count_open(self, first: date, last: date) -> int:
        """Return the number of open days from `first` to `last`, both included."""
        return len(self.open_days(first, last))

    def next_open(self, day: date) -> date:
        """Return the first open day after `day`.

        Raises:
            CalendarError: there is none that this calendar knows.
        """
        return self._search(day, 1)

    def previous_open(self, day: date) -> date:
        """Return the last open day before `day`.

        Raises:
            CalendarError: there is none that this calendar knows.
        """
        return self._search(day, -1)

    def due_at(self, day: date) -> datetime:
        """Return when what an open day brings is to be published, aware UTC."""
        return datetime.combine(day, self.published_at, self.zone).astimezone(UTC)

    def late_at(self, day: date) -> datetime:
        """Return from when on what an open day brings is missing, aware UTC."""
        return self.due_at(day) + self.grace

    def today(self, at: datetime) -> date:
        """Return which day it is in the zone of this calendar."""
        return at.astimezone(self.zone).date()

    def last_late(self, at: datetime) -> int:
        """Return the ordinal of the last day whose publication is late at a moment if missing."""
        day = self.today(at)
        return day.toordinal() - (at < self.late_at(day))

    def same_until(self, at: datetime) -> datetime:
        """Return until when `today` and `last_late` stay what they are at a moment, aware UTC."""
        day = self.today(at)
        late = self.late_at(day)
        if at < late:
            return late
        midnight = datetime.combine(day, time.min, self.zone) + timedelta(days=1)
        return midnight.astimezone(UTC)

    def _search(self, day: date, step: int) -> date:
        start = day.toordinal()
        for ordinal in range(start + step, start + step * MAX_SEARCH, step):
            if not 1 <= ordinal <= date.max.toordinal():
                break
            found = date.fromordinal(ordinal)
            if self.is_open(found):
                return found
        raise CalendarError(f"calendar {self.name} knows no open day next to `{day}`")

    def _refuse_unknown(self, day: date) -> None:
        if self.horizon is not None and day > self.horizon:
            raise CalendarError(
                f"calendar {self.name} ends on `{self.horizon}`: `{day}` is unknown"
            )

    def _make_year(self, year: int) -> _Year:
        closed: dict[date, str] = {}
        for rule in self._yearly:
            day = rule.in_year(year)
            if day is not None:
                closed.setdefault(day, rule.reason)
        closed |= {day: why for day, why in self._special.items() if day.year == year}
        on_weekdays = {
            day: why for day, why in sorted(closed.items()) if day.weekday() not in self._weekend
        }
        first, last = date(year, 1, 1).toordinal(), date(year, 12, 31).toordinal()
        every = (date.fromordinal(ordinal) for ordinal in range(first, last + 1))
        weekdays = Days.of(day for day in every if day.weekday() not in self._weekend)
        closed_days = Days.of(on_weekdays)
        open_days = weekdays - closed_days
        return _Year(first, open_days.from_(first), closed_days.from_(first), on_weekdays)


def easter(year: int) -> date:
    """Return Easter Sunday of a year of the Gregorian calendar.

    Source: the algorithm of Meeus, Jones and Butcher.
    """
    golden = year % 19
    century, rest = divmod(year, 100)
    leap, left = divmod(century, 4)
    correction = (century - (century + 8) // 25 + 1) // 3
    moon = (19 * golden + century - leap - correction + 15) % 30
    quarter, years = divmod(rest, 4)
    to_sunday = (32 + 2 * left + 2 * quarter - moon - years) % 7
    shift = (golden + 11 * moon + 22 * to_sunday) // 451
    month, day = divmod(moon + to_sunday - 7 * shift + 114, 31)
    return date(year, month, day + 1)


def load(path: Path) -> PublicationCalendar:
    """Return the calendar of a file.

    Raises:
        CalendarError: the file cannot be read, or says something that no calendar says.
    """
    try:
        return _calendar(path.read_text("utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise CalendarError(f"cannot read calendar `{path}`: {reason}") from error


@lru_cache(maxsize=1)
def target() -> PublicationCalendar:
    """Return the calendar of the euro reference rates."""
    file = importlib.resources.files("limen.answers") / "calendar_files" / "target.toml"
    return _calendar(file.read_text("utf-8"), "target.toml")


def _calendar(text: str, where: str) -> PublicationCalendar:
    try:
        written: dict[str, Any] = tomllib.loads(text)
        return PublicationCalendar(_File(**written))
    except tomllib.TOMLDecodeError as error:
        raise CalendarError(f"cannot read calendar `{where}`: {error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise CalendarError(f"calendar `{where}`: `{key}` does not fit: {first['msg']}") from error
