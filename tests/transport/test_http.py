"""MCP over HTTP: statuses, headers and bodies in both eras, before a gate with bearer tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from houses import StillClock, fails
from limen.app import Door, build_desk, open_house
from limen.app.web import mount
from limen.decisions.d1_audience import BearerCaller
from limen.decisions.d2_budget import FairBudget
from limen.errors import StoreError
from limen.settings import Settings
from limen.tokens.issuer import DemoIssuer
from limen.tokens.jwt import JwtReader, TrustedIssuer
from limen.tokens.reader import BearerTokens
from limen.transport.http import Switches
from limen.transport.site import Site

PUBLIC = "http://127.0.0.1:8931"
RESOURCE = f"{PUBLIC}/desk/mcp"
SCOPES = ("desk:read", "desk:write")
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
BOTH = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


class Web:
    """A desk behind a site, asked in this process."""

    def __init__(self, folder: Path, switches: Switches | None = None) -> None:
        self.clock = StillClock()
        self.issuer = DemoIssuer(self.clock)
        self._house = open_house(folder, Settings(), clock=self.clock)
        house = self._house.__enter__()
        trusted = TrustedIssuer(self.issuer.issuer, self.issuer.public_keys(), roles_claim="roles")
        tokens = BearerTokens(RESOURCE, [JwtReader([trusted], self.clock)], self.clock)
        callers = BearerCaller(tokens)
        budget = FairBudget(60, 0, ["alpha", "beta"], self.clock)
        mounted = mount(
            build_desk(house, Door(callers, budget)),
            "/desk/mcp",
            RESOURCE,
            callers,
            issuers=[self.issuer.issuer],
            scopes=SCOPES,
            clock=self.clock,
            max_message=4096,
            switches=switches or Switches(),
        )
        self.site = Site(PUBLIC, [mounted])
        self.house = house
        self.alpha = self.issuer.mint("alpha", RESOURCE, SCOPES, roles=["staff"])

    def close(self) -> None:
        self._house.__exit__(None, None, None)

    def ask(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: Any = None
    ) -> httpx.Response:
        async def asked() -> httpx.Response:
            transport = httpx.ASGITransport(self.site)
            async with httpx.AsyncClient(transport=transport, base_url=PUBLIC) as client:
                content = {"content": body} if isinstance(body, bytes) else {"json": body}
                sent = content if body is not None else {}
                return await client.request(method, path, headers=headers, **sent)

        return asyncio.run(asked())

    def legacy(self, method: str, token: str | None = None, **params: Any) -> httpx.Response:
        headers = {**BOTH, "mcp-protocol-version": "2025-06-18", **bearer(token or self.alpha)}
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return self.ask("POST", "/desk/mcp", headers, message)

    def modern(
        self, method: str, token: str | None = None, more: Any = None, **params: Any
    ) -> httpx.Response:
        headers = {
            **BOTH,
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": method,
            **({"mcp-name": params["name"]} if "name" in params else {}),
            **bearer(token or self.alpha),
            **(more or {}),
        }
        params = {**params, "_meta": META}
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return self.ask("POST", "/desk/mcp", headers, message)


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    opened = Web(tmp_path)
    yield opened
    opened.close()


READ = {"name": "docs_read", "arguments": {"path": "public/none.txt"}}


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_good_token_is_answered(web: Web, era: str) -> None:
    answer = getattr(web, era)("tools/call", **READ)
    assert answer.status_code == 200
    assert answer.json()["result"]["structuredContent"]["error"] == "not_found"


def test_a_request_without_a_token_gets_a_challenge_without_an_error(web: Web) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}
    answer = web.ask("POST", "/desk/mcp", BOTH, message)
    assert answer.status_code == 401
    metadata = f"{PUBLIC}/.well-known/oauth-protected-resource/desk/mcp"
    assert answer.headers["www-authenticate"] == (
        f'Bearer resource_metadata="{metadata}", scope="desk:read desk:write"'
    )


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize(
    "kind",
    [
        *("other_resource", "two_resources", "list_of_one", "no_audience"),
        *("expired", "wrong_issuer", "unsigned"),
    ],
)
def test_a_token_that_is_not_for_exactly_this_server_is_refused(
    web: Web, era: str, kind: str
) -> None:
    token = web.issuer.mint_refused("alpha", RESOURCE, SCOPES)[kind]
    answer = getattr(web, era)("tools/call", token, **READ)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].endswith(', error="invalid_token"')
    assert answer.json()["error"]["message"] == "this bearer token is not valid here"


def test_the_metadata_stands_at_both_addresses(web: Web) -> None:
    for path in ("", "/desk/mcp"):
        document = web.ask("GET", f"/.well-known/oauth-protected-resource{path}").json()
        assert document["resource"] == RESOURCE
        assert document["authorization_servers"] == [web.issuer.issuer]


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_hidden_tool_and_a_made_up_one_get_the_same_bytes(web: Web, era: str) -> None:
    ask = getattr(web, era)
    hidden = ask("tools/call", name="export", arguments={"path": "x"})
    made_up = ask("tools/call", name="exporx", arguments=None)
    assert (hidden.status_code, hidden.content) == (made_up.status_code, made_up.content)
    assert dict(hidden.headers) == dict(made_up.headers)
    assert hidden.json()["error"]["code"] == -32602
    assert "export" not in hidden.text


def test_the_greedy_caller_gets_45_and_the_quiet_one_15(web: Web) -> None:
    def served(token: str) -> int:
        answers = (web.modern("tools/call", token, **READ).json() for _ in range(61))
        said = [answer["result"]["structuredContent"]["error"] for answer in answers]
        return said.count("not_found")

    beta = web.issuer.mint("beta", RESOURCE, SCOPES, roles=["staff"])
    assert (served(web.alpha), served(beta)) == (45, 15)


@pytest.mark.parametrize("path", ["/desk/mcp", "/desk/mcp/"])
def test_an_endpoint_is_the_same_with_a_slash_and_without(web: Web, path: str) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {}}
    answer = web.ask("POST", path, {**BOTH, **bearer(web.alpha)}, message)
    assert (answer.status_code, answer.json()["result"]) == (200, {})


@pytest.mark.parametrize(
    ("more", "status", "code"),
    [
        ({"mcp-method": "tools/list"}, 400, -32020),
        ({"mcp-name": "docs_update"}, 400, -32020),
        ({"mcp-protocol-version": "2025-06-18"}, 400, -32020),
        ({"mcp-protocol-version": "1999-01-01"}, 400, -32022),
        ({"content-type": "text/plain"}, 415, -32600),
        ({"content-encoding": "gzip"}, 415, -32600),
        ({"accept": "application/json"}, 406, -32600),
        ({"content-length": "99999"}, 413, -32600),
    ],
)
def test_what_is_wrong_with_the_headers_is_said_by_status_and_code(
    web: Web, more: Mapping[str, str], status: int, code: int
) -> None:
    answer = web.modern("tools/call", more=more, **READ)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


def test_a_body_beyond_the_limit_is_refused_with_the_limit_in_the_message(web: Web) -> None:
    answer = web.ask("POST", "/desk/mcp", {**BOTH, **bearer(web.alpha)}, b" " * 5000)
    assert answer.status_code == 413
    assert "4096" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://localhost.evil.example"}, 403),
        ({"origin": "http://localhost:5173"}, 200),
        ({"host": "localhost:1"}, 200),
    ],
)
def test_only_our_own_hosts_and_origins_are_answered(
    web: Web, headers: Mapping[str, str], status: int
) -> None:
    assert web.ask("GET", "/health", headers).status_code == status


def test_a_browser_may_read_the_challenge(web: Web) -> None:
    origin = {"origin": "http://localhost:5173"}
    asked = {"access-control-request-headers": "authorization, mcp-param-city, x-evil"}
    preflight = web.ask("OPTIONS", "/desk/mcp", {**origin, **asked})
    assert preflight.status_code == 204
    allowed = preflight.headers["access-control-allow-headers"]
    assert allowed == "authorization, mcp-param-city"
    answer = web.ask("POST", "/desk/mcp", {**BOTH, **origin}, {})
    assert "WWW-Authenticate" in answer.headers["access-control-expose-headers"]


def test_lists_are_private_and_hold_only_what_the_caller_may_see(web: Web) -> None:
    result = web.modern("tools/list").json()["result"]
    assert result["cacheScope"] == "private"
    names = [tool["name"] for tool in result["tools"]]
    assert names == ["docs_read", "docs_update", "tickets_add_note", "tickets_get"]


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
def test_other_methods_are_not_allowed(web: Web, method: str) -> None:
    assert web.ask(method, "/desk/mcp", bearer(web.alpha)).status_code == 405


def test_a_notification_is_taken_note_of(web: Web) -> None:
    message = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    answer = web.ask("POST", "/desk/mcp", {**BOTH, **bearer(web.alpha)}, message)
    assert (answer.status_code, answer.content) == (202, b"")


def test_a_batch_is_answered_in_the_revision_that_has_batches_alone(web: Web) -> None:
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    batch = [ping, note, {**ping, "id": "2"}]
    token = bearer(web.alpha)
    answers = web.ask("POST", "/desk/mcp", {**BOTH, **token}, batch).json()
    assert [answer["id"] for answer in answers] == [1, "2"]
    newer = {**BOTH, **token, "mcp-protocol-version": "2025-06-18"}
    refused = web.ask("POST", "/desk/mcp", newer, batch)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, -32600)


def test_each_message_of_a_batch_is_charged(web: Web) -> None:
    call = {"jsonrpc": "2.0", "method": "tools/call", "params": READ}
    batch = [{**call, "id": number} for number in range(25)]
    headers = {**BOTH, **bearer(web.alpha)}
    answers = [one for _ in "12" for one in web.ask("POST", "/desk/mcp", headers, batch).json()]
    texts = [answer["result"]["content"][0]["text"] for answer in answers]
    assert sum("over_budget" in text for text in texts) == 5
    assert "structuredContent" not in answers[0]["result"]


def test_an_initialize_agrees_on_a_legacy_revision_and_opens_no_session(web: Web) -> None:
    params = {
        "protocolVersion": "2025-03-26",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    answer = web.ask("POST", "/desk/mcp", {**BOTH, **bearer(web.alpha)}, message)
    assert answer.json()["result"]["protocolVersion"] == "2025-03-26"
    assert "mcp-session-id" not in answer.headers


@pytest.fixture
def stateful(tmp_path: Path) -> Iterator[Web]:
    opened = Web(tmp_path, Switches(stateful=True, sse=True))
    yield opened
    opened.close()


def initialized(web: Web, token: str) -> httpx.Response:
    params = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    return web.ask("POST", "/desk/mcp", {**BOTH, **bearer(token)}, message)


def test_a_session_is_its_opener_s_alone_and_ends_when_told(stateful: Web) -> None:
    session = initialized(stateful, stateful.alpha).headers["mcp-session-id"]
    beta = stateful.issuer.mint("beta", RESOURCE, SCOPES)
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}

    def status(token: str, method: str = "POST") -> int:
        headers = {**BOTH, **bearer(token), "mcp-session-id": session}
        body = ping if method == "POST" else None
        return stateful.ask(method, "/desk/mcp", headers, body).status_code

    assert [status(stateful.alpha), status(beta), status(beta, "DELETE")] == [200, 404, 404]
    assert [status(stateful.alpha, "DELETE"), status(stateful.alpha)] == [204, 404]


def test_a_refused_initialize_opens_no_session(stateful: Web) -> None:
    expired = stateful.issuer.mint("alpha", RESOURCE, SCOPES, expires_in_s=-1)
    assert initialized(stateful, expired).status_code == 401
    assert len(stateful.site._mounted[0].endpoint.sessions) == 0


def test_an_event_stream_holds_the_same_answer(stateful: Web, tmp_path: Path) -> None:
    answer = stateful.legacy("tools/call", **READ)
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["x-accel-buffering"] == "no"
    assert answer.text.startswith("event: message\ndata: {")
    assert '"not_found"' in answer.text


def test_why_a_token_was_refused_stands_in_the_row_and_nowhere_else(web: Web) -> None:
    token = web.issuer.mint_refused("alpha", RESOURCE, SCOPES)["other_resource"]
    answer = web.legacy("tools/call", token, **READ)
    row = web.house.audit_reader.newest(1)[0]
    assert (row["decision"], row["step"], row["reason"]) == ("deny", "d1_audience", "invalid_token")
    assert "other-resource.limen.invalid" in row["private"]
    assert "other-resource" not in answer.text + str(answer.headers)
    assert token not in str(row)


def test_a_store_that_is_down_makes_a_session_unavailable_and_no_server_error(
    stateful: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = initialized(stateful, stateful.alpha).headers["mcp-session-id"]
    monkeypatch.setattr(BearerCaller, "caller_of", fails(StoreError("store is down")))
    headers = {**BOTH, **bearer(stateful.alpha), "mcp-session-id": session}
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    answer = stateful.ask("POST", "/desk/mcp", headers, ping)
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    row = stateful.house.audit_reader.newest(1)[0]
    assert (row["step"], row["reason"]) == ("d1_audience", "fault")
