"""Sessions of legacy clients over HTTP: what `initialize` settled, under an id that is a secret.

A session belongs to the caller who opened it, and is none to anybody else. They are bounded by
number and by idle time, so that those that nobody ends cost nothing.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from dataclasses import dataclass

from limen.ports import Clock
from limen.transport.envelope import Session

MAX_OF_CALLER = 64
"""Sessions of one caller; the one used longest ago ends when another is opened."""

MAX_SESSIONS = 10_000
IDLE_S = 1_800.0
"""Seconds after which a session that nobody used has ended."""


@dataclass(slots=True)
class _Open:
    caller: str
    session: Session
    used_at: float


class Sessions:
    """Keep what is open, those used longest ago first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: OrderedDict[str, _Open] = OrderedDict()
        self._ids: dict[str, OrderedDict[str, None]] = {}

    def open(self, caller: str, session: Session) -> str:
        """Keep a session and return its id."""
        self._end_idle()
        own = self._ids.setdefault(caller, OrderedDict())
        if len(own) >= MAX_OF_CALLER:
            self._end(next(iter(own)))
        elif len(self._open) >= MAX_SESSIONS:
            self._end(next(iter(self._open)))
        session_id = secrets.token_urlsafe(24)
        self._open[session_id] = _Open(caller, session, self._clock.monotonic())
        self._ids.setdefault(caller, own)[session_id] = None
        return session_id

    def find(self, session_id: str, caller: str) -> Session | None:
        """Return a caller's session, or None when it has ended, is another's or never was."""
        self._end_idle()
        found = self._open.get(session_id)
        if found is None or found.caller != caller:
            return None
        found.used_at = self._clock.monotonic()
        self._open.move_to_end(session_id)
        self._ids[caller].move_to_end(session_id)
        return found.session

    def end(self, session_id: str, caller: str) -> bool:
        """End a caller's session. False when there is none to end."""
        if self.find(session_id, caller) is None:
            return False
        self._end(session_id)
        return True

    def __len__(self) -> int:
        return len(self._open)

    def _end_idle(self) -> None:
        oldest_allowed = self._clock.monotonic() - IDLE_S
        while self._open:
            session_id, found = next(iter(self._open.items()))
            if found.used_at >= oldest_allowed:
                return
            self._end(session_id)

    def _end(self, session_id: str) -> None:
        ended = self._open.pop(session_id)
        own = self._ids[ended.caller]
        del own[session_id]
        if not own:
            del self._ids[ended.caller]
