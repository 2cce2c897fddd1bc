"""A real child process, spoken to as a client does: one JSON object a line."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
META = {
    VERSION_KEY: "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "wire", "version": "1"},
}
WAIT_S = 20
"""Seconds. Far more than any answer takes; it bounds a test that has gone wrong."""


def limen(*words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a command of ours to its end."""
    return subprocess.run(
        [sys.executable, "-m", "limen", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **more,
    )


class Child:
    """`limen serve desk`, with its pipes in our hands. `revision` decides the protocol era."""

    def __init__(self, data: Path, revision: str = "2026-07-28", **environment: str) -> None:
        self.revision = revision
        self._ids = itertools.count(1)
        self._rest = b""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "limen", "serve", "desk", "--data", str(data)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, **environment},
        )
        if revision != "2026-07-28":
            params = {
                "protocolVersion": revision,
                "capabilities": {},
                "clientInfo": {"name": "wire", "version": "1"},
            }
            assert self.ask("initialize", params)["result"]["protocolVersion"] == revision
            self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send(self, message: Any) -> None:
        """Send a message, or bytes as they are."""
        assert self.process.stdin is not None
        raw = message if isinstance(message, bytes) else json.dumps(message).encode()
        raw += b"\n"
        while raw:
            raw = raw[self.process.stdin.write(raw) :]

    def request(self, method: str, params: dict[str, Any] | None = None, **more: Any) -> Any:
        """Send a request and return its id."""
        params = dict(params or {})
        if self.revision == "2026-07-28":
            params["_meta"] = META
        message = {
            "jsonrpc": "2.0",
            "id": next(self._ids),
            "method": method,
            "params": params,
            **more,
        }
        self.send(message)
        return message["id"]

    def receive(self, wait_s: float = WAIT_S) -> Any:
        """Return the next message; None when there will be no more."""
        assert self.process.stdout is not None
        until = time.monotonic() + wait_s
        while b"\n" not in self._rest:
            left = until - time.monotonic()
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, left))
            if not ready:
                raise TimeoutError(f"no answer within {wait_s} s")
            chunk = self.process.stdout.read(1 << 20)
            if not chunk:
                return None
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)

    def ask(self, method: str, params: dict[str, Any] | None = None) -> Any:
        """Send a request and return its response."""
        request_id = self.request(method, params)
        response = self.receive()
        assert response["id"] == request_id, response
        return response

    def call(self, tool: str, arguments: Any = None) -> Any:
        """Call a tool and return the response."""
        return self.ask("tools/call", {"name": tool, "arguments": arguments or {}})

    def said(self, tool: str, **arguments: Any) -> Any:
        """Call a tool and return what it said, as structured content."""
        return self.call(tool, arguments)["result"]["structuredContent"]

    def leave(self) -> float:
        """Close its input, as a client that leaves, and return the seconds until it has exited."""
        assert self.process.stdin is not None
        begun = time.monotonic()
        self.process.stdin.close()
        assert self.process.wait(WAIT_S) == 0, self.errors()
        return time.monotonic() - begun

    def errors(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()


@contextlib.contextmanager
def serving(data: Path, revision: str = "2026-07-28", **environment: str) -> Iterator[Child]:
    """Serve a desk in a child process; whatever happens, it is gone afterwards."""
    child = Child(data, revision, **environment)
    try:
        yield child
    finally:
        if child.process.poll() is None:
            child.process.kill()
        child.process.wait()
        for pipe in (child.process.stdin, child.process.stdout, child.process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
