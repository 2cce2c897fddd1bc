"""A person's decision about a call that is held: the other end of D6.

What was asked for is compared again, in the transaction that carries it out: the tool, the state
of what it is about, where it leads, the rules, the time; and the rules are asked again whether its
caller still may. Anything that differs ends the approval as `conflict`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from limen.catalogue import Catalogue
from limen.decisions.d7_audit import Audit
from limen.errors import ApprovalError
from limen.ports import Approvals, Clock, Policy, PolicyResource, Transaction
from limen.walk import NOBODY, Backend, Walk
from limen.words import Answer, Approval, ApprovalRequest, AuditRow, Call, Caller, Outcome

STEP = "d6_approval"


class WriteNow(Protocol):
    """Do work in the store and write its row, both or neither, and wait for the commit."""

    def __call__(
        self, work: Callable[[Transaction], Ruling], row_of: Callable[[Ruling], AuditRow]
    ) -> Ruling:
        """Return what `work` returned, once it is durable."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """What a person's word has led to: the approval as it stands, and why not, if not."""

    approval: Approval | None
    refused: ApprovalError | None = None


@dataclass(frozen=True, slots=True)
class Review:
    """Approve or reject calls of one server. Every attempt gets a row, the refused ones too.

    `resource_of` looks up what a call is about in the transaction; `caller_of` says what whoever
    asked holds now, or None for one who is no more.
    """

    catalogue: Catalogue
    backend: Backend
    resource_of: Callable[[Transaction, Walk], PolicyResource | Answer]
    policy: Policy
    caller_of: Callable[[ApprovalRequest], Caller | None]
    approvals: Approvals
    audit: Audit
    write: WriteNow
    clock: Clock
    new_id: Callable[[], str]

    def approve(self, approval_id: str, *, by: str, reason: str = "") -> Approval:
        """Say yes: carry the call out in the store, once, and return the approval.

        Raises:
            ApprovalError: it cannot be approved (any more); nothing was carried out.
            AuditError: nothing is durable.
        """
        return self._rule("approvals/approve", approval_id, by, reason, self._approve)

    def reject(self, approval_id: str, *, by: str, reason: str) -> Approval:
        """Say no, and return the approval.

        Raises:
            ApprovalError: it was decided before, or expired, or is not there.
            AuditError: nothing is durable.
        """
        return self._rule("approvals/reject", approval_id, by, reason, self._reject)

    def _rule(
        self,
        method: str,
        approval_id: str,
        by: str,
        reason: str,
        decide: Callable[[Transaction, Approval, str, str], Ruling],
    ) -> Approval:
        call = Call(self.new_id(), self.clock.now(), "cli", "", "limen", method)
        walk = Walk(call, self.clock.monotonic(), caller=Caller(by, frozenset(), frozenset()))
        walk.approval = approval_id

        def work(transaction: Transaction) -> Ruling:
            approval = self.approvals.find_by_id(transaction, approval_id)
            refused = self._why_not(transaction, approval, by)
            if approval is None or refused is not None:
                return Ruling(approval, refused)
            return decide(transaction, approval, by, reason)

        ruling = self.write(work, lambda ruled: self._row(walk, ruled))
        if ruling.refused is not None:
            raise ruling.refused
        if ruling.approval is None:
            raise ApprovalError("not_found", f"there is no approval `{approval_id}`")
        return ruling.approval

    def _why_not(
        self, transaction: Transaction, approval: Approval | None, by: str
    ) -> ApprovalError | None:
        if approval is None or approval.request.server != self.catalogue.server:
            return ApprovalError("not_found", "there is no such approval")
        if approval.request.caller.casefold() == by.casefold():
            return ApprovalError("own_request", f"`{by}` asked for this: someone else decides it")
        if approval.state != "pending":
            return ApprovalError("decided", f"it is `{approval.state}` already")
        if approval.request.expires_at <= self.clock.now():
            late = "nobody decided in time"
            self.approvals.decide(transaction, approval.id, "expired", by="", reason=late)
            return ApprovalError("expired", "it expired before anybody decided; ask again")
        return None

    def _approve(
        self, transaction: Transaction, approval: Approval, by: str, reason: str
    ) -> Ruling:
        entry = self.catalogue.tools.get(approval.request.tool)
        walk = Walk(
            Call("", self.clock.now(), "cli", "", "limen", "tools/call"),
            caller=self.caller_of(approval.request) or NOBODY,
            entry=entry,
            arguments=approval.request.arguments,
        )
        changed = self._what_changed(transaction, walk, approval)
        answer = Answer() if changed else self.backend.act(walk, transaction, approval.id)
        if answer.code is not None and answer.result is not None:
            changed = str(answer.result["message"])
        if changed:
            self.approvals.decide(transaction, approval.id, "conflict", by=by, reason=changed)
            return Ruling(approval, ApprovalError("conflict", f"it cannot be done now: {changed}"))
        self.approvals.decide(
            transaction, approval.id, "approved", by=by, reason=reason, outcome=answer.result
        )
        return Ruling(replace(approval, state="approved", decided_by=by, outcome=answer.result))

    def _reject(self, transaction: Transaction, approval: Approval, by: str, reason: str) -> Ruling:
        self.approvals.decide(transaction, approval.id, "rejected", by=by, reason=reason)
        ruled = replace(approval, state="rejected", decided_by=by, decision_reason=reason)
        return Ruling(ruled)

    def _what_changed(self, transaction: Transaction, walk: Walk, approval: Approval) -> str:
        request = approval.request
        if walk.entry is None or walk.entry.digest != request.tool_digest:
            return "the tool's definition has changed"
        if not walk.entry.visible_to(walk.caller):
            return "whoever asked may not ask for it any more"
        resource = self.resource_of(transaction, walk)
        if isinstance(resource, Answer) or resource.digest != request.resource_digest:
            return "what it is about has changed"
        if resource.setup != request.setup:
            return "where it leads has changed"
        said = self.policy.decide(walk.caller, walk.entry.action, resource)
        if said.version != request.policy_version:
            return "the rules have changed"
        return "" if said.allowed else "the rules do not allow it any more"

    def _row(self, walk: Walk, ruling: Ruling) -> AuditRow:
        approval, refused = ruling.approval, ruling.refused
        if approval is not None:
            walk.entry = self.catalogue.tools.get(approval.request.tool)
        if refused is not None:
            outcome = Outcome("deny", STEP, refused.code, Answer(), str(refused))
        else:
            state = approval.state if approval is not None else ""
            outcome = Outcome("allow", STEP, state, Answer())
        return self.audit.row(walk, outcome)
