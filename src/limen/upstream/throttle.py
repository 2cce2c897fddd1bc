"""How often a source is asked at most: our own promise, matching no limit of theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from limen.ports import Clock
from limen.upstream.errors import SourceThrottledError

Sleep = Callable[[float], Awaitable[object]]
"""Wait for that many seconds: `asyncio.sleep`, or a test's own."""


@dataclass(slots=True)
class Throttle:
    """Let `burst` requests out at once, and `per_second` from then on. First come, first out."""

    burst: int
    per_second: float
    clock: Clock
    sleep: Sleep
    _level: float = field(init=False)
    _seen_at: float = field(init=False)

    def __post_init__(self) -> None:
        """Start with a full bucket."""
        self._level = float(self.burst)
        self._seen_at = self.clock.monotonic()

    async def pay(self, patience_s: float) -> None:
        """Wait until one request may go out. A cancelled wait gives its place back.

        Raises:
            SourceThrottledError: that would take longer than `patience_s`. Nothing was paid.
        """
        now = self.clock.monotonic()
        self._level = min(self.burst, self._level + (now - self._seen_at) * self.per_second)
        self._seen_at = now
        # Below zero the level counts who waits already, so each one's turn is known at once.
        wait_s = max(0.0, (1 - self._level) / self.per_second)
        if wait_s > patience_s:
            raise SourceThrottledError(
                "our own throttle has no request left for this", retry_after_s=wait_s
            )
        self._level -= 1
        if wait_s > 0:
            try:
                await self.sleep(wait_s)
            except asyncio.CancelledError:
                self._level += 1
                raise
