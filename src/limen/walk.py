"""What one request has gathered on its way along the row.

Each step writes its own field and reads those of the steps before it; nothing else is shared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from limen.catalogue import Entry
from limen.ports import PolicyAnswer, PolicyResource, Transaction
from limen.words import Answer, Call, Caller, Outcome

NOBODY = Caller(id="", roles=frozenset(), scopes=frozenset())
"""Who has not been established yet: holds nothing."""


@dataclass(slots=True)
class Walk:
    """One request on its way. `arguments` is set by D4 alone: from there on they fit the schema."""

    call: Call
    started: float = 0.0
    step: str = ""
    caller: Caller = NOBODY
    entry: Entry | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    resource: PolicyResource | None = None
    policy: PolicyAnswer | None = None
    approval: str = ""
    outcome: Outcome | None = None
    """Set by D6 when the work was done already, after a person's yes: this is how it ended."""

    def entered(self) -> Entry:
        """Return the entry that D3 found.

        Raises:
            LookupError: D3 was not asked: the row is out of order.
        """
        if self.entry is None:
            raise LookupError("no entry before d3_reach has passed")
        return self.entry


class Backend(Protocol):
    """Stand behind the gate and do the work of the calls that were let through."""

    async def run(self, walk: Walk) -> Answer:
        """Do the work of a call."""

    def act(self, walk: Walk, transaction: Transaction, key: str) -> Answer:
        """Do the work of a tool that writes to the store, inside its transaction.

        `key` is unique to this piece of work: what it queues, it queues once.
        """
