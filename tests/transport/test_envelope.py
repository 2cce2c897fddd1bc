"""What a message is, in both eras, and what an answer looks like on the wire."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mcp_types
import pytest
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from houses import StillClock, open_desk, run
from limen.transport.envelope import (
    CAPABILITIES_KEY,
    CLIENT_KEY,
    LEGACY,
    MODERN,
    SERVER_KEY,
    SUPPORTED,
    VERSION_KEY,
    Cancel,
    Envelope,
    Ignored,
    Request,
    Session,
)
from promised import promise

META = {
    VERSION_KEY: MODERN,
    CAPABILITIES_KEY: {},
    CLIENT_KEY: {"name": "tester", "version": "9"},
}
READ = {"name": "docs_read", "arguments": {"path": "public/handbook.txt"}}


def envelope() -> Envelope:
    numbers = iter(range(1_000_000))
    return Envelope("desk", "Desk", "1", "stdio", StillClock(), lambda: f"call-{next(numbers)}")


def read(message: Any, session: Session | None = None) -> Any:
    raw = message if isinstance(message, bytes) else json.dumps(message).encode()
    return envelope().read(raw, session or Session())


def request(method: str, params: Any = None, **more: Any) -> dict[str, Any]:
    params = (
        {**(params or {}), "_meta": META} if params is None or isinstance(params, dict) else params
    )
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params, **more}


def legacy(method: str, params: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}


def initialized(revision: str = "2025-06-18") -> Session:
    return Session(revision, "old/1", opened=True)


def flaw(message: Any, session: Session | None = None) -> tuple[Any, str, int]:
    found = read(message, session)
    assert isinstance(found, Request)
    assert found.call.flaw is not None
    return found.id, found.call.flaw.reason, found.call.flaw.problem.code


def test_our_revisions_are_those_of_the_official_sdk() -> None:
    assert (MODERN,) == MODERN_PROTOCOL_VERSIONS
    assert set(LEGACY) <= set(HANDSHAKE_PROTOCOL_VERSIONS)
    assert LEGACY[0] == HANDSHAKE_PROTOCOL_VERSIONS[-1]


def test_a_modern_request_describes_itself() -> None:
    found = read(request("tools/call", READ))
    assert found.id == 1
    call = found.call
    assert (call.revision, call.client, call.method) == (MODERN, "tester/9", "tools/call")
    assert (call.target, call.arguments) == ("docs_read", READ["arguments"])
    assert call.flaw is None


def test_a_legacy_request_is_of_the_revision_that_was_negotiated() -> None:
    call = read(legacy("tools/call", READ), initialized()).call
    assert (call.revision, call.client, call.flaw) == ("2025-06-18", "old/1", None)


@pytest.mark.parametrize(
    ("asked", "got"),
    [
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2024-11-05", "2025-11-25"),
        ("2099-01-01", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
    ],
)
def test_initialize_gets_the_asked_revision_or_our_newest(asked: str, got: str) -> None:
    session = Session()
    params = {"protocolVersion": asked, "capabilities": {}, "clientInfo": {"name": "c"}}
    assert read(legacy("initialize", params), session).call.flaw is None
    assert (session.revision, session.client) == (got, "c")


def test_a_server_answers_both_eras_on_one_connection() -> None:
    assert read(request("tools/list"), initialized()).call.revision == MODERN


@promise("bad-lines")
@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"{", (None, "not_json", -32700)),
        (b"", (None, "not_json", -32700)),
        (b"\xff\xfe", (None, "not_json", -32700)),
        (
            b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":NaN}}',
            (None, "not_json", -32700),
        ),
        (b"[" * 100 + b"]" * 100, (None, "not_json", -32700)),
        (b"[]", (None, "invalid_request", -32600)),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', (None, "invalid_request", -32600)),
        (b"7", (None, "invalid_request", -32600)),
        (b'"x"', (None, "invalid_request", -32600)),
        (b"null", (None, "invalid_request", -32600)),
        (b"{}", (None, "invalid_request", -32600)),
        (b'{"jsonrpc":"2.0","id":1}', (1, "invalid_request", -32600)),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', (1, "invalid_request", -32600)),
        (b'{"id":1,"method":"ping"}', (1, "invalid_request", -32600)),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', (1, "invalid_request", -32600)),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', (None, "invalid_id", -32600)),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', (None, "invalid_id", -32600)),
        (b'{"jsonrpc":"2.0","id":1.0,"method":"ping"}', (None, "invalid_id", -32600)),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', (None, "invalid_id", -32600)),
        (b'{"jsonrpc":"2.0","id":[1],"method":"ping"}', (None, "invalid_id", -32600)),
        (
            b'{"jsonrpc":"2.0","id":99999999999999999999,"method":"ping"}',
            (None, "invalid_id", -32600),
        ),
        (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', (None, "duplicate_keys", -32600)),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","method":"x"}', (1, "duplicate_keys", -32600)),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', (1, "invalid_params", -32602)),
        (
            b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":7}}',
            (1, "invalid_params", -32602),
        ),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}', (1, "invalid_params", -32602)),
    ],
)
def test_a_malformed_line_is_a_request_with_a_flaw(raw: bytes, expected: Any) -> None:
    assert flaw(raw) == expected


@promise("bad-lines")
@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (request("tools/call", {"name": 7}), "invalid_params"),
        (request("tools/call", {}), "invalid_params"),
        (request("prompts/get", {"name": None}), "invalid_params"),
        (request("resources/read", {}), "invalid_params"),
        (request("completion/complete", {"ref": "x", "argument": {}}), "invalid_params"),
        (request("completion/complete", {"ref": {"type": "x"}, "argument": {}}), "invalid_params"),
        (request("tools/list", {"cursor": 7}), "invalid_params"),
        (request("ping"), "unknown_method"),
        (request("initialize"), "unknown_method"),
    ],
)
def test_a_request_that_its_method_does_not_allow_has_a_flaw(message: Any, expected: str) -> None:
    found = read(message)
    assert found.call.flaw.reason == expected
    assert found.call.flaw.problem.code == (-32601 if expected == "unknown_method" else -32602)


def test_an_unsupported_version_is_told_what_is_supported() -> None:
    message = request("tools/list")
    message["params"]["_meta"] = {**META, VERSION_KEY: "2099-01-01"}
    found = read(message)
    assert (found.call.flaw.problem.code, found.call.flaw.problem.data) == (
        -32022,
        {"supported": [MODERN], "requested": "2099-01-01"},
    )


@pytest.mark.parametrize("broken", [{VERSION_KEY: 7}, {CAPABILITIES_KEY: None}])
def test_a_modern_request_without_its_metadata_is_invalid(broken: dict[str, Any]) -> None:
    message = request("tools/list")
    message["params"]["_meta"] = {**META, **broken}
    assert flaw(message) == (1, "invalid_params", -32602)


def test_what_a_legacy_session_does_not_know_is_no_method() -> None:
    assert flaw(legacy("server/discover"), initialized()) == (1, "unknown_method", -32601)


def test_a_second_initialize_changes_nothing() -> None:
    session = initialized()
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c"}}
    assert flaw(legacy("initialize", params), session) == (1, "initialized_twice", -32600)
    assert session == initialized()


def test_ping_is_answered_before_initialize() -> None:
    assert read(legacy("ping")).call.flaw is None


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("notification", {"jsonrpc": "2.0", "method": "notifications/initialized"}),
        ("notification", {"jsonrpc": "2.0", "method": "notifications/made_up", "params": 7}),
        ("notification", {"jsonrpc": "2.0", "method": "notifications/cancelled"}),
        (
            "notification",
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": None}},
        ),
        ("malformed", {"method": "tools/call"}),
        ("response", {"jsonrpc": "2.0", "id": 1, "result": {}}),
        ("response", {"jsonrpc": "2.0", "id": {}, "error": {"code": 1, "message": "x"}}),
    ],
)
def test_other_notifications_and_responses_are_ignored(kind: Any, message: Any) -> None:
    assert read(message) == Ignored(kind)


@pytest.mark.parametrize("request_id", [0, 7, "0", "a"])
def test_zero_and_strings_are_ids_that_can_be_cancelled(request_id: Any) -> None:
    message = {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": request_id},
    }
    assert read(message) == Cancel(request_id)


@promise("duplicate-keys")
def test_keys_that_came_twice_inside_the_arguments_are_left_to_their_step() -> None:
    raw = json.dumps(request("tools/call", READ)).replace(
        '"path": "public/handbook.txt"', '"path": "a", "path": "b", "x": {"y": 1, "y": 2}'
    )
    call = read(raw.encode()).call
    assert call.flaw is None
    assert call.duplicates == ("path", "x.y")


def test_what_a_client_says_of_itself_cannot_act_on_a_terminal() -> None:
    message = request("tools/list")
    message["params"]["_meta"] = {**META, CLIENT_KEY: {"name": "\x1b[2J" + "x" * 500, "version": 7}}
    client = read(message).call.client
    assert "\x1b" not in client
    assert len(client) <= 128


MODELS = {
    "server/discover": mcp_types.DiscoverResult,
    "initialize": mcp_types.InitializeResult,
    "tools/list": mcp_types.ListToolsResult,
    "prompts/list": mcp_types.ListPromptsResult,
    "resources/list": mcp_types.ListResourcesResult,
    "resources/templates/list": mcp_types.ListResourceTemplatesResult,
    "tools/call": mcp_types.CallToolResult,
    "prompts/get": mcp_types.GetPromptResult,
    "resources/read": mcp_types.ReadResourceResult,
    "completion/complete": mcp_types.CompleteResult,
}
CACHEABLE = {
    "server/discover",
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
}
PARAMS: dict[str, Any] = {
    "tools/call": READ,
    "prompts/get": {**READ, "name": "summarise_document"},
    "resources/read": {"uri": "desk://documents/public/handbook.txt"},
    "completion/complete": {
        "ref": {"type": "ref/prompt", "name": "summarise_document"},
        "argument": {"name": "path", "value": "public/h"},
    },
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "c"},
    },
}


@pytest.mark.parametrize("revision", SUPPORTED)
def test_every_result_is_what_the_official_models_expect(tmp_path: Path, revision: str) -> None:
    with open_desk(tmp_path) as world:
        for method, model in MODELS.items():
            modern = revision == MODERN
            if method == ("initialize" if modern else "server/discover"):
                continue
            params = PARAMS.get(method)
            message = request(method, params) if modern else legacy(method, params)
            session = Session() if modern or method == "initialize" else initialized(revision)
            found = read(message, session)
            assert found.call.flaw is None, (method, found.call.flaw)
            spelled = envelope().write(found, run(world.gate.answer(found.call)))
            result = json.loads(spelled)["result"]
            model.model_validate(result)
            assert ("resultType" in result) == modern
            assert (SERVER_KEY in result.get("_meta", {})) == modern
            assert ("ttlMs" in result) == (modern and method in CACHEABLE), method
            assert result.get("cacheScope", "private") == "private"


def test_structured_content_is_the_same_json_as_the_text(tmp_path: Path) -> None:
    with open_desk(tmp_path) as world:
        found = read(request("tools/call", READ))
        result = json.loads(envelope().write(found, run(world.gate.answer(found.call))))["result"]
        assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
        assert result["isError"] is False
