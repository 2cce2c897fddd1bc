"""Requests a second over HTTP: the full boundary against the bare SDK, side by side in one run."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

MODERN, LEGACY = "2026-07-28", "2025-06-18"
ARGUMENTS = {"currency": "USD", "start": "2026-03-30", "end": "2026-04-10"}
SECONDS = 4
ROUNDS = 1
CONNECTIONS = 16

SCRIPT = """
wrk.method = "POST"
wrk.body = [==[{body}]==]
{headers}
local bad = 0
function response(status, headers, body)
  if status ~= 200 or not string.find(body, '1.1484', 1, true) then bad = bad + 1 end
end
"""


@dataclass(frozen=True)
class Load:
    """What one run of `wrk` brought: requests a second, and the 99th percentile in ms."""

    rate: float
    p99_ms: float


def body_of(revision: str) -> dict[str, Any]:
    params: dict[str, Any] = {"name": "rates_window", "arguments": ARGUMENTS}
    if revision == MODERN:
        params["_meta"] = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


def headers_of(revision: str, token: str) -> dict[str, str]:
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": revision,
        "Authorization": f"Bearer {token}",
    }
    if revision == MODERN:
        headers |= {"Mcp-Method": "tools/call", "Mcp-Name": "rates_window"}
    return headers


def load(folder: Path, url: str, revision: str, token: str) -> Load:
    """Let `wrk` ask for some seconds, after one answer was looked at."""
    headers = headers_of(revision, token)
    answer = httpx.post(url, json=body_of(revision), headers=headers)
    if "1.1484" not in answer.text:
        raise SystemExit(f"unexpected answer of {url}: {answer.status_code} {answer.text[:300]}")
    script = folder / "ask.lua"
    lines = "\n".join(f'wrk.headers["{name}"] = "{text}"' for name, text in headers.items())
    script.write_text(SCRIPT.format(body=json.dumps(body_of(revision)), headers=lines))
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{SECONDS}s", "--latency", "-s", script, url]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    if "Non-2xx" in out or "Socket errors" in out:
        raise SystemExit(out)
    found = re.search(r"99%\s+([\d.]+)(us|ms|s)", out)
    rate = re.search(r"Requests/sec:\s+([\d.]+)", out)
    if found is None or rate is None:
        raise SystemExit(out)
    scale = {"us": 0.001, "ms": 1.0, "s": 1_000.0}[found[2]]
    return Load(float(rate[1]), float(found[1]) * scale)


@contextmanager
def running(command: list[str], url: str, **environment: str) -> Iterator[None]:
    child = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )
    try:
        until = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", urlsplit(url).port or 0), 1).close()
                break
            except OSError:
                if time.monotonic() > until or child.poll() is not None:
                    raise SystemExit(f"did not start: {command}") from None
                time.sleep(0.1)
        yield
    finally:
        child.terminate()
        child.wait(10)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def compare() -> Iterator[tuple[str, float, str, float, bool]]:
    """Yield name, figure, unit, promise and whether that is a least, of each line."""
    if shutil.which("wrk") is None:
        raise SystemExit("this part needs `wrk`: apt-get install wrk")
    here = Path(__file__).parent
    with tempfile.TemporaryDirectory() as made, ExitStack() as stack:
        folder = Path(made)
        ports = {name: free_port() for name in ("ours", "quiet", "as it comes")}
        environment = {
            "LIMEN_ECB__SOURCE": "history",
            "LIMEN_BUDGET__CAPACITY": "1000000",
            "LIMEN_BUDGET__REFILL_PER_SECOND": "1000000",
            "LIMEN_BUDGET__CALLERS": '["bench"]',
        }
        limen = [sys.executable, "-m", "limen"]
        data = ["--data", str(folder / "data")]
        token = subprocess.run(
            [*limen, "token", "issue", "ecb", "--caller=bench", f"--port={ports['ours']}", *data],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        urls = {"ours": f"http://127.0.0.1:{ports['ours']}/ecb/mcp"}
        served = [*limen, "serve", "ecb", "--http", "--port", str(ports["ours"]), *data]
        stack.enter_context(running(served, urls["ours"], **environment))
        answer = httpx.post(urls["ours"], json=body_of(MODERN), headers=headers_of(MODERN, token))
        ready = folder / "said.json"
        ready.write_text(json.dumps(answer.json()["result"]["structuredContent"]))
        for name in ("quiet", "as it comes"):
            urls[name] = f"http://127.0.0.1:{ports[name]}/mcp"
            bare = [sys.executable, str(here / "bare.py"), str(ports[name])]
            stack.enter_context(running([*bare, name.replace(" ", "-"), str(ready)], urls[name]))
        for revision, least in ((MODERN, 3.0), (LEGACY, 5.0)):
            rounds = [
                {name: load(folder, url, revision, token) for name, url in urls.items()}
                for _ in range(ROUNDS)
            ]
            rates = {name: statistics.median(one[name].rate for one in rounds) for name in urls}
            p99 = statistics.median(one["ours"].p99_ms for one in rounds)
            for name in urls:
                yield f"{revision}: {name} (no promise)", rates[name], "req/s", 0, True
            yield (
                f"{revision}: ours to the quiet SDK",
                rates["ours"] / rates["quiet"],
                "×",
                least,
                True,
            )
            yield f"{revision}: p99 of ours, 16 connections", p99, "ms", 10, False
