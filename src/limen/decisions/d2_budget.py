"""Is there anything left for this caller to spend?

The one charge point of the row, and it is passed before any name is looked at: a call that will
be refused costs exactly what a served one costs.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field

from limen.ports import Charge, Clock, Ledger
from limen.walk import Walk
from limen.words import OVER_BUDGET, Answer, Passed, Problem, Refused, Verdict

STEP = "d2_budget"
SPENT = "this caller has spent its share of the budget"


@dataclass(frozen=True, slots=True)
class Budget:
    """Charge each call to its own caller, once."""

    ledger: Ledger
    cost: int = 1

    async def decide(self, walk: Walk) -> Verdict:
        """Pass when the charge is granted; else give the one over-budget answer."""
        charge = self.ledger.reserve(walk.caller.id, self.cost)
        if charge.granted:
            return Passed()
        retry_after_s = max(1, math.ceil(charge.retry_after_s))
        return Refused(
            step=STEP,
            reason="over_budget",
            public=_over_budget(walk.call.method, retry_after_s),
            private=f"caller `{walk.caller.id}` may call again in {retry_after_s} s",
        )


def _over_budget(method: str, retry_after_s: int) -> Answer:
    said = {"ok": False, "error": "over_budget", "message": SPENT, "retry_after_s": retry_after_s}
    if method == "tools/call":
        return Answer(result=said, code="over_budget")
    return Answer(problem=Problem(OVER_BUDGET, SPENT, {"retry_after_s": retry_after_s}))


@dataclass(slots=True)
class TokenBuckets:
    """Keep one token bucket a caller: `capacity` units, refilled at `refill_per_second`.

    A caller not seen for as long as a full refill takes is forgotten, which changes nothing:
    their bucket is full again. So memory is bounded by the callers of one such span.
    """

    capacity: int
    refill_per_second: float
    clock: Clock
    _levels: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)

    def reserve(self, caller: str, cost: int) -> Charge:
        """Take `cost` units from the caller's bucket, or say when they will be there."""
        now = self.clock.monotonic()
        level, seen_at = self._levels.get(caller, (float(self.capacity), now))
        level = min(self.capacity, level + (now - seen_at) * self.refill_per_second)
        granted = level >= cost
        self._levels[caller] = (level - cost if granted else level, now)
        self._levels.move_to_end(caller)
        self._forget(now)
        if granted:
            return Charge(granted=True)
        if self.refill_per_second <= 0:
            return Charge(granted=False, retry_after_s=FOREVER_S)
        return Charge(granted=False, retry_after_s=(cost - level) / self.refill_per_second)

    def _forget(self, now: float) -> None:
        if self.refill_per_second <= 0:
            return
        full_after_s = self.capacity / self.refill_per_second
        oldest = next(iter(self._levels))
        while now - self._levels[oldest][1] > full_after_s:
            del self._levels[oldest]
            oldest = next(iter(self._levels))


FOREVER_S = 86_400.0
"""Seconds. What a bucket that never refills says: a day reads as `not today`."""
