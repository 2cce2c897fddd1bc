"""`limen prove`: ask a running server, from outside, whether it keeps what a boundary promises."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from limen.cli.session import Json
from limen.cli.show import clean, print_json

if TYPE_CHECKING:
    from limen.prove.checks import Check, Seen

MARKS = {"held": "held", "broken": "BROKEN", "not asked": "not asked"}


def prove(
    url: Annotated[str, typer.Argument(help="The MCP endpoint, such as `http://…/mcp`.")],
    manifest: Annotated[
        Path,
        typer.Option(help="Its servers and tokens, as `limen up --tokens-file` writes them."),
    ],
    patience: Annotated[
        float, typer.Option(min=0, max=3600, help="Seconds to wait out budgets that are spent.")
    ] = 60.0,
    as_json: Json = False,
) -> None:
    """Probe any MCP server over HTTP, ours or not, and say what held and what did not.

    Exits with 1 when something was broken. It spends the budgets of the callers in the manifest.
    """
    import httpx

    from limen.prove.checks import run_all
    from limen.prove.target import WAIT_S, Target, read_manifest

    known = read_manifest(manifest, url)
    found: list[tuple[Check, Seen]] = []
    with httpx.Client(timeout=WAIT_S, follow_redirects=False, trust_env=False) as client:
        target = Target(known, client, patience)
        for check, seen in run_all(target):
            found.append((check, seen))
            if not as_json:
                typer.echo(_line(check, seen))
    counts = {state: sum(seen.state == state for _, seen in found) for state in MARKS}
    if as_json:
        print_json(
            {
                "url": url,
                "revision": target.revision,
                "counts": counts,
                "checks": [
                    {
                        "name": check.name,
                        "state": seen.state,
                        "did": check.did,
                        "expected": check.expected,
                        "came": seen.came,
                        "why": check.why,
                    }
                    for check, seen in found
                ],
            }
        )
    else:
        said = ", ".join(f"{number} {state}" for state, number in counts.items())
        typer.echo(f"{len(found)} checks in {target.revision}: {said}")
    if counts["broken"]:
        raise typer.Exit(1)


def _line(check: Check, seen: Seen) -> str:
    line = f"{MARKS[seen.state]:<10}{check.name:<17}{clean(seen.came)}"
    if seen.state != "broken":
        return line
    return (
        f"{line}\n{'':<10}did: {check.did}\n{'':<10}expected: {check.expected}"
        f"\n{'':<10}why: {check.why}"
    )
