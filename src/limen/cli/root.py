"""All commands under one name."""

from __future__ import annotations

from typing import Annotated

import typer

from limen.cli import approvals, audit, call, desk, doctor, policy, prove, serve, token, up
from limen.version import __version__

app = typer.Typer(
    name="limen",
    help="Serve MCP tools to callers you did not write.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("up")(up.up)
app.add_typer(serve.app, name="serve")
app.command("call")(call.call)
app.command("prove")(prove.prove)
app.add_typer(token.app, name="token")
app.add_typer(audit.app, name="audit")
app.add_typer(approvals.app, name="approvals")
app.add_typer(policy.app, name="policy")
app.add_typer(desk.app, name="desk")
app.command("doctor")(doctor.doctor)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"limen {__version__}")
        raise typer.Exit


@app.callback()
def limen(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Serve MCP tools to callers you did not write."""
