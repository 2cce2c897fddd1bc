"""The server that is probed: what the manifest says of it, and how it is asked.

Nothing here knows how our own server works; it speaks HTTP and MCP as any client does.
"""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from limen.errors import LimenError

MODERN = "2026-07-28"
LEGACY = "2025-06-18"

META: Mapping[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "limen-prove", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}

WAIT_S = 20.0
"""Seconds for one answer."""

LONGEST_PAUSE_S = 5.0
"""Seconds that one over-budget answer is waited out at most."""

OVER_BUDGET = "over_budget"

Headers = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Budget:
    """What the manifest says that callers may spend, and whether its clock stands still."""

    capacity: float
    reserve_fraction: float
    callers: tuple[str, ...]
    is_frozen: bool

    def reserve(self) -> float:
        """Return what each named caller has for itself."""
        return self.capacity * self.reserve_fraction / len(self.callers)


@dataclass(frozen=True)
class Manifest:
    """What is known of one server.

    `good` are the tokens that open it, by caller; `bad` are those that must not, by what is wrong
    with them. `example` is a call that is answered. The first of `good` asks; the last may see
    more than the first. `hidden` are tools that do not exist for a caller, by caller.
    """

    url: str
    good: Mapping[str, str]
    bad: Mapping[str, str]
    no_scope: str | None = None
    example: tuple[str, Mapping[str, Any]] | None = None
    budget: Budget | None = None
    hidden: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def declared(self) -> Iterator[tuple[str, str]]:
        """Yield tokens with tools that the manifest says do not exist for them."""
        for caller, names in self.hidden.items():
            yield from ((self.good[caller], name) for name in names)


@dataclass(frozen=True)
class Reply:
    """One answer: status, headers by lower-case name, body, and seconds until it was there."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    took_s: float

    def message(self) -> dict[str, Any]:
        """Return the JSON-RPC response, or {} when there is none."""
        text = self.body.decode("utf-8", "replace")
        if self.headers.get("content-type", "").startswith("text/event-stream"):
            data = [line[5:] for line in text.splitlines() if line.startswith("data:")]
            text = data[-1] if data else ""
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def is_yes(self) -> bool:
        """Tell whether a tool's answer is an ordinary yes."""
        result = self.message().get("result")
        if self.status != 200 or not isinstance(result, dict) or result.get("isError"):
            return False
        said = result.get("structuredContent")
        return not (isinstance(said, dict) and said.get("ok") is False)

    def is_over_budget(self) -> bool:
        """Tell whether the caller's budget is spent."""
        if self.status == 429:
            return True
        return OVER_BUDGET in (self._said().get("error"), self._said().get("code"))

    def retry_after_s(self) -> float:
        """Return when to come back, as it says; 1 without a word."""
        try:
            return float(self._said().get("retry_after_s") or self.headers.get("retry-after") or 1)
        except ValueError:
            return 1.0

    def in_short(self) -> str:
        """Return the answer in a few words."""
        text = self.body[:160].decode("utf-8", "replace")
        return f"status {self.status}: {''.join(c if c.isprintable() else ' ' for c in text)}"

    def _said(self) -> dict[str, Any]:
        message = self.message()
        result, error = message.get("result"), message.get("error")
        for holder, key in ((result, "structuredContent"), (error, "data")):
            found = holder.get(key) if isinstance(holder, dict) else None
            if isinstance(found, dict):
                return found
        return {}


