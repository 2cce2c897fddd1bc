"""Is it written down, durably, exactly once?

The one writing point of the row: nothing leaves before the row of its call is committed. The row
holds digests of arguments and result, never the arguments, unless the owner lists fields to keep.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from limen.canonical import canonical, digest, digest_bytes
from limen.ports import AuditLog, Clock, Transaction
from limen.walk import Walk
from limen.words import Answer, AuditRow, Outcome, State

STEP = "d7_audit"

MAX_NAME = 128
"""Characters of a name that came from the wire, which is as long as a tool's name can be."""

MAX_PRIVATE = 500
"""Characters of what a row tells its owner."""

MAX_KEPT = 2_000
"""Characters of a kept field; a longer one is kept as its beginning."""


@dataclass(frozen=True, slots=True)
class Audit:
    """Write one row a call, before the answer leaves.

    `keep` names the arguments that the owner wants in the row, by tool.
    """

    log: AuditLog
    clock: Clock
    server: str
    keep: Mapping[str, frozenset[str]]
    rows_for_lists: bool = False

    async def write(self, walk: Walk, outcome: Outcome) -> Answer:
        """Write the row of a call that has ended, and return what may leave now.

        Raises:
            AuditError: the row is not durable, so nothing may leave.
        """
        await self.log.write(self.row(walk, outcome))
        return outcome.answer

    async def write_with(self, walk: Walk, work: Callable[[Transaction], Outcome]) -> Answer:
        """Do work in the store and write its row, both or neither.

        Raises:
            AuditError: neither is durable, so nothing may leave.
        """
        outcome = await self.log.write_with(work, lambda ended: self.row(walk, ended))
        return outcome.answer

    async def announce(self, walk: Walk, intended: Outcome) -> None:
        """Write that a call is about to act outside the store, before it does.

        Raises:
            AuditError: the intent is not durable, so the call must not act.
        """
        await self.log.write(self.row(walk, intended, "started"))

    def write_cancelled(self, walk: Walk) -> None:
        """Hand over the row of a call that nobody waits for any more."""
        ended = Outcome("allow", walk.step, "cancelled", Answer())
        self.log.write(self.row(walk, ended))

    async def count(self, walk: Walk, outcome: Outcome) -> Answer:
        """Count a request that gets no row of its own, unless the owner asked for one."""
        if self.rows_for_lists:
            return await self.write(walk, outcome)
        self.log.count(walk.call.method, walk.caller.id)
        return outcome.answer

    def row(self, walk: Walk, outcome: Outcome, state: State = "done") -> AuditRow:
        """Return the row of a call with this outcome."""
        call, entry = walk.call, walk.entry
        name = entry.name if entry is not None else shown(call.target or "", MAX_NAME)
        asked: Any = call.arguments
        if call.method == "resources/read":
            # An address says which document, as an argument does: the row gets its digest alone.
            name = entry.name if entry is not None else ""
            asked = call.target
        answer = outcome.answer
        said = answer.result if answer.result is not None else answer.problem
        return AuditRow(
            id=call.id,
            at=call.received_at,
            state=state,
            server=self.server,
            transport=call.transport,
            revision=call.revision,
            caller=walk.caller.id,
            client=call.client,
            method=shown(call.method, MAX_NAME),
            tool=name,
            decision=outcome.decision,
            step=outcome.step,
            reason=outcome.reason,
            private=shown(outcome.private, MAX_PRIVATE),
            arguments_digest="" if asked is None else _digest_of_any(asked),
            result_digest="" if said is None or state == "started" else _digest_of(answer),
            policies=walk.policy.policies if walk.policy is not None else (),
            approval=outcome.approval or walk.approval,
            duration_us=int((self.clock.monotonic() - walk.started) * 1_000_000),
            kept=self._kept(name, walk.arguments),
        )

    def _kept(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        fields = self.keep.get(tool)
        if fields is None:
            return None
        return {field: _short(arguments[field]) for field in sorted(fields) if field in arguments}


def shown(text: str, limit: int) -> str:
    """Return text from the wire as a row may hold it: bounded, and nothing a terminal acts on."""
    if text.isascii() and text.isprintable() and len(text) <= limit:
        return text
    safe = "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text[:limit]
    )
    return safe if len(safe) <= limit else safe[: limit - 1] + "…"


def _short(value: Any) -> Any:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return value if len(text) <= MAX_KEPT else text[: MAX_KEPT - 1] + "…"


def _digest_of(answer: Answer) -> str:
    # A result without JSON form is a fault here, while the call can still be refused.
    if answer.result is not None:
        return digest(answer.result)
    problem = answer.problem
    return "" if problem is None else digest([problem.code, problem.message, problem.data])


def _digest_of_any(value: Any) -> str:
    try:
        return digest_bytes(canonical(value))
    except TypeError:
        # Integers beyond 64 bits, which only a call that is refused can have.
        spelled = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return digest_bytes(spelled.encode())
