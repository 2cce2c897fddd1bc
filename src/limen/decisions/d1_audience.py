"""Is this token meant for exactly this server, and who holds it?

On stdio there is no token: the process that started us vouches for its one caller, whose
identity and grants come from the settings. Nothing on the wire can change them.
"""

from __future__ import annotations

from dataclasses import dataclass

from limen.ports import CallerReader
from limen.walk import Walk
from limen.words import INVALID_REQUEST, Answer, Call, Caller, Passed, Problem, Refused, Verdict

STEP = "d1_audience"


@dataclass(frozen=True, slots=True)
class Audience:
    """Establish the caller, or refuse."""

    callers: CallerReader

    async def decide(self, walk: Walk) -> Verdict:
        """Pass with `walk.caller` set, or refuse a call that nobody vouches for."""
        caller = await self.callers.caller_of(walk.call)
        if caller is None:
            return Refused(
                step=STEP,
                reason="unauthenticated",
                public=Answer(problem=Problem(INVALID_REQUEST, "this call has no caller")),
                private="nobody vouches for the caller",
            )
        walk.caller = caller
        return Passed()


@dataclass(frozen=True, slots=True)
class LocalCaller:
    """Vouch for the one caller of a stdio server."""

    caller: Caller

    async def caller_of(self, call: Call) -> Caller | None:
        """Return the caller of the settings, whatever the call says."""
        return self.caller
