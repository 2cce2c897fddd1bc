"""Is there anything left for this caller to spend?

The one charge point of the row, and it is passed before any name is looked at: a call that will
be refused costs exactly what a served one costs. Nobody can touch another caller's reserve, and
no answer says anything about what others have spent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from limen.catalogue import Catalogue
from limen.ports import Charge, Clock, Ledger
from limen.walk import Walk
from limen.words import OVER_BUDGET, Answer, Call, Caller, Passed, Problem, Refused, Verdict

STEP = "d2_budget"
SPENT = "this caller has spent its share of the budget"
QUOTA_SPENT = "this caller has used up its quota"

FOREVER_S = 86_400.0
"""Seconds. What a budget that never refills says: a day reads as `not today`."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Charge each call to its own caller, once.

    `weights` are what calls of some tools cost, by name; all else costs 1.
    """

    ledger: Ledger
    quotas: Quotas | None = None
    weights: Mapping[str, int] = field(default_factory=dict)
    catalogue: Catalogue | None = None

    async def decide(self, walk: Walk) -> Verdict:
        """Pass when the charge is granted; else give the one over-budget answer."""
        caller = walk.caller
        if self.quotas is not None and (wait_s := self.quotas.take(caller.id)) > 0:
            return _refused("over_quota", _over_quota(wait_s), caller, wait_s)
        charge = self.ledger.reserve(caller.id, self._cost(walk.call, caller))
        if charge.granted:
            return Passed()
        wait_s = max(1, math.ceil(charge.retry_after_s))
        return _refused("over_budget", _over_budget(walk.call.method, wait_s), caller, wait_s)

    def _cost(self, call: Call, caller: Caller) -> int:
        if not self.weights or self.catalogue is None or call.method != "tools/call":
            return 1
        entry = self.catalogue.find(call.method, call.target)
        # INVARIANT: a name that is hidden from this caller costs what a made-up one costs.
        if entry is None or not entry.visible_to(caller):
            return 1
        return self.weights.get(entry.name, 1)


def _refused(reason: str, public: Answer, caller: Caller, wait_s: int) -> Refused:
    return Refused(STEP, reason, public, f"caller `{caller.id}` may call again in {wait_s} s")


def _over_budget(method: str, retry_after_s: int) -> Answer:
    said = {"ok": False, "error": "over_budget", "message": SPENT, "retry_after_s": retry_after_s}
    if method == "tools/call":
        return Answer(result=said, code="over_budget")
    return Answer(problem=Problem(OVER_BUDGET, SPENT, {"retry_after_s": retry_after_s}))


def _over_quota(retry_after_s: int) -> Answer:
    problem = Problem(OVER_BUDGET, QUOTA_SPENT, {"retry_after_s": retry_after_s})
    return Answer(problem=problem, code="over_quota")


@dataclass(slots=True)
class _Bucket:
    """Units that refill over time. `seen_at` is in seconds of the monotonic clock."""

    capacity: float
    refill_per_second: float
    level: float
    seen_at: float

    def level_at(self, now: float) -> float:
        if now <= self.seen_at:
            return self.level
        return min(self.capacity, self.level + (now - self.seen_at) * self.refill_per_second)

    def refill(self, now: float) -> float:
        if now > self.seen_at:
            self.level = self.level_at(now)
            self.seen_at = now
        return self.level


class FairBudget:
    """Split capacity and refill into a reserve for each named caller and a common spare.

    A caller spends its own reserve first, then the spare. Whoever is not named has no reserve and
    shares the spare, so that inventing names conjures nothing, and leaves nothing in memory.
    """

    def __init__(
        self,
        capacity: float,
        refill_per_second: float,
        callers: Iterable[str],
        clock: Clock,
        *,
        reserve_fraction: float = 0.5,
    ) -> None:
        """Start full.

        Raises:
            ValueError: nobody is named although something is to be reserved, or the fraction is
                not above 0 and at most 1 although somebody is.
        """
        named = dict.fromkeys(callers)
        if not named and reserve_fraction != 0:
            raise ValueError("a budget names at least one caller, or reserves nothing")
        if named and not 0 < reserve_fraction <= 1:
            raise ValueError("the reserve is a fraction above 0 and at most 1")
        now = clock.monotonic()
        each = capacity * reserve_fraction / max(1, len(named))
        each_refill = refill_per_second * reserve_fraction / max(1, len(named))
        rest = 1 - reserve_fraction
        self._clock = clock
        self._reserves = {name: _Bucket(each, each_refill, each, now) for name in named}
        self._spare = _Bucket(capacity * rest, refill_per_second * rest, capacity * rest, now)
        # Whoever has no reserve is told what one of those who have would be.
        self._each_refill = each_refill if named else refill_per_second

    def reserve(self, caller: str, cost: int) -> Charge:
        """Take `cost` units: of the caller's own reserve, and what is missing of the spare."""
        now = self._clock.monotonic()
        own = self._reserves.get(caller)
        mine = 0.0 if own is None else own.refill(now)
        if own is not None and mine >= cost:
            own.level = mine - cost
            return GRANTED
        rest = cost - mine
        if self._spare.refill(now) >= rest:
            self._spare.level -= rest
            if own is not None:
                own.level = 0.0
            return GRANTED
        # INVARIANT: the time depends on the caller's own reserve, never on what others spent.
        if self._each_refill <= 0:
            return Charge(granted=False, retry_after_s=FOREVER_S)
        return Charge(granted=False, retry_after_s=rest / self._each_refill)

    def levels(self) -> dict[str, float]:
        """Return what is left: of each reserve by caller, and of the spare under the empty name.

        Changes nothing, so any thread may ask.
        """
        now = self._clock.monotonic()
        return {name: bucket.level_at(now) for name, bucket in self._all()}

    def restore(self, levels: Mapping[str, float], elapsed_s: float) -> None:
        """Go on where `levels` ended, `elapsed_s` seconds ago. Other names are left as they are."""
        for name, bucket in self._all():
            if name in levels:
                refilled = levels[name] + max(0.0, elapsed_s) * bucket.refill_per_second
                bucket.level = max(0.0, min(bucket.capacity, refilled))

    def _all(self) -> Iterable[tuple[str, _Bucket]]:
        return [("", self._spare), *self._reserves.items()]


