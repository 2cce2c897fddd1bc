"""The gate: the row of seven, and the one loop that walks it.

method                walks
tools/call            d1 d2 d3 d4 d5 d6 d7
prompts/get           d1 d2 d3 d4 d5    d7
resources/read        d1 d2 d3 d4 d5    d7
completion/complete   d1 d2 d3 d4       d7
lists                 d1    d3          d7   counted, unless the owner wants a row each
initialize, ping …    d1                d7   counted, like lists
a notification        d1                d7   counted: it asks for nothing
anything else         d1 d2             d7   malformed, or no method that we know
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from limen.decisions.d1_audience import Audience
from limen.decisions.d2_budget import Budget
from limen.decisions.d3_reach import Reach
from limen.decisions.d4_shape import Shape
from limen.decisions.d5_policy import PolicyStep
from limen.decisions.d6_approval import ApprovalStep
from limen.decisions.d7_audit import Audit
from limen.errors import AuditError, LimenError
from limen.ports import Clock, Transaction
from limen.walk import Backend, Walk
from limen.words import (
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    Answer,
    Call,
    Effect,
    Held,
    Outcome,
    Problem,
    Refused,
)

log = logging.getLogger(__name__)


class Row(NamedTuple):
    """The seven decisions, in the order in which every call meets them."""

    d1_audience: Audience
    d2_budget: Budget
    d3_reach: Reach
    d4_shape: Shape
    d5_policy: PolicyStep
    d6_approval: ApprovalStep
    d7_audit: Audit


_ALL = ("d1_audience", "d2_budget", "d3_reach", "d4_shape", "d5_policy", "d6_approval")
_READING = ("d1_audience", "d2_budget", "d3_reach", "d4_shape", "d5_policy")
_LISTING = ("d1_audience", "d3_reach")

WALKS: Mapping[str, tuple[str, ...]] = {
    "tools/call": _ALL,
    "prompts/get": _READING,
    "resources/read": _READING,
    "completion/complete": ("d1_audience", "d2_budget", "d3_reach", "d4_shape"),
    "tools/list": _LISTING,
    "prompts/list": _LISTING,
    "resources/list": _LISTING,
    "resources/templates/list": _LISTING,
    "initialize": ("d1_audience",),
    "server/discover": ("d1_audience",),
    "ping": ("d1_audience",),
    "notification": ("d1_audience",),
    "subscriptions/listen": ("d1_audience", "d2_budget"),
}
"""Which steps a method walks before its work is done. All end at d7_audit."""

ANYTHING_ELSE = ("d1_audience", "d2_budget")

COUNTED = frozenset(method for method, steps in WALKS.items() if "d2_budget" not in steps)
"""Methods that cost nothing and are counted, not written down one by one."""

UNAVAILABLE = Answer(
    problem=Problem(INTERNAL_ERROR, "nobody can say who calls just now: try again later"),
    code="unavailable",
)
"""What a fault in d1_audience answers: that the caller may be good is all that is known."""

FAULT = Answer(problem=Problem(INTERNAL_ERROR, "the call could not be completed"))
UNRECORDED = Answer(
    problem=Problem(INTERNAL_ERROR, "the call was refused: it could not be written down")
)
NO_SUCH_METHOD = Answer(problem=Problem(METHOD_NOT_FOUND, "this server has no such method"))


class Gate:
    """Let a call through, or refuse it; either way it is written down before anything leaves."""

    def __init__(self, row: Row, backend: Backend, clock: Clock) -> None:
        self._row = row
        self._backend = backend
        self._clock = clock
        self._walks = {
            method: tuple((name, getattr(row, name).decide) for name in steps)
            for method, steps in (*WALKS.items(), ("", ANYTHING_ELSE))
        }

    async def answer(self, call: Call) -> Answer:
        """Return what may leave, once the row of the call is durable. Never raises a fault."""
        walk = Walk(call, self._clock.monotonic())
        try:
            try:
                return await self._walk(walk)
            except AuditError:
                raise
            except Exception as fault:  # Fails closed: the one place where a fault ends as a no.
                log.error("fault in %s of %s: %s", walk.step, call.method, _kind(fault))
                log.debug("fault in %s", walk.step, exc_info=fault)
                public = UNAVAILABLE if walk.step == "d1_audience" else FAULT
                refused = Outcome("deny", walk.step, "fault", public, _kind(fault))
                return await self._row.d7_audit.write(walk, refused)
        except AuditError as error:
            log.error("call refused: %s", error)
            return UNRECORDED

    async def _walk(self, walk: Walk) -> Answer:
        known = walk.call.flaw is None and walk.call.method in WALKS
        for name, decide in self._walks[walk.call.method if known else ""]:
            walk.step = name
            verdict = await decide(walk)
            if isinstance(verdict, Refused):
                return await self._refuse(walk, verdict)
            if isinstance(verdict, Held):
                return await self._hold(walk, verdict)
        walk.step = "backend"
        return await (self._carry_out(walk) if known else self._refuse_unknown(walk))

    async def _refuse(self, walk: Walk, said: Refused) -> Answer:
        outcome = Outcome("deny", said.step, said.reason, said.public, said.private)
        return await self._row.d7_audit.write(walk, outcome)

    async def _hold(self, walk: Walk, held: Held) -> Answer:
        def ask(transaction: Transaction) -> Outcome:
            # Nobody is asked to say yes to what could not be done anyway.
            rehearsed = transaction.rehearse(
                lambda: self._backend.act(walk, transaction, walk.call.id)
            )
            if rehearsed.code is not None:
                return Outcome("allow", held.step, rehearsed.code, rehearsed)
            return self._row.d6_approval.open(transaction, held.request)

        return await self._row.d7_audit.write_with(walk, ask)

    async def _refuse_unknown(self, walk: Walk) -> Answer:
        flaw = walk.call.flaw
        if flaw is None:
            outcome = Outcome("deny", "wire", "unknown_method", NO_SUCH_METHOD)
        else:
            outcome = Outcome("deny", "wire", flaw.reason, Answer(problem=flaw.problem))
        return await self._row.d7_audit.write(walk, outcome)

    async def _carry_out(self, walk: Walk) -> Answer:
        audit = self._row.d7_audit
        if walk.outcome is not None:
            return await audit.write(walk, walk.outcome)
        if walk.call.method in COUNTED:
            return await audit.count(walk, _ended(await self._backend.run(walk)))
        effect = Effect.READ if walk.entry is None else walk.entry.effect
        if effect is Effect.STORE:
            return await audit.write_with(
                walk, lambda opened: _ended(self._backend.act(walk, opened, walk.call.id))
            )
        try:
            if effect is Effect.OUTSIDE:
                await audit.announce(walk, Outcome("allow", "d7_audit", "allowed", Answer()))
            answer = await self._backend.run(walk)
        except asyncio.CancelledError:
            audit.write_cancelled(walk)
            raise
        return await audit.write(walk, _ended(answer))


def _ended(answer: Answer) -> Outcome:
    return Outcome("allow", "d7_audit", answer.code or "allowed", answer)


def _kind(fault: Exception) -> str:
    """Return what a fault was and where, without what it says: that may quote a caller."""
    kind = type(fault).__name__
    if isinstance(fault, LimenError):
        # Our own messages have their fixed part first.
        return f"{kind}: {str(fault).partition(':')[0].partition('`')[0].strip()}"
    frames = traceback.extract_tb(fault.__traceback__)
    return f"{kind} at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else kind
