"""`limen up`: all servers at one address, with callers to try them as."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from limen.cli.session import Config, Data, open_house, tell
from limen.cli.web import Host, Port, keep_sending, public_url_at, use_log

if TYPE_CHECKING:
    from limen.app.demo import Demo

CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {
        "name": "rates_window",
        "arguments": {"currency": "USD", "start": "2026-03-30", "end": "2026-04-10"},
    },
}
"""The Easter of 2026: twelve days, eight rates, and a certificate of the other four."""


def up(
    host: Host = "127.0.0.1",
    port: Port = 8931,
    tokens_file: Annotated[
        Path | None,
        typer.Option(help="Write URLs and tokens there, for programs. Not in a git work tree."),
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Ask nobody: rates come from the shipped history.")
    ] = False,
    frozen_clock: Annotated[
        bool, typer.Option("--frozen-clock", help="Budgets never refill, so that arithmetic holds.")
    ] = False,
    data: Data = None,
    config: Config = None,
) -> None:
    """Serve all servers at one address, with callers to try them as, until Ctrl-C."""
    from limen.app.demo import open_demo, refuse_in_work_tree, write_manifest
    from limen.transport.web import bind, serve

    use_log()
    if tokens_file is not None:
        refuse_in_work_tree(tokens_file)
    with open_house(data, config) as house, bind(host, port) as bound:
        url = public_url_at(host, bound.getsockname()[1], house.settings)
        demo = open_demo(house, url, offline=offline, frozen_clock=frozen_clock)
        if tokens_file is not None:
            write_manifest(demo.manifest, tokens_file)
        typer.echo(_welcome(demo, url, tokens_file))
        with keep_sending(demo.opened.desk):
            serve(demo.opened.site, bound)
    tell("ended")


def _welcome(demo: Demo, url: str, tokens_file: Path | None) -> str:
    titles = demo.opened.titles
    width = max(len(path) for path in titles)
    servers = "\n".join(f"  {url}{path:<{width}}  {title}" for path, title in titles.items())
    alpha = demo.token("ecb", "agent-alpha")
    configured = {
        "mcpServers": {
            server: {
                "type": "http",
                "url": demo.web.resource(server),
                "headers": {"Authorization": f"Bearer {demo.token(server, 'agent-alpha')}"},
            }
            for server in demo.web.servers
        }
    }
    where = f"\nAll tokens are in {tokens_file}." if tokens_file is not None else ""
    curl = (
        f"curl -s {demo.web.resource('ecb')} -H 'Authorization: Bearer {alpha}'"
        " -H 'Content-Type: application/json'"
        " -H 'Accept: application/json, text/event-stream'"
        f" -H 'MCP-Protocol-Version: 2025-06-18' -d '{json.dumps(CALL)}'"
    )
    return f"""Limen serves:
{servers}

Add it to an MCP client, as the caller agent-alpha (a token is good for an hour):
{json.dumps(configured, indent=2)}

Or try one call, with rates and the certificate of what they cover:
{curl}

Without the token the same line is refused. With one for another server it is too.
What happened is in the trail: limen audit list --data {demo.web.house.data}
The console will be at {url}/console; it is not in this version.{where}
End with Ctrl-C."""
