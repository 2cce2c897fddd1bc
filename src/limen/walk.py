"""What one request has gathered on its way along the row.

Each step writes its own field and reads those of the steps before it; nothing else is shared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from limen.catalogue import Entry
from limen.ports import PolicyAnswer, PolicyResource
from limen.words import Call, Caller

NOBODY = Caller(id="", roles=frozenset(), scopes=frozenset())
"""Who has not been established yet: holds nothing."""


@dataclass(slots=True)
class Walk:
    """One request on its way. `arguments` is set by D4 alone: from there on they fit the schema."""

    call: Call
    started: float = 0.0
    caller: Caller = NOBODY
    entry: Entry | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    resource: PolicyResource | None = None
    policy: PolicyAnswer | None = None
    approval: str = ""

    def entered(self) -> Entry:
        """Return the entry that D3 found.

        Raises:
            LookupError: D3 was not asked: the row is out of order.
        """
        if self.entry is None:
            raise LookupError("no entry before d3_reach has passed")
        return self.entry
