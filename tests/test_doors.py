"""The door of a server over HTTP as the settings make it: issuers, shares, quotas, weights."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from houses import StillClock, run
from limen.app import open_house
from limen.app.web import Web, open_web
from limen.errors import SettingsError
from limen.settings import Settings
from limen.tokens.issuer import OTHER_RESOURCE, DemoIssuer
from limen.upstream.documents import fetch_document
from limen.upstream.errors import SourceDownError
from promised import promise

PUBLIC = "http://127.0.0.1:8931"
RESOURCE = f"{PUBLIC}/ecb/mcp"
READ = ["rates:read"]
BODY = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "calendar_why", "arguments": {"day": "2026-04-03"}},
}

Ask = Callable[..., list[httpx.Response]]


@contextmanager
def documents(answers: dict[str, tuple[int, bytes]]) -> Iterator[str]:
    """Serve some documents on loopback: status and body by path. 302 leads to the body."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = answers[self.path]
            self.send_response(status)
            if status == 302:
                self.send_header("Location", body.decode())
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Keep the output of the tests clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def door(folder: Path, clock: StillClock, **settings: Any) -> Iterator[Ask]:
    """Open the server of rates with these settings; all questions come in one event loop."""
    made = Settings(**{"ecb": {"source": "history"}, **settings})
    with open_house(folder, made, clock=clock) as house:
        site = open_web(Web(house, PUBLIC, ("ecb",))).site

        def ask(*tokens: str) -> list[httpx.Response]:
            async def asked() -> list[httpx.Response]:
                transport = httpx.ASGITransport(site)
                async with httpx.AsyncClient(transport=transport, base_url=PUBLIC) as client:
                    return [
                        await client.post(
                            "/ecb/mcp",
                            json=BODY,
                            headers={
                                "Accept": "application/json, text/event-stream",
                                "MCP-Protocol-Version": "2025-06-18",
                                "Authorization": f"Bearer {token}",
                            },
                        )
                        for token in tokens
                    ]

            return run(asked())

        yield ask


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
def issuer(clock: StillClock) -> DemoIssuer:
    return DemoIssuer(clock)


@pytest.fixture
def keys_url(issuer: DemoIssuer) -> Iterator[str]:
    jwks = {"keys": [issuer._key.as_dict(private=False)]}
    with documents({"/jwks.json": (200, json.dumps(jwks).encode())}) as url:
        yield f"{url}/jwks.json"


def trusting(issuer: DemoIssuer, keys_url: str, **more: Any) -> dict[str, Any]:
    return {"main": {"issuer": issuer.issuer, "keys_url": keys_url, **more}}


def errors(answers: list[httpx.Response]) -> list[Any]:
    return [
        (one.status_code, one.json().get("result", {}).get("structuredContent", {}).get("error"))
        for one in answers
    ]


@promise("one-audience")
def test_a_caller_of_an_outside_issuer_carries_the_issuers_name(
    tmp_path: Path, clock: StillClock, issuer: DemoIssuer, keys_url: str
) -> None:
    with door(tmp_path, clock, issuers=trusting(issuer, keys_url)) as ask:
        good = issuer.mint("alice", RESOURCE, READ)
        foreign = issuer.mint("alice", OTHER_RESOURCE, READ)
        stranger = DemoIssuer(clock).mint("alice", RESOURCE, READ)
        listed = issuer.mint("alice", [RESOURCE], READ)
        answers = ask(good, foreign, stranger, listed)
    assert [one.status_code for one in answers] == [200, 401, 401, 401]
    with open_house(tmp_path, Settings(), clock=clock) as house:
        callers = [entry["caller"] for entry in house.audit_reader.newest(10)]
    assert callers.count("main/alice") == 1
    assert "alice" not in callers


def test_a_list_of_this_one_resource_passes_only_where_the_owner_says_so(
    tmp_path: Path, clock: StillClock, issuer: DemoIssuer, keys_url: str
) -> None:
    trusted = trusting(issuer, keys_url, lists_allowed=True)
    with door(tmp_path, clock, issuers=trusted) as ask:
        one = issuer.mint("alice", [RESOURCE], READ)
        two = issuer.mint("alice", [RESOURCE, OTHER_RESOURCE], READ)
        answers = ask(one, two)
    assert [answer.status_code for answer in answers] == [200, 401]


