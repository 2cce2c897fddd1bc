"""`limen approvals`: what waits for a person, and a person's word on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from limen.cli.session import Config, Data, Json, Person, open_desk, open_house, person
from limen.cli.show import clean, print_fields, print_json, print_table
from limen.errors import ApprovalError

if TYPE_CHECKING:
    from limen.app import House
    from limen.words import Approval

app = typer.Typer(help="See what waits for a person, and decide it.", no_args_is_help=True)

STATES = (
    "pending",
    "approved",
    "rejected",
    "expired",
    "conflict",
    "delivered",
    "failed",
    "unconfirmed",
)
Id = Annotated[str, typer.Argument(help="Id of an approval, such as `ap-0123456789ab`.")]


@app.command("list")
def list_approvals(
    state: Annotated[str | None, typer.Option(help="Only those in one state.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many, newest first.")] = 50,
    data: Data = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """List approvals, newest first."""
    if state is not None and state not in STATES:
        raise typer.BadParameter(f"`--state` is one of {', '.join(STATES)}")
    with open_house(data, config, must_exist=True) as house:
        found = house.list_approvals(limit, state)
    if as_json:
        print_json([_described(approval) for approval in found])
        return
    print_table(
        ("id", "state", "caller", "tool", "resource", "asked at", "expires at"),
        [
            (
                approval.id,
                approval.state,
                approval.request.caller,
                approval.request.tool,
                approval.request.resource,
                approval.request.asked_at.isoformat(timespec="seconds"),
                approval.request.expires_at.isoformat(timespec="seconds"),
            )
            for approval in found
        ],
    )


@app.command()
def show(approval_id: Id, data: Data = None, config: Config = None, as_json: Json = False) -> None:
    """Show exactly what a yes would do."""
    with open_house(data, config, must_exist=True) as house:
        approval = _find(house, approval_id)
        text, note = _what_would_leave(house, approval)
    described = {**_described(approval), "content": text, "note": note}
    if as_json:
        print_json(described)
        return
    described.pop("content")
    print_fields(described)
    if text is not None:
        typer.echo("\n" + clean(text, keep="\n\t"))


@app.command()
def approve(
    approval_id: Id,
    reason: Annotated[str, typer.Option(help="Why, for the record.")] = "",
    name: Person = None,
    data: Data = None,
    config: Config = None,
) -> None:
    """Say yes to a call that somebody else asked for, and carry it out."""
    with open_desk(data, config, must_exist=True) as desk:
        desk.review.approve(approval_id, by=person(name), reason=reason)
        typer.echo(f"approved: {approval_id}")
        # Whatever else waits in the outbox is sent with it.
        desk.drain()
        approval = _find(desk.house, approval_id)
        why = desk.why_not_sent(approval_id)
    typer.echo(f"{approval.state}: {approval_id}")
    if approval.state not in ("approved", "delivered"):
        typer.echo(f"because: {clean(why)}")
        raise typer.Exit(1)


@app.command()
def reject(
    approval_id: Id,
    reason: Annotated[str, typer.Option(help="Why: the caller is told.")],
    name: Person = None,
    data: Data = None,
    config: Config = None,
) -> None:
    """Say no to a call."""
    with open_desk(data, config, must_exist=True) as desk:
        desk.review.reject(approval_id, by=person(name), reason=reason)
    typer.echo(f"rejected: {approval_id}")


def _find(house: House, approval_id: str) -> Approval:
    approval = house.find_approval(approval_id)
    if approval is None:
        raise ApprovalError("not_found", f"there is no approval `{clean(approval_id)}`")
    return approval


def _what_would_leave(house: House, approval: Approval) -> tuple[str | None, str]:
    """Return the text that was asked for, or why it can no longer be shown."""
    path = approval.request.arguments.get("path")
    document = house.tables().read_document(path) if isinstance(path, str) else None
    if document is None or document.digest != approval.request.resource_digest:
        return None, "the document is no longer the one that was asked for"
    return document.content, ""


def _described(approval: Approval) -> dict[str, Any]:
    request = approval.request
    return {
        "id": approval.id,
        "state": approval.state,
        "caller": request.caller,
        "tool": request.tool,
        "arguments": dict(request.arguments),
        "resource": request.resource,
        "resource_digest": request.resource_digest,
        "setup": request.setup,
        "tool_digest": request.tool_digest,
        "policy_version": request.policy_version,
        "asked_at": request.asked_at.isoformat(),
        "expires_at": request.expires_at.isoformat(),
        "decided_by": approval.decided_by,
        "decided_at": approval.decided_at.isoformat() if approval.decided_at else None,
        "reason": approval.decision_reason,
        "outcome": approval.outcome,
    }
