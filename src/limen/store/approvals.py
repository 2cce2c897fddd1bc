"""Approvals: what waits for a person, what they said, and what came of it.

    pending ─┬─ approved ─┬─ delivered
             ├─ rejected  ├─ failed        the other side did not take it
             ├─ expired   └─ unconfirmed   nobody can say
             └─ conflict                   what was asked for is no longer what it was

An approval answers for its call while it is `live`: until it expires, or until it was told that it
lapsed. `binding` names all that it is bound to, so one byte of difference is another.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from limen.canonical import canonical, digest
from limen.ports import Clock, Transaction
from limen.store.audit import connection_of
from limen.store.database import Connection, Reader, Row
from limen.store.schema import utc_text
from limen.words import Approval, ApprovalRequest

NEXT = {
    "pending": ("approved", "rejected", "expired", "conflict"),
    "approved": ("delivered", "failed", "unconfirmed"),
}
"""From each state, the states that may follow. What is not a key is final."""

LAPSED = ("expired", "conflict")
"""States that nobody decided on: told once to whoever asks again, and then asked anew."""

LATE = "nobody decided in time"


@dataclass(frozen=True, slots=True)
class ApprovalTable:
    """Read and write approvals on one connection. Commits nothing by itself."""

    connection: Connection

    def find_live(self, request: ApprovalRequest) -> Approval | None:
        """Return the approval that answers for exactly this request, or None."""
        return _approval(
            self.connection.one(
                "SELECT * FROM approval WHERE binding = :binding AND live = 1",
                binding=binding_of(request),
            )
        )

    def find(self, approval_id: str) -> Approval | None:
        """Return an approval, or None."""
        return _approval(
            self.connection.one("SELECT * FROM approval WHERE id = :id", id=approval_id)
        )

    def newest(self, limit: int, state: str | None = None) -> list[Approval]:
        """Return up to `limit` approvals, those asked for last before the others."""
        rows = self.connection.all(
            "SELECT * FROM approval WHERE :state IS NULL OR state = :state"
            " ORDER BY asked_at DESC, id DESC LIMIT :limit",
            state=state,
            limit=limit,
        )
        return [found for row in rows if (found := _approval(row)) is not None]

    def add(self, approval_id: str, request: ApprovalRequest) -> Approval:
        """Add a pending approval that answers for its request from now on."""
        self.connection.run(
            "INSERT INTO approval (id, binding, live, state, request, asked_at)"
            " VALUES (:id, :binding, 1, 'pending', :request, :asked_at)",
            id=approval_id,
            binding=binding_of(request),
            request=canonical(_request_json(request)).decode(),
            asked_at=utc_text(request.asked_at),
        )
        return Approval(approval_id, request, "pending")

    def retire(self, approval_id: str) -> None:
        """Let an approval answer for its request no longer."""
        self.connection.run("UPDATE approval SET live = NULL WHERE id = :id", id=approval_id)

    def decide(
        self,
        approval_id: str,
        state: str,
        *,
        by: str,
        at: datetime,
        reason: str,
        outcome: Mapping[str, Any] | None = None,
    ) -> bool:
        """Write down what a person, or the time, decided. False when it was decided before."""
        _refuse_move("pending", state)
        moved = self.connection.run(
            "UPDATE approval SET state = :state, decided_by = :by, decided_at = :at,"
            " decision_reason = :reason, outcome = :outcome WHERE id = :id AND state = 'pending'",
            id=approval_id,
            state=state,
            by=by,
            at=utc_text(at),
            reason=reason,
            outcome=None if outcome is None else canonical(outcome).decode(),
        )
        return moved == 1

    def end(self, approval_id: str, state: str) -> bool:
        """Write down what became of an approved call. False when it is not `approved`."""
        found = self.find(approval_id)
        if found is None:
            return False
        _refuse_move("approved", state)
        moved = self.connection.run(
            "UPDATE approval SET state = :state, outcome = :outcome"
            " WHERE id = :id AND state = 'approved'",
            id=approval_id,
            state=state,
            outcome=canonical({**(found.outcome or {}), "state": state}).decode(),
        )
        return moved == 1


@dataclass(frozen=True, slots=True)
class StoredApprovals:
    """Keep what waits for a person; `limen.ports.Approvals` is the contract."""

    reader: Reader
    clock: Clock
    new_id: Callable[[], str]

    def find(self, request: ApprovalRequest) -> Approval | None:
        """Return the approval that answers for exactly this request, or None."""
        return ApprovalTable(self.reader.connection()).find_live(request)

    def open(self, transaction: Transaction, request: ApprovalRequest) -> Approval:
        """Return the approval that answers for exactly this request, made pending if need be."""
        table = ApprovalTable(connection_of(transaction))
        found = table.find_live(request)
        now = self.clock.now()
        if found is None:
            return table.add(self.new_id(), request)
        if found.state in LAPSED:
            table.retire(found.id)
            return found
        if found.request.expires_at > now:
            return found
        table.retire(found.id)
        if table.decide(found.id, "expired", by="", at=now, reason=LATE):
            return dataclasses.replace(
                found, state="expired", decided_by="", decided_at=now, decision_reason=LATE
            )
        return table.add(self.new_id(), request)

    def find_by_id(self, transaction: Transaction, approval_id: str) -> Approval | None:
        """Return an approval, or None."""
        return ApprovalTable(connection_of(transaction)).find(approval_id)

    def decide(
        self,
        transaction: Transaction,
        approval_id: str,
        state: str,
        *,
        by: str,
        reason: str,
        outcome: Mapping[str, Any] | None = None,
    ) -> bool:
        """Write down what a person, or the time, decided. False when it was decided before."""
        table = ApprovalTable(connection_of(transaction))
        at = self.clock.now()
        return table.decide(approval_id, state, by=by, at=at, reason=reason, outcome=outcome)


def binding_of(request: ApprovalRequest) -> str:
    """Return the digest of all that an approval is bound to."""
    bound = _request_json(request)
    del bound["asked_at"], bound["expires_at"], bound["arguments"]
    return digest(bound)


def _refuse_move(from_state: str, to_state: str) -> None:
    if to_state not in NEXT[from_state]:
        raise ValueError(f"approval cannot go from `{from_state}` to `{to_state}`")


def _request_json(request: ApprovalRequest) -> dict[str, Any]:
    return {
        **dataclasses.asdict(request),
        "asked_at": utc_text(request.asked_at),
        "expires_at": utc_text(request.expires_at),
    }


def _approval(row: Row | None) -> Approval | None:
    if row is None:
        return None
    asked = orjson.loads(row["request"])
    asked["asked_at"] = datetime.fromisoformat(asked["asked_at"])
    asked["expires_at"] = datetime.fromisoformat(asked["expires_at"])
    asked["roles"], asked["scopes"] = tuple(asked["roles"]), tuple(asked["scopes"])
    return Approval(
        id=row["id"],
        request=ApprovalRequest(**asked),
        state=row["state"],
        decided_by=row["decided_by"],
        decided_at=None if row["decided_at"] is None else datetime.fromisoformat(row["decided_at"]),
        decision_reason=row["decision_reason"],
        outcome=None if row["outcome"] is None else orjson.loads(row["outcome"]),
    )