GRANTED = Charge(granted=True)


class NaiveBucket:
    """One bucket for all: what is usual, kept so that the difference can be measured.

    Nothing of ours serves with it.
    """

    def __init__(self, capacity: float, refill_per_second: float, clock: Clock) -> None:
        self._clock = clock
        self._bucket = _Bucket(capacity, refill_per_second, capacity, clock.monotonic())

    def reserve(self, caller: str, cost: int) -> Charge:
        """Take `cost` units from what is everybody's."""
        level = self._bucket.refill(self._clock.monotonic())
        if level >= cost:
            self._bucket.level = level - cost
            return GRANTED
        refill = self._bucket.refill_per_second
        wait_s = FOREVER_S if refill <= 0 else (cost - level) / refill
        return Charge(granted=False, retry_after_s=wait_s)


@dataclass(slots=True)
class _Used:
    """Calls of one caller in the running minute, counted from the epoch, and in the day."""

    minute: int = 0
    in_minute: int = 0
    in_day: int = 0


class Quotas:
    """Count the calls of each caller by minute and by day, UTC. None is no limit.

    A caller whose day is over is forgotten, so memory is bounded by the callers of one day.
    """

    def __init__(self, per_minute: int | None, per_day: int | None, clock: Clock) -> None:
        self._per_minute = per_minute
        self._per_day = per_day
        self._clock = clock
        self._used: dict[str, _Used] = {}
        self._today = 0

    def take(self, caller: str) -> int:
        """Count one call and return 0, or return the seconds until one is allowed again."""
        now = self._clock.now()
        used = self._at(caller, now)
        if self._per_day is not None and used.in_day >= self._per_day:
            midnight = now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
            return math.ceil((midnight - now).total_seconds())
        if self._per_minute is not None and used.in_minute >= self._per_minute:
            return 60 - now.second
        used.in_minute += 1
        used.in_day += 1
        return 0

    def _at(self, caller: str, now: datetime) -> _Used:
        minute = int(now.timestamp()) // 60
        day = minute // (24 * 60)
        if day != self._today:
            self._used.clear()
            self._today = day
        used = self._used.setdefault(caller, _Used())
        if used.minute != minute:
            used.minute, used.in_minute = minute, 0
        return used

    def days(self) -> dict[str, float]:
        """Return the calls of each caller in the running day."""
        return {caller: float(used.in_day) for caller, used in tuple(self._used.items())}

    def restore(self, days: Mapping[str, float], at: datetime) -> None:
        """Go on where `days` ended, if that is still the running day."""
        now = self._clock.now()
        if at.date() == now.date():
            for caller, calls in days.items():
                self._at(caller, now).in_day = int(calls)
