"""A small MCP server that keeps what a boundary promises, except where it is told not to.

It is for the prober's own tests: written from the specification, with nothing of ours in it.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Collection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

MODERN = "2026-07-28"
LIMIT = 1024 * 1024
RIGHTS = {"low": {"add"}, "other": {"add"}, "high": {"add", "secret_tool"}, "nothing": set[str]()}
CAPACITY, RESERVE = 60, 15

FAULTS = {
    "ignores the audience": "audience",
    "fails on a bad token": "audience",
    "tells why a token is bad": "audience",
    "sends no challenge": "no-token",
    "names another resource": "metadata",
    "takes tokens in the address": "query-token",
    "opens sessions for strangers": "garbage-token",
    "lists everything": "list",
    "lists for everyone": "scope",
    "repeats the name": "refusal-bytes",
    "tells hidden from missing": "refusal-bytes",
    "looks longer at what exists": "refusal-time",
    "drops unknown arguments": "extra-arguments",
    "takes the last of two keys": "duplicate-keys",
    "ignores the headers": "header-mismatch",
    "reads any body": "body-limit",
    "answers under any name": "hosts",
    "shows its insides": "leaks",
    "lets lists be shared": "list-caching",
    "refuses for free": "charge",
    "has one bucket for all": "charge",
}
"""Each fault, and the check that must find it."""


class SmallServer:
    """Serve on loopback with some faults. Use it as a context manager."""

    def __init__(self, faults: Collection[str] = ()) -> None:
        self.faults = frozenset(faults)
        assert self.faults <= FAULTS.keys()
        self.spent: Counter[str] = Counter()
        self.lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.small = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self.url = f"http://127.0.0.1:{self._server.server_port}/mcp"

    def manifest(self) -> dict[str, Any]:
        bad = ("other_resource", "two_resources", "expired", "unsigned")
        return {
            "servers": {
                "small": {
                    "url": self.url,
                    "resource": self.url,
                    "example": {"tool": "add", "arguments": {"a": 1}},
                    "hidden": {"low": ["secret_tool"]},
                }
            },
            "budget": {
                "capacity": CAPACITY,
                "refill_per_second": 0,
                "reserve_fraction": 0.5,
                "callers": ["low", "other"],
                "clock": "frozen",
            },
            "tokens": {
                "small": {
                    "low": "good-low",
                    "other": "good-other",
                    "high": "good-high",
                    "no_scope": "good-nothing",
                    **{name: f"bad-{name}" for name in bad},
                }
            },
        }

    def charge(self, caller: str) -> bool:
        """Take one unit: of the caller's reserve first, then of the spare."""
        with self.lock:
            pool = CAPACITY - 2 * RESERVE
            if "has one bucket for all" in self.faults:
                granted = sum(self.spent.values()) < pool + RESERVE
                self.spent[caller] += granted
                return granted
            if caller in ("low", "other") and self.spent[caller] < RESERVE:
                self.spent[caller] += 1
                return True
            if self.spent["spare"] < pool:
                self.spent["spare"] += 1
                return True
            return False

    def __enter__(self) -> SmallServer:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    small: SmallServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that hangs up is what some checks are about."""


class DoubledError(ValueError):
    """Say that a key came twice."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise DoubledError
    return dict(pairs)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True
    server: _Server

    def has(self, fault: str) -> bool:
        return fault in self.server.small.faults

    def log_message(self, *_: object) -> None:
        """Keep the output of the tests clean."""

    def do_GET(self) -> None:
        if self.path == "/.well-known/oauth-protected-resource/mcp":
            named = self.server.small.url
            named = "https://elsewhere.invalid/mcp" if self.has("names another resource") else named
            self.say(200, {"resource": named})
        else:
            self.say(401, None)

    do_DELETE = do_PUT = do_PATCH = do_GET

    def do_POST(self) -> None:
        body = self.read()
        if body is None:
            return
        hosts, origins = self.headers.get_all("Host", []), self.headers.get_all("Origin", [])
        foreign = [name for name in (*hosts, *origins) if "127.0.0.1" not in name]
        if foreign and not self.has("answers under any name"):
            self.say(403, None)
            return
        caller = self.caller()
        if caller is not None:
            self.answer(caller, body)

    def read(self) -> bytes | None:
        length, body = self.headers.get("Content-Length"), b""
        if length is not None:
            return self.rfile.read(int(length))
        while size := int(self.rfile.readline().strip() or b"0", 16):
            body += self.rfile.read(size)
            self.rfile.readline()
            if len(body) > LIMIT and not self.has("reads any body"):
                self.close_connection = True
                self.say(413, None)
                return None
        self.rfile.readline()
        return body

    def caller(self) -> str | None:
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if not token and self.has("takes tokens in the address"):
            token = self.path.partition("access_token=")[2]
        kind, _, name = token.partition("-")
        if kind == "good" and name in RIGHTS:
            return name
        if kind == "bad" and self.has("ignores the audience"):
            return "low"
        if kind == "bad" and self.has("fails on a bad token"):
            self.say(500, None)
            return None
        if token and self.has("opens sessions for strangers"):
            self.say(401, None, [("Mcp-Session-Id", "s-1")])
            return None
        why = name if self.has("tells why a token is bad") else "no"
        where = self.server.small.url.replace("/mcp", "/.well-known/oauth-protected-resource/mcp")
        challenge = f'Bearer resource_metadata="{where}"' + (
            ', error="invalid_token"' * bool(token)
        )
        named = [] if self.has("sends no challenge") else [("WWW-Authenticate", challenge)]
        self.say(401, {"error": why}, named)
        return None

    def answer(self, caller: str, body: bytes) -> None:
        last_wins = self.has("takes the last of two keys")
        try:
            request = json.loads(body, object_pairs_hook=None if last_wins else _once)
            method, params = request["method"], request.get("params", {})
            target = params.get("name") if method == "tools/call" else None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            text = "Traceback (most recent call last)" if self.has("shows its insides") else "no"
            self.problem(400, -32600, text)
            return
        said = (self.headers.get_all("Mcp-Method", []), self.headers.get_all("Mcp-Name", []))
        expected = ([method], [] if target is None else [target])
        if said != expected and not self.has("ignores the headers"):
            self.problem(400, -32020, "headers and body differ")
            return
        visible = RIGHTS[caller]
        is_refusal = method == "tools/call" and target not in visible
        if not (is_refusal and self.has("refuses for free")) and not self.server.small.charge(
            _named(caller)
        ):
            over = {"ok": False, "error": "over_budget", "retry_after_s": 86400}
            self.result({"content": [], "structuredContent": over, "isError": True})
        elif method == "tools/list":
            self.list(caller)
        elif method == "tools/call":
            self.call(visible, str(target), params.get("arguments", {}))
        else:
            self.problem(404, -32601, "no such method")

    def list(self, caller: str) -> None:
        names = RIGHTS[caller]
        if (self.has("lists everything") and names) or self.has("lists for everyone"):
            names = RIGHTS["high"] if self.has("lists everything") else names | {"add"}
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in sorted(names)]
        scope = "public" if self.has("lets lists be shared") else "private"
        self.result({"tools": tools, "cacheScope": scope})

    def call(self, visible: set[str], name: str, arguments: dict[str, Any]) -> None:
        if name not in visible:
            if name == "secret_tool" and self.has("looks longer at what exists"):
                time.sleep(0.02)
            text = "no such tool"
            if self.has("repeats the name"):
                text += f": {name}"
            if name == "secret_tool" and self.has("tells hidden from missing"):
                text = "not allowed"
            self.problem(200, -32602, text)
        elif arguments.keys() - {"a"} and not self.has("drops unknown arguments"):
            self.problem(200, -32602, "unknown argument")
        else:
            self.result({"content": [], "structuredContent": {"sum": 1}})

    def result(self, result: dict[str, Any]) -> None:
        self.say(200, {"jsonrpc": "2.0", "id": 1, "result": result})

    def problem(self, status: int, code: int, text: str) -> None:
        error = {"code": code, "message": text}
        self.say(status, {"jsonrpc": "2.0", "id": 1, "error": error})

    def say(self, status: int, body: Any, headers: Collection[tuple[str, str]] = ()) -> None:
        raw = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(raw)


def _named(caller: str) -> str:
    return caller if caller in ("low", "other") else "spare"
