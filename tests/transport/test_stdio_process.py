"""The wire as a client meets it: bad lines, cancelling, leaving, signals, and the official SDK."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from houses import open_desk
from limen.app import open_house
from limen.settings import Settings
from limen.store.verify import verify
from promised import promise
from wire import META, Child, serving

READ = {"name": "docs_read", "arguments": {"path": "public/handbook.txt"}}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stdio")
    with open_desk(folder):
        pass
    return folder


@pytest.fixture(scope="module")
def shared(data: Path) -> Iterator[Child]:
    with serving(data, LIMEN_BUDGET__CAPACITY="100000") as child:
        yield child


def count_rows(data: Path) -> int:
    with open_house(data, Settings()) as house:
        assert verify(house.store_path, expected_vkey=house.signer.vkey).finding is None
        return house.audit_reader.size()


@promise("bad-lines")
@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"not json", -32700),
        (b'{"jsonrpc":"2.0"', -32700),
        (b"\xff\xfe\xfd", -32700),
        (b"[]", -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600),
        (b"42", -32600),
        (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600),
        (b"[" * 100_000, -32700),
        (b'"' + b"x" * 10_000_000 + b'"', -32600),
    ],
    ids=lambda value: value[:20].decode("latin-1") if isinstance(value, bytes) else str(value),
)
def test_a_malformed_line_gets_its_error_and_the_next_is_served(
    shared: Child, line: bytes, code: int
) -> None:
    shared.send(line)
    response = shared.receive()
    assert (response["id"], response["error"]["code"]) == (None, code)
    assert shared.ask("tools/call", READ)["result"]["structuredContent"]["ok"] is True


@promise("bad-lines")
@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"   \r",
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "method": "notifications/made_up", "params": {"a": 1}},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "none"}},
        {"jsonrpc": "2.0", "method": "notifications/cancelled"},
        {"jsonrpc": "2.0", "id": 5, "result": {}},
        {"jsonrpc": "2.0", "id": 5, "error": {"code": 1, "message": "no"}},
    ],
)
def test_what_wants_no_answer_gets_none(shared: Child, message: Any) -> None:
    shared.send(message)
    assert shared.ask("tools/call", READ)["result"]["structuredContent"]["ok"] is True


def test_an_unknown_method_is_told_so_under_its_id(shared: Child) -> None:
    assert shared.ask("made/up")["error"]["code"] == -32601
    assert shared.ask("logging/setLevel", {"level": "debug"})["error"]["code"] == -32601
    assert shared.ask("subscriptions/listen")["error"]["code"] == -32601


def test_a_carriage_return_before_the_line_feed_is_blank(shared: Child) -> None:
    shared.send(b'{"jsonrpc":"2.0","id":"cr","method":"ping"}\r')
    assert shared.receive() == {"jsonrpc": "2.0", "id": "cr", "result": {}}


def test_many_calls_at_once_are_each_answered_under_their_id(shared: Child) -> None:
    ids = [shared.request("tools/call", READ) for _ in range(600)]
    answered = [shared.receive()["id"] for _ in ids]
    assert sorted(answered) == ids


def test_two_calls_under_one_id_are_not_mixed_up(shared: Child) -> None:
    same = {
        "jsonrpc": "2.0",
        "id": "same",
        "method": "tools/call",
        "params": {**READ, "_meta": META},
    }
    line = json.dumps(same).encode()
    shared.send(line + b"\n" + line)
    answers = [shared.receive(), shared.receive()]
    refused = [answer for answer in answers if answer["id"] is None]
    served = [answer for answer in answers if answer["id"] == "same"]
    assert len(served) >= 1
    assert all(answer["error"]["code"] == -32600 for answer in refused)
    assert len(refused) + len(served) == 2


@promise("clean-exit")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_within_two_seconds_with_all_written_down(
    tmp_path: Path, number: signal.Signals
) -> None:
    with open_desk(tmp_path):
        pass
    before = count_rows(tmp_path)
    with serving(tmp_path) as child:
        child.ask("tools/list")
        for _ in range(20):
            child.request("tools/call", READ)
        answered = sum(child.receive() is not None for _ in range(20))
        begun = time.monotonic()
        child.process.send_signal(number)
        assert child.process.wait(10) == 0
        assert time.monotonic() - begun < 2
    assert answered == 20
    assert count_rows(tmp_path) == before + 20


@promise("clean-exit")
def test_a_signal_under_a_flood_loses_no_answer_that_has_a_row(tmp_path: Path) -> None:
    with open_desk(tmp_path):
        pass
    before = count_rows(tmp_path)
    with serving(tmp_path, LIMEN_BUDGET__CAPACITY="1000000") as child:
        child.ask("tools/list")

        def flood() -> None:
            with contextlib.suppress(OSError):
                while True:
                    child.request("tools/call", READ)

        flooding = threading.Thread(target=flood)
        flooding.start()
        answered = sum(child.receive() is not None for _ in range(200))
        child.process.send_signal(signal.SIGTERM)
        while child.receive() is not None:
            answered += 1
        assert child.process.wait(10) == 0
        flooding.join(10)
    assert answered > 200
    assert count_rows(tmp_path) == before + answered


@promise("clean-exit")
def test_input_that_ends_in_the_middle_of_calls_loses_none(tmp_path: Path) -> None:
    with open_desk(tmp_path):
        pass
    before = count_rows(tmp_path)
    with serving(tmp_path) as child:
        child.ask("tools/list")
        for _ in range(40):
            child.request("tools/call", READ)
        assert child.leave() < 2
        answers = [child.receive() for _ in range(40)]
        assert all(answer["result"]["structuredContent"]["ok"] for answer in answers)
        assert child.receive() is None
    assert count_rows(tmp_path) == before + 40


@promise("clean-exit")
def test_a_client_that_is_gone_is_noticed_and_nothing_stays_half_done(tmp_path: Path) -> None:
    with open_desk(tmp_path):
        pass
    before = count_rows(tmp_path)
    with serving(tmp_path) as child:
        child.ask("tools/list")
        assert child.process.stdout is not None
        child.process.stdout.close()
        begun = time.monotonic()
        for _ in range(10):
            child.request("tools/call", READ)
        assert child.process.wait(10) == 0
        assert time.monotonic() - begun < 2.5
    assert count_rows(tmp_path) == before + 10


def test_nothing_but_messages_is_on_stdout_and_logs_are_on_stderr(tmp_path: Path) -> None:
    (tmp_path / "policies" / "desk").mkdir(parents=True)
    with serving(tmp_path) as child:
        assert child.said("docs_read", path="public/a.txt")["error"] == "denied"
        child.leave()
        assert child.receive() is None
        assert "everything is denied" in child.errors()


@promise("official-client")
@pytest.mark.parametrize("mode", ["2026-07-28", "auto", "legacy"])
def test_the_official_client_works_in_every_era(data: Path, mode: str) -> None:
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "limen", "serve", "desk", "--data", str(data)],
        env=dict(os.environ),
    )

    async def visit() -> dict[str, Any]:
        async with Client(stdio_client(server), mode=mode) as client:
            tools = await client.list_tools()
            read = await client.call_tool("docs_read", {"path": "public/handbook.txt"})
            denied = await client.call_tool("docs_read", {"path": "private/customer-secrets.txt"})
            resources = await client.list_resources()
            contents = await client.read_resource("desk://documents/public/handbook.txt")
            prompt = await client.get_prompt("summarise_document", {"path": "public/handbook.txt"})
            return {
                "tools": len(tools.tools),
                "read": read.structured_content["ok"],
                "denied": denied.structured_content["error"],
                "error": denied.is_error,
                "resources": len(resources.resources),
                "contents": contents.contents[0].text[:8],
                "prompt": prompt.messages[0].role,
            }

    assert asyncio.run(asyncio.wait_for(visit(), 30)) == {
        "tools": 5,
        "read": True,
        "denied": "denied",
        "error": False,
        "resources": 3,
        "contents": "Handbook",
        "prompt": "user",
    }


@promise("executed-once")
def test_a_server_sends_what_was_approved_and_left_while_it_serves(tmp_path: Path) -> None:
    with open_desk(tmp_path) as world:
        assert world.desk is not None
        export = {"path": "public/handbook.txt", "destination": "partner"}
        held = world.said("export", **export)
        world.desk.review.approve(str(held["approval"]), by="boss")
    with serving(tmp_path) as child:
        for _ in range(200):
            assert child.said("docs_read", path="public/handbook.txt")["ok"] is True
            if any((tmp_path / "outgoing").iterdir()):
                break
        child.leave()
        assert child.errors() == ""
    assert len(list((tmp_path / "outgoing").iterdir())) == 1


@promise("bounded-memory")
def test_a_client_that_never_reads_is_held_back_and_fills_no_memory(tmp_path: Path) -> None:
    with open_desk(tmp_path):
        pass
    with serving(tmp_path) as child:
        child.ask("tools/list")
        assert child.process.stdin is not None
        os.set_blocking(child.process.stdin.fileno(), False)
        line = json.dumps({"jsonrpc": "2.0", "method": "tools/list", "params": {"_meta": META}})
        held_since = time.monotonic()
        number, sent_at_last = 0, time.monotonic()
        until = time.monotonic() + 15
        rest = b""
        while time.monotonic() < until and time.monotonic() - sent_at_last < 1:
            if not rest:
                number += 1
                rest = line.replace("{", f'{{"id": "n{number}", ', 1).encode() + b"\n"
            written = child.process.stdin.write(rest)
            if written:
                rest, sent_at_last = rest[written:], time.monotonic()
            else:
                select.select([], [child.process.stdin], [], 0.1)
        assert time.monotonic() - sent_at_last >= 1, "the client was never held back"
        assert time.monotonic() - held_since < 15
        status = Path(f"/proc/{child.process.pid}/status").read_text()
        assert int(status.partition("VmHWM:")[2].split()[0]) < 150_000
        answered = 0
        while answered < number - 1:
            assert "result" in child.receive()
            answered += 1
