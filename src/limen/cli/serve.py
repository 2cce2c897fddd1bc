"""`limen serve`: MCP over stdin and stdout."""

from __future__ import annotations

import logging
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from limen.cli.session import Config, Data, open_desk, person, tell
from limen.errors import LimenError, SettingsError

if TYPE_CHECKING:
    from limen.app import Desk

app = typer.Typer(help="Serve MCP over stdin and stdout.", no_args_is_help=True)

DRAIN_EVERY_S = 30.0
"""Seconds between two looks into the outbox. An approval sends at once; this is for what a
process that was killed has left."""

HELP = """limen serve desk speaks MCP on stdin and stdout: a chat client starts it.
Add it to a client with:  {{"mcpServers": {{"desk": {{"command": "limen",
  "args": ["serve", "desk", "--data", "{data}"]}}}}}}
Try it by hand, in another terminal:
  limen call desk docs_read path=public/handbook.txt --data {data}
End it with Ctrl-D."""


@app.callback()
def serve() -> None:
    """Serve MCP over stdin and stdout."""


@app.command()
def desk(
    folder: Annotated[
        Path | None,
        typer.Option("--import", help="Import the text files of a folder into `public/` first."),
    ] = None,
    data: Data = None,
    config: Config = None,
) -> None:
    """Serve documents and tickets behind the owner's rules."""
    if sys.stdin is None or sys.stdout is None:
        # Fails closed: the next file opened, such as the store, would get the wire's number.
        raise LimenError("cannot serve: stdin or stdout is closed")
    logging.basicConfig(
        level=_log_level(os.environ.get("LIMEN_LOG") or "WARNING"),
        format="limen: %(levelname)s %(message)s",
        stream=sys.stderr,
    )
    with open_desk(data, config) as opened:
        if folder is not None:
            from limen.cli.desk import import_folder

            tell(import_folder(opened.house, folder, "public", person(None)).summary())
        if sys.stdin.isatty():
            print(HELP.format(data=opened.house.data), file=sys.stderr)
        _serve(opened)


def _log_level(named: str) -> int:
    levels = logging.getLevelNamesMapping()
    if named.upper() not in levels:
        raise SettingsError(
            f"variable `LIMEN_LOG` is `{named}`: write one of"
            " `DEBUG`, `INFO`, `WARNING`, `ERROR`, `CRITICAL`"
        )
    return levels[named.upper()]


def _serve(desk: Desk) -> None:
    import asyncio

    from limen.app import new_call_id
    from limen.transport.envelope import Envelope
    from limen.transport.stdio import StdioServer, take_over_stdio
    from limen.version import __version__

    catalogue = desk.catalogue
    envelope = Envelope(
        catalogue.server,
        catalogue.title,
        __version__,
        "stdio",
        desk.house.clock,
        new_call_id,
    )
    server = StdioServer(desk.gate, envelope, max_message=desk.house.settings.limits.max_message)
    ended = threading.Event()
    sender = threading.Thread(target=_keep_sending, args=(desk, ended), daemon=True)
    sender.start()
    in_fd, out_fd = take_over_stdio()
    asyncio.run(server.serve(in_fd, out_fd))
    ended.set()


def _keep_sending(desk: Desk, ended: threading.Event) -> None:
    """Send what was approved and not sent, now and then, for as long as we serve."""
    while True:
        try:
            if desk.has_something_to_send():
                desk.drain()
        except (LimenError, OSError) as error:
            if ended.is_set():
                return
            logging.getLogger(__name__).error("cannot send: %s", error)
        if ended.wait(DRAIN_EVERY_S):
            return
