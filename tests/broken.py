"""Run `limen` with one promise broken on purpose: `python broken.py BREAK up …`.

Each break is what a change of one line could do by mistake. The proofs have to notice.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

from limen.answers.calendars import PublicationCalendar
from limen.backends import native
from limen.cli import main
from limen.decisions.d2_budget import Budget
from limen.decisions.d3_reach import Reach
from limen.tokens import reader
from limen.tokens.reader import Unreadable
from limen.words import Passed, Problem


def no_audience_guard() -> None:
    reader.is_for = lambda token, resource: None  # type: ignore[assignment]


def verifier_raises() -> None:
    asked = reader.BearerTokens.token_of

    async def raising(self: Any, credential: str) -> Any:
        said = await asked(self, credential)
        if isinstance(said, Unreadable):
            raise RuntimeError(said.reason)
        return said

    reader.BearerTokens.token_of = raising  # type: ignore[method-assign]


def list_filter_off() -> None:
    class Everyone:
        scopes = frozenset({"rates:read", "series:list"})

    listed = native.Native._list

    def unfiltered(self: Any, walk: Any) -> Any:
        walk.caller = type(walk.caller)(walk.caller.id, walk.caller.roles, Everyone.scopes)
        return listed(self, walk)

    native.Native._list = unfiltered  # type: ignore[method-assign]


def refusal_echoes() -> None:
    decide = Reach.decide

    async def echoing(self: Any, walk: Any) -> Any:
        said = await decide(self, walk)
        if isinstance(said, Passed) or said.public.problem is None:
            return said
        problem = said.public.problem
        text = f"{problem.message}: {walk.call.target}"
        answer = type(said.public)(problem=Problem(problem.code, text))
        return type(said)(said.step, said.reason, answer, said.private)

    Reach.decide = echoing  # type: ignore[method-assign]


def free_refusals() -> None:
    decide = Budget.decide

    async def free(self: Any, walk: Any) -> Any:
        known = self.catalogue.find(walk.call.method, walk.call.target)
        if known is None or not known.visible_to(walk.caller):
            return Passed()
        return await decide(self, walk)

    Budget.decide = free  # type: ignore[method-assign]


def day_late_calendar() -> None:
    closing_reason = PublicationCalendar.closing_reason

    def late(self: Any, day: date) -> str | None:
        return closing_reason(self, day - timedelta(days=1))

    PublicationCalendar.closing_reason = late  # type: ignore[method-assign]


BREAKS: dict[str, Callable[[], None]] = {
    "no audience guard": no_audience_guard,
    "verifier raises": verifier_raises,
    "list filter off": list_filter_off,
    "refusal echoes": refusal_echoes,
    "free refusals": free_refusals,
    "day-late calendar": day_late_calendar,
}

if __name__ == "__main__":
    BREAKS[sys.argv.pop(1)]()
    main()
