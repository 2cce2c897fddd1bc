"""No generated message crashes, leaves two rows, or leaves none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from houses import World, open_desk, run
from limen.app import new_call_id
from limen.gate import COUNTED, WALKS
from limen.transport.envelope import Cancel, Envelope, Ignored, Request, Session
from promised import promise

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
TOOLS = ["docs_read", "docs_update", "tickets_get", "tickets_add_note", "export", "made_up"]
PATHS = ["public/handbook.txt", "private/customer-secrets.txt", "drafts/new.txt", "a/../b", ""]

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
arguments = st.fixed_dictionaries(
    {},
    optional={
        "path": st.sampled_from(PATHS) | anything,
        "content": st.text(max_size=30) | anything,
        "ticket_id": st.sampled_from(["T-1001", "T-2001", "T-9"]) | anything,
        "note": st.text(max_size=20),
        "destination": st.sampled_from(["partner", "nowhere"]) | anything,
        "approved": st.booleans(),
    },
)
params = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from([*TOOLS, "summarise_document"]) | anything,
        "arguments": arguments | anything,
        "uri": st.sampled_from([f"desk://documents/{path}" for path in PATHS]) | anything,
        "ref": st.fixed_dictionaries(
            {
                "type": st.sampled_from(["ref/prompt", "ref/resource"]),
                "name": st.sampled_from(["summarise_document", "x"]),
            }
        )
        | anything,
        "argument": st.fixed_dictionaries({"name": st.just("path"), "value": st.text(max_size=5)})
        | anything,
        "cursor": st.text(max_size=5) | anything,
        "protocolVersion": st.sampled_from(["2025-06-18", "x"]) | anything,
        "capabilities": st.just({}) | anything,
        "_meta": st.just(META) | anything,
    },
)
messages = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0") | anything},
    optional={
        "id": st.integers() | st.text(max_size=5) | anything,
        "method": st.sampled_from([*WALKS, "notifications/cancelled", "made/up"]) | anything,
        "params": params | anything,
        "result": anything,
    },
)
lines = (
    messages.map(lambda message: json.dumps(message).encode())
    | anything.map(lambda value: json.dumps(value).encode())
    | st.binary(max_size=60)
    | messages.map(lambda message: json.dumps(message)[: len(json.dumps(message)) // 2].encode())
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    budget = {"capacity": 1_000_000, "refill_per_second": 0}
    with open_desk(tmp_path_factory.mktemp("generated"), budget=budget) as opened:
        yield opened


def counted(world: World) -> int:
    return sum(row["requests"] for row in world.house.audit_reader.counts())


def wants_an_answer(raw: bytes) -> bool:
    """Say by the standard library alone whether a line is a request, or so broken it may be."""
    try:
        message: Any = json.loads(raw)
    except ValueError:
        return True
    if not isinstance(message, dict):
        return True
    if isinstance(message.get("method"), str):
        return "id" in message
    return not ("method" not in message and ("result" in message or "error" in message))


@promise("one-row", "bad-lines")
@given(raw=lines)
@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_every_line_is_answered_once_and_leaves_one_row_or_is_ignored(
    world: World, raw: bytes
) -> None:
    house = world.house
    envelope = Envelope("desk", "Desk", "1", "stdio", world.clock, new_call_id)
    before = house.audit_reader.size()
    message = envelope.read(raw, Session())
    if isinstance(message, Cancel | Ignored):
        # A value that JSON cannot spell, like NaN, is taken by the standard library alone.
        assert not wants_an_answer(raw)
        return
    assert isinstance(message, Request)
    answer = run(world.gate.answer(message.call))
    response = json.loads(envelope.write(message, answer))
    assert ("result" in response) != ("error" in response)
    assert response["id"] == message.id
    assert "limen" not in str(response.get("error", "")).lower()
    new_rows = house.audit_reader.size() - before
    is_counted = message.call.flaw is None and message.call.method in COUNTED
    assert new_rows == (0 if is_counted else 1)
    if not is_counted:
        [entry] = house.audit_reader.of_call(message.call.id)
        assert entry["state"] == "done"


def test_what_was_generated_leaves_a_trail_that_verifies(world: World, tmp_path: Path) -> None:
    from limen.store.verify import verify

    report = verify(world.house.store_path, expected_vkey=world.house.signer.vkey)
    assert report.finding is None
    assert report.rows == world.house.audit_reader.size()
