"""Time that passes only when somebody waits, and a calendar of plain weekdays."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

FRANKFURT = ZoneInfo("Europe/Berlin")


@dataclass
class PatientClock:
    """Move by as much as somebody sleeps, at once, and note it."""

    at: datetime = datetime(2026, 8, 26, 9, 0, tzinfo=UTC)
    passed_s: float = 0.0
    slept: list[float] = field(default_factory=list)

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.passed_s

    def move(self, **span: float) -> None:
        self.at += timedelta(**span)
        self.passed_s += timedelta(**span).total_seconds()

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.move(seconds=seconds)
        await asyncio.sleep(0)


@dataclass(frozen=True)
class Weekdays:
    """Every weekday is open, and its rates are due at 16:00 in Frankfurt."""

    def next_open(self, day: date) -> date:
        return self._from(day, 1)

    def previous_open(self, day: date) -> date:
        return self._from(day, -1)

    def due_at(self, day: date) -> datetime:
        return datetime.combine(day, time(16), FRANKFURT).astimezone(UTC)

    def _from(self, day: date, step: int) -> date:
        day += timedelta(days=step)
        while day.weekday() > 4:
            day += timedelta(days=step)
        return day
