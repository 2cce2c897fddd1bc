"""What a source of reference rates is, and what it brings: the same for all three of them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from types import MappingProxyType
from typing import Protocol

from limen.servers.ecb.series import Series
from limen.upstream.errors import UpstreamError

SOURCE = "Source: ECB statistics."
"""The sentence that the ESCB's policy on reuse asks for, word for word."""


class UnknownSeriesError(UpstreamError):
    """Say which series a source does not have."""

    code = "unknown_series"


class RejectedError(UpstreamError):
    """Say which question was refused: by the source, or before it was asked."""

    code = "rejected_parameters"


class NotCoveredError(UpstreamError):
    """Say which question a source that cannot ask on has no answer to."""

    code = "not_covered"


class DamagedFileError(UpstreamError):
    """Say which file is not the one that was recorded or installed. Nothing of it was used."""

    code = "damaged_file"


@dataclass(frozen=True, slots=True)
class Body:
    """The rates of one series, as one source had them at one moment.

    `rates` are units of the currency for 1 EUR, in exactly the digits that the source prints,
    oldest first, within the window that was asked of us. `covers_from` and `covers_to` are the
    days that the source itself was asked about: one of them without a rate has none there, and
    about any other day nothing is known; None is no bound. `completed_at` is when the source last
    said that this is all it has; `last_modified` is when it says it changed it.

    `placeholders` are rows without a rate of status `H`, `missing` those of any other. `statuses`
    has the days whose OBS_STATUS is not `A`. `origin` says in words where all of this is from.
    """

    series: Series
    rates: Mapping[date, str]
    covers_from: date | None
    covers_to: date | None
    completed_at: datetime
    origin: str
    last_modified: datetime | None = None
    placeholders: tuple[date, ...] = ()
    missing: tuple[date, ...] = ()
    statuses: Mapping[date, str] = field(default_factory=dict)
    decimals: int | None = None
    title: str = ""
    source: str = SOURCE

    def days(self) -> tuple[date, ...]:
        """Return the days that have a rate, oldest first."""
        return tuple(self.rates)

    def within(self, first: date, last: date) -> Body:
        """Return the same body with the days from `first` to `last` alone; its reach stays."""
        days = self.days()
        known = (*days[:1], *days[-1:], *self.placeholders, *self.missing, *self.statuses)
        if all(first <= day <= last for day in known):
            return self
        kept = days[bisect_left(days, first) : bisect_right(days, last)]
        rates = self.rates
        if len(kept) < len(days):
            rates = MappingProxyType({day: rates[day] for day in kept})
        return replace(
            self,
            rates=rates,
            placeholders=tuple(day for day in self.placeholders if first <= day <= last),
            missing=tuple(day for day in self.missing if first <= day <= last),
            statuses={day: said for day, said in self.statuses.items() if first <= day <= last},
        )


class RateSource(Protocol):
    """Bring reference rates. Safe to call from several tasks of one event loop."""

    async def window(self, currency: str, first: date, last: date) -> Body:
        """Return the rates of one currency (ISO 4217) from `first` to `last`, both included.

        Raises:
            UnknownSeriesError: there is no such series.
            UpstreamError: this source has no answer now; its subclasses say why.
        """

    async def close(self) -> None:
        """Let go of connections and tasks. Nothing is asked afterwards."""


class Calendar(Protocol):
    """When rates are published."""

    def next_open(self, day: date) -> date:
        """Return the first day after `day` that gets rates."""

    def previous_open(self, day: date) -> date:
        """Return the last day before `day` that got rates."""

    def due_at(self, day: date) -> datetime:
        """Return when the rates of an open day are due, aware."""
