"""May this caller see this tool at all?

A name that is not granted, is switched off or was never there gets one and the same answer. It
never repeats the name, and it is decided before any argument or header is compared with anything.
"""

from __future__ import annotations

from dataclasses import dataclass

from limen.catalogue import Catalogue, Entry
from limen.walk import Walk
from limen.words import (
    INVALID_PARAMS,
    NO_SUCH_PROMPT,
    NO_SUCH_RESOURCE,
    NO_SUCH_TOOL,
    Answer,
    Passed,
    Problem,
    Refused,
    Verdict,
)

STEP = "d3_reach"

ONE_REFUSAL = {
    "tools/call": NO_SUCH_TOOL,
    "prompts/get": NO_SUCH_PROMPT,
    "resources/read": NO_SUCH_RESOURCE,
    "completion/complete": NO_SUCH_PROMPT,
}


@dataclass(frozen=True, slots=True)
class Reach:
    """Find the entry that a call names, among those that exist for its caller."""

    catalogue: Catalogue

    async def decide(self, walk: Walk) -> Verdict:
        """Pass with `walk.entry` set, or give the one refusal. Lists name nothing and pass."""
        text = ONE_REFUSAL.get(walk.call.method)
        if text is None:
            return Passed()
        entry = self.catalogue.find(walk.call.method, walk.call.target)
        if entry is not None and entry.visible_to(walk.caller):
            walk.entry = entry
            return Passed()
        return Refused(
            step=STEP,
            reason=self._reason(entry, walk.call.method),
            public=one_refusal(walk.call.method),
            private=_private(entry, walk),
        )

    def _reason(self, entry: Entry | None, method: str) -> str:
        if entry is not None:
            return "out_of_reach"
        return {"prompts/get": "unknown_prompt", "resources/read": "unknown_resource"}.get(
            method, "unknown_tool" if method == "tools/call" else "unknown_reference"
        )


def one_refusal(method: str) -> Answer:
    """Return the one refusal of a method: fixed code, fixed text, no data."""
    return Answer(problem=Problem(INVALID_PARAMS, ONE_REFUSAL[method]))


def _private(entry: Entry | None, walk: Walk) -> str:
    if entry is None:
        return "the catalogue has no such entry"
    if not entry.enabled:
        return f"`{entry.name}` is switched off"
    return f"caller `{walk.caller.id}` lacks scope `{entry.scope}`"
