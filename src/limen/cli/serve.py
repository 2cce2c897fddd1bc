"""`limen serve`: one server, over stdin and stdout or over HTTP."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from limen.cli.session import Config, Data, open_house, person, tell
from limen.cli.web import Host, Port, keep_sending, public_url_at, use_log
from limen.errors import LimenError

if TYPE_CHECKING:
    from limen.app import Desk, House
    from limen.app.ecb import Rates

app = typer.Typer(help="Serve one server.", no_args_is_help=True)

Http = Annotated[bool, typer.Option("--http", help="Serve over HTTP, to callers with tokens.")]
Import = Annotated[
    Path | None,
    typer.Option("--import", help="Import the text files of a folder into `public/` first."),
]

HELP = """limen serve {server} speaks MCP on stdin and stdout: a chat client starts it.
Add it to a client with:  {{"mcpServers": {{"{server}": {{"command": "limen",
  "args": ["serve", "{server}", "--data", "{data}"]}}}}}}
Try it by hand, in another terminal:
  limen call {server} {example} --data {data}
End it with Ctrl-D."""

EXAMPLES = {
    "desk": "docs_read path=public/handbook.txt",
    "ecb": "rates_window currency=USD start=2026-03-30 end=2026-04-10",
}


@app.callback()
def serve() -> None:
    """Serve one server."""


@app.command()
def desk(
    folder: Import = None,
    http: Http = False,
    host: Host = "127.0.0.1",
    port: Port = 8931,
    data: Data = None,
    config: Config = None,
) -> None:
    """Serve documents and tickets behind the owner's rules."""
    _refuse_closed(http)
    use_log()
    with open_house(data, config) as house:
        if folder is not None:
            from limen.cli.desk import import_folder

            tell(import_folder(house, folder, "public", person(None)).summary())
        if http:
            _serve_http(house, "desk", host, port)
            return
        from limen.app import build_desk

        opened = build_desk(house)
        with keep_sending(opened):
            _serve(opened)


@app.command()
def ecb(
    http: Http = False,
    host: Host = "127.0.0.1",
    port: Port = 8931,
    data: Data = None,
    config: Config = None,
) -> None:
    """Serve the euro reference rates, each window with its certificate of coverage."""
    _refuse_closed(http)
    use_log()
    with open_house(data, config) as house:
        if http:
            _serve_http(house, "ecb", host, port)
            return
        from limen.app.ecb import build_ecb

        _serve(build_ecb(house))


def _refuse_closed(http: bool) -> None:
    if not http and (sys.stdin is None or sys.stdout is None):
        # Fails closed: the next file opened, such as the store, would get the wire's number.
        raise LimenError("cannot serve: stdin or stdout is closed")


def _serve_http(house: House, server: str, host: str, port: int) -> None:
    from limen.app.web import Web, open_web
    from limen.transport.web import bind, serve

    with bind(host, port) as bound:
        web = Web(house, public_url_at(host, bound.getsockname()[1], house.settings), (server,))
        opened = open_web(web)
        tell(f"serves {web.resource(server)}")
        tell(f"make a token with: limen token issue {server} --caller NAME --data {house.data}")
        with keep_sending(opened.desk):
            serve(opened.site, bound)


def _serve(opened: Desk | Rates) -> None:
    import asyncio

    from limen.app import new_call_id
    from limen.transport.envelope import Envelope
    from limen.transport.stdio import StdioServer, take_over_stdio
    from limen.version import __version__

    catalogue, house = opened.catalogue, opened.house
    if sys.stdin.isatty():
        example = EXAMPLES[catalogue.server]
        said = HELP.format(server=catalogue.server, data=house.data, example=example)
        print(said, file=sys.stderr)
    envelope = Envelope(
        catalogue.server, catalogue.title, __version__, "stdio", house.clock, new_call_id
    )
    server = StdioServer(opened.gate, envelope, max_message=house.settings.limits.max_message)
    in_fd, out_fd = take_over_stdio()

    async def served() -> None:
        try:
            await server.serve(in_fd, out_fd)
        finally:
            await opened.close()

    asyncio.run(served())