@dataclass
class Target:
    """Ask the server. `patience_s` is how long over-budget answers are waited out in all.

    `asked` counts the ordinary requests by token.
    """

    manifest: Manifest
    client: httpx.Client
    patience_s: float = 60.0
    revision: str = MODERN
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    asked: Counter[str | None] = field(default_factory=Counter)
    _seen: dict[str | None, list[str]] = field(default_factory=dict)

    @property
    def asker(self) -> str:
        """Return the token that asks."""
        return next(iter(self.manifest.good.values()))

    @property
    def witness(self) -> str:
        """Return the token that may see more."""
        return list(self.manifest.good.values())[-1]

    def settle(self) -> None:
        """Find out which era it speaks.

        Raises:
            LimenError: it cannot be reached.
        """
        reply = self.ask(self.asker, "tools/list", {})
        if "result" not in reply.message() and not reply.is_over_budget():
            self.revision = LEGACY

    def send(
        self,
        body: bytes | Iterator[bytes],
        headers: Headers,
        method: str = "POST",
        url: str | None = None,
    ) -> Reply:
        """Send a request as it is, and return what comes.

        Raises:
            LimenError: nothing comes.
        """
        url = url or self.manifest.url
        begun = time.perf_counter()
        try:
            with self.client.stream(method, url, content=body, headers=list(headers)) as answer:
                content = b""
                for chunk in answer.iter_bytes():
                    content += chunk
                    if len(content) > 8 * 1024 * 1024:
                        break
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            said = str(error) or type(error).__name__
            raise LimenError(f"cannot reach `{url}`: {said}") from error
        took_s = time.perf_counter() - begun
        found = {name.lower(): value for name, value in answer.headers.items()}
        return Reply(answer.status_code, found, content, took_s)

    def headers_of(self, token: str | None, method: str, name: str | None = None) -> Headers:
        """Return the headers that an ordinary client of the era sends."""
        headers = [
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
            ("MCP-Protocol-Version", self.revision),
        ]
        if self.revision == MODERN:
            headers.append(("Mcp-Method", method))
            if name is not None:
                headers.append(("Mcp-Name", name))
        if token is not None:
            headers.append(("Authorization", f"Bearer {token}"))
        return headers

    def request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the JSON-RPC request that an ordinary client of the era sends."""
        params = dict(params)
        if self.revision == MODERN:
            params["_meta"] = dict(META)
        return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}

    def ask(self, token: str | None, method: str, params: Mapping[str, Any]) -> Reply:
        """Ask as an ordinary client does, and wait out a budget that is spent."""
        headers = self.headers_of(token, method, params.get("name"))
        body = json.dumps(self.request(method, params)).encode()
        while True:
            self.asked[token] += 1
            reply = self.send(body, headers)
            pause_s = min(reply.retry_after_s(), LONGEST_PAUSE_S)
            if not reply.is_over_budget() or pause_s > self.patience_s or self._is_frozen():
                return reply
            self.patience_s -= pause_s
            time.sleep(pause_s)

    def call(self, token: str | None, tool: str, arguments: Mapping[str, Any]) -> Reply:
        """Call a tool as an ordinary client does."""
        return self.ask(token, "tools/call", {"name": tool, "arguments": dict(arguments)})

    def call_once(self, token: str | None, tool: str) -> Reply:
        """Call a tool without arguments, whatever the budget says."""
        headers = self.headers_of(token, "tools/call", tool)
        body = self.request("tools/call", {"name": tool, "arguments": {}})
        return self.send(json.dumps(body).encode(), headers)

    def names(self, token: str | None) -> list[str]:
        """Return the names of the tools that a caller sees, of the first page. Asked once."""
        if token in self._seen:
            return self._seen[token]
        result = self.ask(token, "tools/list", {}).message().get("result")
        tools = result.get("tools", []) if isinstance(result, dict) else []
        names = [str(tool.get("name")) for tool in tools if isinstance(tool, dict)]
        self._seen[token] = names
        return names

    def made_up(self, like: str) -> str:
        """Return a name that no tool has, as long as another one."""
        name = f"zq{next(self._numbers):x}" + "x" * len(like)
        return name[: max(len(like), 4)]

    def _is_frozen(self) -> bool:
        return self.manifest.budget is not None and self.manifest.budget.is_frozen


def read_manifest(file: Path, url: str) -> Manifest:
    """Return what a manifest file says of the server at a URL.

    Raises:
        LimenError: it cannot be read, or does not say enough.
    """
    try:
        written = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or "it is not JSON"
        raise LimenError(f"cannot read manifest `{file}`: {reason}") from error
    try:
        return _manifest(written, url)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise LimenError(
            f"manifest `{file}` does not say what is needed: {type(error).__name__}: {error}"
        ) from error


BAD = (
    "other_resource",
    "two_resources",
    "list_of_one",
    "no_audience",
    "expired",
    "wrong_issuer",
    "unsigned",
)
"""What can be wrong with a token, as a manifest names it."""


def _manifest(written: Mapping[str, Any], url: str) -> Manifest:
    servers = written["servers"]
    found = [name for name, one in servers.items() if one["url"].rstrip("/") == url.rstrip("/")]
    if not found:
        raise ValueError(f"no server has the URL {url}: there are {', '.join(servers)}")
    [server] = found
    tokens = written["tokens"][server]
    budget = written.get("budget")
    named = tuple(budget["callers"]) if budget else ()
    good = {caller: tokens[caller] for caller in named if caller in tokens}
    good |= {name: token for name, token in tokens.items() if name not in (*BAD, "no_scope", *good)}
    if not good:
        raise ValueError("no token of a caller")
    example = servers[server].get("example")
    return Manifest(
        url=url,
        good=good,
        bad={name: tokens[name] for name in BAD if name in tokens}
        | {
            f"for {other}": _first(written["tokens"][other]) for other in servers if other != server
        },
        no_scope=tokens.get("no_scope"),
        hidden={
            caller: tuple(names)
            for caller, names in servers[server].get("hidden", {}).items()
            if caller in good
        },
        example=(example["tool"], example["arguments"]) if example else None,
        budget=None
        if not budget
        else Budget(
            float(budget["capacity"]),
            float(budget["reserve_fraction"]),
            named,
            budget.get("clock") == "frozen",
        ),
    )


def _first(tokens: Mapping[str, str]) -> str:
    return next(iter(tokens.values()))
