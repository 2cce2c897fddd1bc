"""`limen up` and `limen serve … --http` as real processes, and the requests that a client makes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from wire import META, WAIT_S

BROKEN = Path(__file__).parent / "broken.py"
"""Runs `limen` with one promise broken; its first word says which."""


class WebChild:
    """A process of ours that serves over HTTP. `manifest` is what it wrote for programs."""

    def __init__(
        self, *words: str, ready: str, broken: str | None = None, **environment: str
    ) -> None:
        ours = ["-m", "limen"] if broken is None else [str(BROKEN), broken]
        self.process = subprocess.Popen(
            [sys.executable, *ours, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
        )
        self.said = ""
        self.manifest: dict[str, Any] = {}
        try:
            self.url = self._wait_for(ready)[1]
            self._wait_until_it_answers()
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """Let nothing of it stay."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def end(self, sign: int = signal.SIGTERM) -> int:
        """End it as a supervisor does, and return its exit code."""
        self.process.send_signal(sign)
        out, _ = self.process.communicate(timeout=WAIT_S)
        self.said += out.decode()
        return self.process.returncode

    def _wait_for(self, ready: str) -> re.Match[str]:
        assert self.process.stdout is not None
        until = time.monotonic() + WAIT_S
        while (found := re.search(ready, self.said)) is None:
            readable, _, _ = select.select([self.process.stdout], [], [], until - time.monotonic())
            chunk = os.read(self.process.stdout.fileno(), 65536) if readable else b""
            if not chunk:
                raise AssertionError(f"it did not start: {self.said}")
            self.said += chunk.decode()
        return found

    def _wait_until_it_answers(self) -> None:
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until:
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{self.url}/health").status_code == 200:
                    return
            time.sleep(0.05)
        raise AssertionError(f"it does not answer: {self.said}")


@contextlib.contextmanager
def going_up(
    folder: Path, *words: str, broken: str | None = None, **environment: str
) -> Iterator[WebChild]:
    """Run `limen up --offline` with its data in a folder; whatever happens, it is gone then."""
    tokens = folder / "tokens.json"
    told = ["--port", "0", "--data", str(folder / "data"), "--tokens-file", str(tokens)]
    child = WebChild(
        "up",
        "--offline",
        *told,
        *words,
        ready=r"(http://\S+?)/ecb/mcp",
        broken=broken,
        **environment,
    )
    try:
        child.manifest = json.loads(tokens.read_text())
        yield child
    finally:
        child.remove()


@contextlib.contextmanager
def serving_http(server: str, data: Path, *words: str, **environment: str) -> Iterator[WebChild]:
    """Run `limen serve SERVER --http`."""
    child = WebChild(
        "serve",
        server,
        "--http",
        "--port",
        "0",
        "--data",
        str(data),
        *words,
        ready=rf"serves (http://\S+?)/{server}/mcp",
        **environment,
    )
    try:
        yield child
    finally:
        child.remove()


def post(
    url: str, token: str | None, method: str, params: dict[str, Any], revision: str = "2026-07-28"
) -> httpx.Response:
    """Make one request of MCP, as a client of that revision does."""
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": revision,
    }
    if revision == "2026-07-28":
        params = {**params, "_meta": META}
        headers["Mcp-Method"] = method
        if "name" in params:
            headers["Mcp-Name"] = params["name"]
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return httpx.post(url, json=request, headers=headers, timeout=WAIT_S)


def call(url: str, token: str | None, tool: str, **arguments: Any) -> httpx.Response:
    """Call a tool."""
    return post(url, token, "tools/call", {"name": tool, "arguments": arguments})
