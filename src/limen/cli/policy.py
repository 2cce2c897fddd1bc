"""`limen policy`: check the owner's rules, and ask them why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from limen.cli.call import key_values, known_server
from limen.cli.session import Config, Data, Json, open_desk, read_settings, tell
from limen.cli.show import clean, print_fields, print_json
from limen.errors import LimenError

if TYPE_CHECKING:
    from limen.app import Desk
    from limen.decisions.d5_policy import WrittenPolicy
    from limen.words import Caller

app = typer.Typer(help="Check the owner's rules, and ask them why.", no_args_is_help=True)


@app.command()
def check(
    folder: Annotated[
        Path | None, typer.Argument(help="Folder of `*.cedar` files. Default: the one in force.")
    ] = None,
    server: Annotated[str, typer.Option(help="Whose rules: `desk` or `ecb`.")] = "desk",
    data: Data = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Load the rules as the server would, and say whether it could serve with them."""
    from limen.app import SystemClock, policy_folder, schema_of
    from limen.decisions.d5_policy import CedarPolicies

    known_server(server)
    if folder is None:
        where, settings, base = read_settings(data, config)
        named = settings.policies_of(server)
        folder = policy_folder(where, base, server, named, make=False)
    policies = CedarPolicies.load(folder, schema_of(server), clock=SystemClock(), on_change=tell)
    status = policies.status()
    said = {"folder": str(folder), "policies": status.count, "version": status.version}
    if as_json:
        print_json(said)
    else:
        print_fields(said)


@app.command()
def explain(
    tool: Annotated[str | None, typer.Argument(help="Which tool the question is about.")] = None,
    arguments: Annotated[
        list[str] | None, typer.Argument(help="Its arguments.", metavar="[KEY=VALUE]...")
    ] = None,
    call: Annotated[
        str | None, typer.Option(help="Id of a call in the trail, instead of a question.")
    ] = None,
    caller: Annotated[str | None, typer.Option(help="Who asks. Default: the local caller.")] = None,
    role: Annotated[list[str] | None, typer.Option(help="Their roles.")] = None,
    data: Data = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Say what the rules answer, which of them decided, and which came close."""
    if (call is None) == (tool is None):
        raise typer.BadParameter("say a tool and its arguments, or `--call ID`")
    asked = key_values(arguments or [])
    with open_desk(data, config, must_exist=True) as desk:
        if call is not None:
            said = _of_call(desk, call)
        elif tool is not None:
            said = _of_question(desk, tool, asked, _who(desk, caller, role))
    if as_json:
        print_json(said)
        return
    print_fields({key: value for key, value in said.items() if key not in ("decided", "near")})
    for title, key in (("decided by", "decided"), ("came close", "near")):
        for policy in said[key]:
            typer.echo(f"\n{title}: {clean(policy['id'])} ({policy['place']})")
            typer.echo(clean(policy["text"], keep="\n\t"))


def _who(desk: Desk, caller: str | None, roles: list[str] | None) -> Caller:
    from limen.words import Caller

    local = desk.local_caller()
    named = local.roles if caller is None and roles is None else frozenset(roles or ())
    return Caller(caller or local.id, named, desk.catalogue.scopes())


def _of_question(desk: Desk, tool: str, arguments: Any, who: Caller) -> dict[str, Any]:
    resource = desk.resource_of(tool, arguments, who)
    why = desk.policies.explain(who, tool, resource)
    return {
        "caller": who.id,
        "roles": sorted(who.roles),
        "tool": tool,
        "resource": f"{resource.entity.type}::{resource.entity.id}",
        "answer": "allowed" if why.allowed else "denied",
        "version": why.version,
        "decided": [_described(policy) for policy in why.policies],
        "near": [_described(policy) for policy in why.near_misses],
        "errors": list(why.errors),
    }


def _of_call(desk: Desk, row_id: str) -> dict[str, Any]:
    entries = desk.house.audit_reader.of_call(row_id)
    if not entries:
        raise LimenError(f"no entry has id `{clean(row_id)}`")
    entry = entries[-1]
    # The row holds digests of the arguments, so the question itself cannot be asked again.
    written = {policy.id: policy for policy in desk.policies.written()}
    return {
        "caller": entry["caller"],
        "tool": entry["tool"],
        "answer": entry["decision"],
        "step": entry["step"],
        "reason": entry["reason"],
        "private": entry["private"],
        "decided": [
            _described(written[name])
            if name in written
            else {"id": name, "place": "no longer in the folder", "text": ""}
            for name in entry["policies"]
        ],
        "near": [],
    }


def _described(policy: WrittenPolicy) -> dict[str, str]:
    return {
        "id": policy.id,
        "effect": policy.effect,
        "place": policy.place,
        "text": policy.text,
    }
