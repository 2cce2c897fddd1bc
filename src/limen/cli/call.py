"""`limen call`: a small client that starts a server over stdio and prints one answer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from limen.cli.session import Config, Data, Json
from limen.cli.show import clean, print_json, print_table
from limen.errors import LimenError

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "limen-call", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}

WAIT_S = 60
"""Seconds for the server to start and answer."""


def call(
    server: Annotated[str, typer.Argument(help="Which server: `desk`.")],
    tool: Annotated[
        str | None, typer.Argument(help="Which tool. Without one, tools are listed.")
    ] = None,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(help="`key=text`, `key:=JSON` or `key=@FILE`.", metavar="[KEY=VALUE]..."),
    ] = None,
    list_tools: Annotated[bool, typer.Option("--list", help="List the tools instead.")] = False,
    data: Data = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Call one tool of a server, as the local caller, and print the answer.

    Exits with 0 when the answer is yes and with 1 when it is any kind of no.
    """
    if server != "desk":
        raise typer.BadParameter(f"there is no server `{clean(server)}`: write `desk`")
    if list_tools and tool is not None:
        raise typer.BadParameter("say a tool or `--list`, not both")
    words: list[str] = []
    for option, value in (("--data", data), ("--config", config)):
        words += [] if value is None else [option, str(value)]
    if tool is None:
        response = _answer(server, words, "tools/list", {})
    else:
        params = {"name": tool, "arguments": key_values(arguments or [])}
        response = _answer(server, words, "tools/call", params)
    if as_json:
        print_json(response)
    elif tool is None and "result" in response:
        listed = response["result"]["tools"]
        print_table(("tool", "arguments", "title"), [_described(one) for one in listed])
    else:
        _print_answer(response)
    if not _is_yes(response):
        raise typer.Exit(1)


def key_values(words: list[str]) -> dict[str, Any]:
    """Return the arguments that `key=text`, `key:=JSON` and `key=@FILE` spell."""
    made: dict[str, Any] = {}
    for word in words:
        key, sign, value = word.partition("=")
        if not sign or not key.rstrip(":"):
            raise typer.BadParameter(f"`{clean(word)}` is no argument: write `key=value`")
        if key in made or key.rstrip(":") in made:
            raise typer.BadParameter(f"argument `{clean(key)}` is given twice")
        if key.endswith(":"):
            made[key[:-1]] = _parsed(key[:-1], value)
        elif value.startswith("@"):
            made[key] = _read(Path(value[1:]))
        else:
            made[key] = value
    return made


def _parsed(key: str, value: str) -> Any:
    try:
        return json.loads(value)
    except RecursionError as error:
        raise typer.BadParameter(f"argument `{clean(key)}` is nested too deep") from error
    except ValueError as error:
        raise typer.BadParameter(f"argument `{clean(key)}` is not JSON: {error}") from error


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise typer.BadParameter(f"cannot read `{file}`: {reason}") from error


def _answer(server: str, words: list[str], method: str, params: dict[str, Any]) -> Any:
    """Start the server, ask once, and let it end as its input ends."""
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}
    try:
        done = subprocess.run(  # noqa: S603 - our own interpreter and package, and no shell
            [sys.executable, "-m", "limen", "serve", server, *words],
            input=json.dumps(request).encode() + b"\n",
            stdout=subprocess.PIPE,
            timeout=WAIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise LimenError(f"server `{server}` gave no answer within {WAIT_S} s") from error
    if not done.stdout.strip():
        # It has said why on stderr, which is ours too.
        raise typer.Exit(done.returncode or 1)
    return json.loads(done.stdout)


def _described(tool: dict[str, Any]) -> tuple[str, str, str]:
    return tool["name"], " ".join(tool["inputSchema"]["properties"]), tool["title"]


def _is_yes(response: dict[str, Any]) -> bool:
    result = response.get("result", {})
    return "error" not in response and result.get("structuredContent", {}).get("ok") is not False


def _print_answer(response: dict[str, Any]) -> None:
    if "error" in response:
        error = response["error"]
        typer.echo(f"refused: {clean(error['message'])} ({error['code']})")
        return
    said = dict(response["result"]["structuredContent"])
    if said.pop("ok") is False:
        typer.echo(f"{clean(said.pop('error'))}: {clean(said.pop('message', ''))}")
    text = said.pop("content", None)
    for key, value in said.items():
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        typer.echo(f"{key}: {clean(shown)}")
    if text is not None:
        typer.echo("\n" + clean(text, keep="\n\t"))
