"""What callers have left to spend, kept over a restart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import orjson

from limen.canonical import canonical
from limen.store.database import Connection
from limen.store.schema import utc_text


@dataclass(frozen=True, slots=True)
class Balances:
    """The balances of one server: units left by caller, calls of the day by caller, and when."""

    levels: Mapping[str, float]
    days: Mapping[str, float]
    saved_at: datetime


@dataclass(frozen=True, slots=True)
class BudgetTable:
    """Read and write balances on one connection. Commits nothing by itself."""

    connection: Connection

    def save(self, server: str, balances: Balances) -> None:
        """Write the balances of a server over those of before."""
        self.connection.run(
            "INSERT INTO budget VALUES (:server, :levels, :days, :saved_at) ON CONFLICT (server)"
            " DO UPDATE SET levels = :levels, days = :days, saved_at = :saved_at",
            server=server,
            levels=canonical(dict(balances.levels)).decode(),
            days=canonical(dict(balances.days)).decode(),
            saved_at=utc_text(balances.saved_at),
        )

    def find(self, server: str) -> Balances | None:
        """Return the balances of a server as saved last, or None."""
        row = self.connection.one("SELECT * FROM budget WHERE server = :server", server=server)
        if row is None:
            return None
        return Balances(
            orjson.loads(row["levels"]),
            orjson.loads(row["days"]),
            datetime.fromisoformat(row["saved_at"]),
        )
