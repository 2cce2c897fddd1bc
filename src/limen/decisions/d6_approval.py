"""Must a person say yes first?

An approval answers for one call: the same caller, tool, tool definition, arguments, document
version and rules. One byte of difference in any of them is another call, and asks again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from limen.canonical import digest
from limen.ports import Approvals, Clock, Transaction
from limen.walk import Walk
from limen.words import (
    Answer,
    Approval,
    ApprovalRequest,
    Held,
    Outcome,
    Passed,
    Refused,
    Verdict,
    business,
)

STEP = "d6_approval"

NOES = {
    "rejected": "a person has rejected this call",
    "expired": "nobody decided in time; the same call asks again",
    "conflict": "what was asked for has changed since; the same call asks again",
    "failed": "it was approved, but could not be carried out",
    "unconfirmed": "it was approved and sent, but nobody can say whether it arrived",
}
"""What the caller is told of each state that is a no."""

UNSETTLED = ("pending", "expired", "conflict")
"""States in which an approval may become another one when it is asked for again."""


@dataclass(frozen=True, slots=True)
class ApprovalStep:
    """Hold what needs a person's yes, and tell what became of it."""

    approvals: Approvals
    clock: Clock
    server: str
    expiry: timedelta

    async def decide(self, walk: Walk) -> Verdict:
        """Pass what is not held, or was approved; hold what waits; refuse what was refused."""
        if walk.call.method != "tools/call" or not walk.entered().held:
            return Passed()
        request = self._request(walk)
        found = self.approvals.find(request)
        # What is open or has lapsed is settled in the transaction that writes the row.
        if (
            found is None
            or found.state in UNSETTLED
            or found.request.expires_at <= request.asked_at
        ):
            return Held(STEP, request)
        outcome = outcome_of(found)
        walk.approval = found.id
        if outcome.decision == "allow":
            walk.outcome = outcome
            return Passed()
        return Refused(STEP, outcome.reason, outcome.answer, outcome.private)

    def open(self, transaction: Transaction, request: ApprovalRequest) -> Outcome:
        """Ask for a person's yes, in the transaction that writes the row of the call."""
        return outcome_of(self.approvals.open(transaction, request))

    def _request(self, walk: Walk) -> ApprovalRequest:
        entry = walk.entered()
        resource, policy = walk.resource, walk.policy
        if resource is None or policy is None:
            raise LookupError("no resource before d5_policy has passed")
        now = self.clock.now()
        return ApprovalRequest(
            caller=walk.caller.id,
            server=self.server,
            tool=entry.name,
            tool_digest=entry.digest,
            arguments=walk.arguments,
            arguments_digest=digest(walk.arguments),
            resource=f"{resource.entity.type}::{resource.entity.id}",
            resource_digest=resource.digest,
            policy_version=policy.version,
            asked_at=now,
            expires_at=now + self.expiry,
            setup=resource.setup,
            transport=walk.call.transport,
            roles=tuple(sorted(walk.caller.roles)),
            scopes=tuple(sorted(walk.caller.scopes)),
        )


def outcome_of(approval: Approval) -> Outcome:
    """Return how a call ends that this approval answers for."""
    state = approval.state
    if state == "pending":
        answer = business(
            "pending_approval",
            "a person has to say yes first; the same call tells what became of it",
            approval=approval.id,
            decide=f"limen approvals show {approval.id}",
            expires_at=approval.request.expires_at.isoformat(timespec="seconds"),
        )
        return Outcome("hold", STEP, "pending_approval", answer, approval=approval.id)
    if state in NOES:
        reason = approval.decision_reason
        said = {"approval": approval.id} | ({"reason": reason} if reason else {})
        answer = business(state, NOES[state], **said)
        private = f"decided by `{approval.decided_by}`" if approval.decided_by else ""
        return Outcome("deny", STEP, state, answer, private, approval.id)
    result = {**(approval.outcome or {"ok": True}), "state": state, "approval": approval.id}
    if state == "approved":
        result["state"] = "queued"
    return Outcome("allow", STEP, state, Answer(result=result), approval=approval.id)
