"""`limen call`: a small client, of a server over stdio that it starts or of one over HTTP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from limen.cli.session import Config, Data, Json
from limen.cli.show import clean, print_json, print_table
from limen.errors import LimenError

META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "limen-call", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}

SERVERS = ("desk", "ecb")

WAIT_S = 60
"""Seconds for the server to start and answer."""


def call(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            help="Which server (`desk`, `ecb`), unless `--url` says it; which tool, without one"
            " tools are listed; and its arguments: `key=text`, `key:=JSON` or `key=@FILE`.",
            metavar="[SERVER] [TOOL] [KEY=VALUE]...",
        ),
    ] = None,
    url: Annotated[str | None, typer.Option(help="Call a server over HTTP, at this URL.")] = None,
    token: Annotated[
        str | None, typer.Option(help="The bearer token for it. Default: LIMEN_TOKEN.")
    ] = None,
    list_tools: Annotated[bool, typer.Option("--list", help="List the tools instead.")] = False,
    data: Data = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Call one tool of a server and print the answer.

    Without `--url` the server is started here, and the caller is the local one.

    Exits with 0 when the answer is yes and with 1 when it is any kind of no.
    """
    words = list(words or [])
    server = words.pop(0) if url is None and words else None
    if url is None:
        known_server(server or "")
    if token is not None and url is None:
        raise typer.BadParameter("`--token` goes with `--url`")
    tool = words.pop(0) if words else None
    if list_tools and tool is not None:
        raise typer.BadParameter("say a tool or `--list`, not both")
    method, params = "tools/list", {}
    if tool is not None:
        method, params = "tools/call", {"name": tool, "arguments": key_values(words)}
    params["_meta"] = META
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    if url is not None:
        response = _answer_over_http(url, token or os.environ.get("LIMEN_TOKEN"), request)
    else:
        options: list[str] = []
        for option, value in (("--data", data), ("--config", config)):
            options += [] if value is None else [option, str(value)]
        response = _answer(server or "", options, request)
    if as_json:
        print_json(response)
    elif tool is None and "result" in response:
        listed = response["result"]["tools"]
        print_table(("tool", "arguments", "title"), [_described(one) for one in listed])
    else:
        _print_answer(response)
    if not _is_yes(response):
        raise typer.Exit(1)


def known_server(named: str) -> None:
    """Refuse a server that there is not."""
    if named not in SERVERS:
        known = ", ".join(f"`{one}`" for one in SERVERS)
        raise typer.BadParameter(f"there is no server `{clean(named)}`: write one of {known}")


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


def _answer(server: str, options: list[str], request: dict[str, Any]) -> Any:
    """Start the server, ask once, and let it end as its input ends."""
    try:
        done = subprocess.run(  # noqa: S603 - our own interpreter and package, and no shell
            [sys.executable, "-m", "limen", "serve", server, *options],
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


def _answer_over_http(url: str, token: str | None, request: dict[str, Any]) -> Any:
    """Ask once over HTTP, in the revision of 2026-07-28."""
    import httpx

    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": META["io.modelcontextprotocol/protocolVersion"],
        "Mcp-Method": request["method"],
    }
    if "name" in request["params"]:
        headers["Mcp-Name"] = request["params"]["name"]
    if token:
        headers["Authorization"] = f"Bearer {token}"
    try:
        answer = httpx.post(url, json=request, headers=headers, timeout=WAIT_S)
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeEncodeError) as error:
        said = str(error) or type(error).__name__
        raise LimenError(f"cannot call `{clean(url)}`: {clean(said)}") from error
    text = answer.text
    if answer.headers.get("content-type", "").startswith("text/event-stream"):
        data = [line[5:] for line in text.splitlines() if line.startswith("data:")]
        text = data[-1] if data else ""
    try:
        response = json.loads(text)
    except ValueError:
        response = None
    if not isinstance(response, dict) or not {"result", "error"} & response.keys():
        raise LimenError(
            f"`{clean(url)}` answered with status {answer.status_code} and no MCP response"
        )
    return response


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
    result = response["result"]
    if "structuredContent" not in result:
        for block in result.get("content", ()):
            typer.echo(clean(str(block.get("text", block.get("type"))), keep="\n\t"))
        return
    said = dict(result["structuredContent"])
    if said.pop("ok", None) is False:
        typer.echo(f"{clean(said.pop('error'))}: {clean(said.pop('message', ''))}")
    text = said.pop("content", None)
    for key, value in said.items():
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        typer.echo(f"{key}: {clean(shown)}")
    if text is not None:
        typer.echo("\n" + clean(text, keep="\n\t"))