def test_an_issuer_whose_keys_cannot_be_had_opens_nothing(
    tmp_path: Path, clock: StillClock, issuer: DemoIssuer
) -> None:
    with documents({"/jwks.json": (503, b"")}) as url:
        trusted = trusting(issuer, f"{url}/jwks.json")
        with door(tmp_path, clock, issuers=trusted) as ask:
            [answer] = ask(issuer.mint("alice", RESOURCE, READ))
    assert answer.status_code in (401, 503)
    assert "result" not in answer.json()


@promise("fair-share")
def test_a_named_caller_keeps_its_share_and_the_others_live_on_the_spare(
    tmp_path: Path, clock: StillClock, issuer: DemoIssuer, keys_url: str
) -> None:
    budget = {"capacity": 8, "refill_per_second": 0, "callers": ["main/quiet"]}
    trusted = trusting(issuer, keys_url)
    with door(tmp_path, clock, issuers=trusted, budget=budget) as ask:
        names = ["one", "two", "three", "four", "five", "six"]
        crowd = ask(*[issuer.mint(name, RESOURCE, READ) for name in names])
        quiet = ask(*[issuer.mint("quiet", RESOURCE, READ)] * 5)
    assert [error for _, error in errors(crowd)] == [None] * 4 + ["over_budget"] * 2
    assert [error for _, error in errors(quiet)] == [None] * 4 + ["over_budget"]


def test_without_named_callers_all_of_the_budget_is_for_all(
    tmp_path: Path, clock: StillClock, issuer: DemoIssuer, keys_url: str
) -> None:
    budget = {"capacity": 3, "refill_per_second": 1}
    with door(tmp_path, clock, issuers=trusting(issuer, keys_url), budget=budget) as ask:
        answers = ask(*[issuer.mint(name, RESOURCE, READ) for name in "abcd"])
    assert [error for _, error in errors(answers)] == [None] * 3 + ["over_budget"]
    assert answers[3].json()["result"]["structuredContent"]["retry_after_s"] == 1


def test_a_quota_of_the_minute_is_429_with_the_seconds_to_wait(
    tmp_path: Path, clock: StillClock, issuer: DemoIssuer, keys_url: str
) -> None:
    budget = {"calls_per_minute": 2}
    with door(tmp_path, clock, issuers=trusting(issuer, keys_url), budget=budget) as ask:
        alice, bob = (issuer.mint(name, RESOURCE, READ) for name in ("alice", "bob"))
        answers = ask(alice, alice, alice, bob)
    assert [one.status_code for one in answers] == [200, 200, 429, 200]
    assert answers[2].headers["retry-after"] == "60"


def test_a_weight_is_what_a_call_of_its_tool_costs(
    tmp_path: Path, clock: StillClock, issuer: DemoIssuer, keys_url: str
) -> None:
    budget = {"capacity": 7, "refill_per_second": 0, "weights": {"calendar_why": 3}}
    with door(tmp_path, clock, issuers=trusting(issuer, keys_url), budget=budget) as ask:
        answers = ask(*[issuer.mint("alice", RESOURCE, READ)] * 3)
    assert [error for _, error in errors(answers)] == [None, None, "over_budget"]


def test_a_weight_of_no_tool_stops_the_start(tmp_path: Path, clock: StillClock) -> None:
    with (
        pytest.raises(SettingsError, match=r"`budget\.weights` names `nothing`"),
        door(tmp_path, clock, budget={"weights": {"nothing": 2}}),
    ):
        pass


@pytest.mark.parametrize(
    ("status", "body"), [(404, b""), (302, b"/there"), (200, b"x" * 101), (500, b"{}")]
)
def test_a_document_that_is_not_whole_and_there_is_none(status: int, body: bytes) -> None:
    answers = {"/keys": (status, body), "/there": (200, b"{}")}
    with documents(answers) as url, pytest.raises(SourceDownError):
        run(fetch_document(f"{url}/keys", 100))


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/x", "nonsense", "http://"])
def test_a_document_from_nowhere_is_a_source_that_is_down(url: str) -> None:
    with pytest.raises(SourceDownError):
        run(fetch_document(url, 100))
