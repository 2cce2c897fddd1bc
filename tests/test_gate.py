"""The row of seven: order, faults, and exactly one row a call."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import Field

from houses import NOW, World, fails, open_desk, open_gate, run
from limen.catalogue import tool
from limen.errors import AuditError
from limen.gate import COUNTED, FAULT, UNAVAILABLE, UNRECORDED, WALKS, Row
from limen.store.audit import connection_of
from limen.store.desk import DeskTables
from limen.walk import Walk
from limen.words import Effect, Passed, Refused, Verdict, business
from promised import promise

Text = Annotated[str, Field(description="Any text.")]
DECISIONS = Row._fields[:-1]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with open_desk(tmp_path) as opened:
        yield opened


@dataclass(frozen=True)
class Recording:
    """A step that notes that it was asked, and then asks the real one."""

    name: str
    real: Any
    asked: list[str]

    async def decide(self, walk: Walk) -> Verdict:
        self.asked.append(self.name)
        return await self.real.decide(walk)


@dataclass(frozen=True)
class Faulty:
    async def decide(self, walk: Walk) -> Verdict:
        raise ValueError("cannot read the mind of `secret-argument`")


@dataclass(frozen=True)
class No:
    step: str

    async def decide(self, walk: Walk) -> Verdict:
        return Refused(self.step, "no", business("denied", "no"), "because the test says so")


@promise("row-order")
@pytest.mark.parametrize("method", [*WALKS, "made/up"])
def test_each_step_is_asked_in_its_turn(world: World, method: str) -> None:
    asked: list[str] = []
    watched = {name: Recording(name, getattr(world.row, name), asked) for name in DECISIONS}
    targets = {
        "tools/call": ("docs_read", {"path": "public/handbook.txt"}),
        "prompts/get": ("summarise_document", {"path": "public/handbook.txt"}),
        "resources/read": ("desk://documents/public/handbook.txt", None),
        "completion/complete": ("summarise_document", {"name": "path", "value": "p"}),
    }
    target, arguments = targets.get(method, (None, None))
    call = world.call(method, target=target, arguments=arguments)
    run(world.with_row(**watched).gate.answer(call))
    assert tuple(asked) == WALKS.get(method, ("d1_audience", "d2_budget"))


@promise("row-order")
@pytest.mark.parametrize("number", range(len(DECISIONS)))
def test_the_first_no_ends_the_walk_and_is_recorded_once(world: World, number: int) -> None:
    asked: list[str] = []
    watched: dict[str, Any] = {
        name: Recording(name, getattr(world.row, name), asked) for name in DECISIONS
    }
    name = DECISIONS[number]
    watched[name] = No(name)
    answer = world.with_row(**watched).ask("docs_update", path="drafts/x.txt", content="x")
    assert answer == business("denied", "no")
    assert tuple(asked) == DECISIONS[:number]
    [entry] = world.entries()
    assert (entry["decision"], entry["step"], entry["reason"]) == ("deny", name, "no")
    assert entry["private"] == "because the test says so"
    assert world.house.tables().read_document("drafts/x.txt") is None


@promise("fault-refuses")
@pytest.mark.parametrize("name", DECISIONS)
def test_a_fault_in_a_decision_refuses_and_is_recorded(world: World, name: str) -> None:
    answer = world.with_row(**{name: Faulty()}).ask("docs_update", path="drafts/x.txt", content="x")
    assert answer == (UNAVAILABLE if name == "d1_audience" else FAULT)
    [entry] = world.entries()
    assert (entry["decision"], entry["step"], entry["reason"]) == ("deny", name, "fault")
    assert entry["private"].startswith("ValueError at test_gate.py:")
    assert world.house.tables().read_document("drafts/x.txt") is None


@promise("audit-fails-closed")
@pytest.mark.parametrize(
    ("tool_name", "arguments"),
    [
        ("docs_read", {"path": "public/handbook.txt"}),
        ("docs_read", {"path": "private/customer-secrets.txt"}),
        ("docs_update", {"path": "drafts/x.txt", "content": "x"}),
        ("export", {"path": "public/handbook.txt", "destination": "partner"}),
        ("made_up", {}),
    ],
)
def test_nothing_leaves_when_the_row_cannot_be_written(
    world: World, tool_name: str, arguments: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.house.log.trail, "seal", fails(AuditError("the disk is full")))
    assert world.ask(tool_name, **arguments) == UNRECORDED
    monkeypatch.undo()
    assert world.entries() == []
    assert world.house.tables().read_document("drafts/x.txt") is None
    assert world.house.list_approvals(10) == []
    assert world.said("docs_read", path="public/handbook.txt")["ok"] is True
    assert len(world.entries()) == 1


@promise("one-row")
def test_every_ending_of_a_call_leaves_exactly_one_row(world: World) -> None:
    endings = [
        ("docs_read", {"path": "public/handbook.txt"}, "allow", "allowed"),
        ("docs_read", {"path": "public/none.txt"}, "allow", "not_found"),
        ("docs_read", {"path": "private/customer-secrets.txt"}, "deny", "denied"),
        ("docs_read", {"path": "public/../x"}, "deny", "invalid_path"),
        ("docs_read", {}, "deny", "missing_arguments"),
        ("made_up", {}, "deny", "unknown_tool"),
        ("docs_update", {"path": "drafts/x.txt", "content": "x"}, "allow", "allowed"),
        (
            "export",
            {"path": "public/handbook.txt", "destination": "partner"},
            "hold",
            "pending_approval",
        ),
    ]
    for tool_name, arguments, decision, reason in endings:
        before = len(world.entries())
        world.ask(tool_name, **arguments)
        [entry] = world.entries()[before:]
        assert (entry["tool"], entry["decision"], entry["reason"]) == (tool_name, decision, reason)
        assert entry["state"] == "done"


@promise("one-refusal")
def test_hidden_disabled_and_made_up_tools_get_one_and_the_same_answer(tmp_path: Path) -> None:
    def body(view: Any, *, text: Text) -> dict[str, Any]:
        """Say something."""
        return {"ok": True}

    hidden = tool(scope="other:read", title="Hidden", name="hidden")(body)
    off = replace(tool(scope="own:read", title="Off", name="off")(body), enabled=False)
    with open_gate(tmp_path, [hidden, off], scopes=frozenset({"own:read"})) as world:
        answers = [
            world.ask(name, **arguments)
            for name in ("hidden", "off", "made_up", "Hidden", "hidden ")
            for arguments in ({}, {"text": "x"}, {"text": 7}, {"other": 1})
        ]
        assert all(answer == answers[0] for answer in answers)
        problem = answers[0].problem
        assert problem is not None
        assert (problem.code, problem.message, problem.data) == (
            -32602,
            "no tool by that name is available to this caller",
            None,
        )
        reasons = [entry["reason"] for entry in world.entries()][::4]
        assert reasons == ["out_of_reach", "out_of_reach", *["unknown_tool"] * 3]


@promise("refused-costs-the-same")
def test_a_refused_call_costs_what_a_served_one_costs(tmp_path: Path) -> None:
    budget = {"capacity": 4, "refill_per_second": 0.5}
    with open_desk(tmp_path, budget=budget) as world:
        world.ask("docs_read", path="public/handbook.txt")
        world.ask("docs_read", path="private/customer-secrets.txt")
        world.ask("made_up")
        world.ask("docs_read", path=7)
        answer = world.ask("docs_read", path="public/handbook.txt")
        assert answer.result is not None
        assert answer.result["error"] == "over_budget"
        assert answer.result["retry_after_s"] == 2
        assert world.ask("made_up") == answer
        read = world.call("resources/read", target="desk://documents/public/handbook.txt")
        problem = run(world.gate.answer(read)).problem
        assert problem is not None
        assert (problem.code, problem.data) == (42900, {"retry_after_s": 2})
        world.clock.move(seconds=2)
        assert world.said("docs_read", path="public/handbook.txt")["ok"] is True


@promise("lists-are-counted")
def test_lists_and_handshakes_are_counted_and_cost_nothing(tmp_path: Path) -> None:
    with open_desk(tmp_path, budget={"capacity": 1, "refill_per_second": 0}) as world:
        for method in sorted(COUNTED):
            assert run(world.gate.answer(world.call(method))).result is not None
        assert world.entries() == []
        assert world.said("docs_read", path="public/handbook.txt")["ok"] is True
        counted = {row["method"]: row["requests"] for row in world.house.audit_reader.counts()}
        assert counted == dict.fromkeys(COUNTED, 1)


def test_the_owner_can_have_a_row_for_each_list(tmp_path: Path) -> None:
    with open_desk(tmp_path, audit={"rows_for_lists": True}) as world:
        run(world.gate.answer(world.call("tools/list")))
        assert [entry["method"] for entry in world.entries()] == ["tools/list"]


@promise("unknown-method")
def test_an_unknown_method_is_charged_and_written_down(tmp_path: Path) -> None:
    with open_desk(tmp_path, budget={"capacity": 1, "refill_per_second": 0}) as world:
        problem = run(world.gate.answer(world.call("made/up"))).problem
        assert problem is not None
        assert problem.code == -32601
        assert (world.last()["step"], world.last()["reason"]) == ("wire", "unknown_method")
        assert world.ask("docs_read", path="public/handbook.txt").code == "over_budget"


@promise("arguments-not-kept")
def test_the_trail_holds_digests_and_never_the_arguments(world: World, tmp_path: Path) -> None:
    secret = "correct-horse-battery-staple"
    world.ask("docs_update", path="drafts/x.txt", content="x", **{secret: secret})
    world.ask("docs_read", path=f"public/{secret}.txt")
    world.ask("tickets_get", ticket_id=secret)
    for address in (f"desk://documents/public/{secret}", f"desk://document/{secret}"):
        run(world.gate.answer(world.call("resources/read", target=address)))
    for body in world.house.audit_reader.all():
        assert secret not in body
    assert world.last()["arguments_digest"].startswith("sha-256:")
    assert len(world.last()["result_digest"]) == len("sha-256:") + 64


@promise("kept-fields")
def test_the_owner_can_list_arguments_to_keep(tmp_path: Path) -> None:
    with open_desk(tmp_path, audit={"keep": ["docs_update.path"]}) as world:
        world.ask("docs_update", path="drafts/x.txt", content="not this")
        assert world.last()["kept"] == {"path": "drafts/x.txt"}
        world.ask("docs_read", path="public/handbook.txt")
        assert "kept" not in world.last()


@dataclass
class Acts:
    """What the bodies below saw and did."""

    done: list[str]
    started: asyncio.Event | None = None


def acting(acts: Acts, world: list[World]) -> list[Any]:
    @tool(scope="own:act", title="Act outside", effect=Effect.OUTSIDE)
    async def act(view: Any, *, text: Text) -> dict[str, Any]:
        """Act where no transaction reaches."""
        acts.done.append(text)
        acts.done.append(str([entry["state"] for entry in world[0].entries()]))
        return {"ok": True}

    @tool(scope="own:act", title="Wait")
    async def wait(view: Any, *, text: Text) -> dict[str, Any]:
        """Wait for ever."""
        acts.done.append(text)
        if acts.started is not None:
            acts.started.set()
        await asyncio.Event().wait()
        return {"ok": True}

    @tool(scope="own:act", title="Break")
    def break_(view: Any, *, text: Text) -> dict[str, Any]:
        """Break while reading."""
        raise RuntimeError(f"cannot take {text}: `{text}`")

    @tool(scope="own:act", title="Break while writing", effect=Effect.STORE)
    def break_writing(view: Any, *, text: Text) -> dict[str, Any]:
        """Write, and break."""
        DeskTables(connection_of(view)).write_document("drafts/x.txt", text, "test", NOW)
        raise RuntimeError("cannot go on")

    @tool(scope="own:act", title="Say something that is not JSON")
    def unspeakable(view: Any, *, text: Text) -> dict[str, Any]:
        """Return what JSON has no word for."""
        return {"ok": object()}

    @tool(scope="own:x", title="Too large")
    def too_large(view: Any, *, text: Text) -> dict[str, Any]:
        """Return an integer that no JSON library of ours spells."""
        return {"ok": True, "number": 2**70}

    return [act, wait, break_, break_writing, unspeakable, too_large]


@pytest.fixture
def own(tmp_path: Path) -> Iterator[tuple[World, Acts]]:
    acts, worlds = Acts([]), []
    with open_gate(tmp_path, acting(acts, worlds)) as world:
        worlds.append(world)
        yield world, acts


@promise("durable-intent")
def test_an_act_outside_the_store_is_preceded_by_its_durable_intent(
    own: tuple[World, Acts],
) -> None:
    world, acts = own
    assert world.said("act", text="send") == {"ok": True}
    assert acts.done == ["send", "['started']"]
    started, done = world.entries()
    assert started["id"] == done["id"]
    assert (started["state"], done["state"]) == ("started", "done")
    assert started["result_digest"] == ""


@promise("durable-intent")
def test_an_act_is_not_done_when_its_intent_cannot_be_written(
    own: tuple[World, Acts], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, acts = own
    monkeypatch.setattr(world.house.log.trail, "seal", fails(AuditError("the disk is full")))
    assert world.ask("act", text="send") == UNRECORDED
    assert acts.done == []


@promise("cancelled-is-recorded")
def test_a_cancelled_call_leaves_one_row_that_says_so(own: tuple[World, Acts]) -> None:
    world, acts = own

    async def cancelled() -> None:
        acts.started = asyncio.Event()
        task = asyncio.create_task(
            world.gate.answer(world.call(target="wait", arguments={"text": "x"}))
        )
        await acts.started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(cancelled())
    world.house.log.close()
    [entry] = world.entries()
    assert (entry["tool"], entry["reason"], entry["state"]) == ("wait", "cancelled", "done")


@promise("handler-error-is-recorded")
def test_an_error_in_a_tool_is_one_row_and_its_text_stays_here(own: tuple[World, Acts]) -> None:
    world, _ = own
    assert world.ask("break_", text="my secret") == FAULT
    [entry] = world.entries()
    assert (entry["step"], entry["reason"]) == ("backend", "fault")
    assert "secret" not in str(entry)


@promise("write-and-row-together")
def test_a_write_that_breaks_is_undone_and_recorded(own: tuple[World, Acts]) -> None:
    world, _ = own
    assert world.ask("break_writing", text="x") == FAULT
    [entry] = world.entries()
    assert (entry["tool"], entry["decision"], entry["reason"]) == ("break_writing", "deny", "fault")
    assert world.house.tables().read_document("drafts/x.txt") is None


@pytest.mark.parametrize("name", ["unspeakable", "too_large"])
def test_a_result_that_is_not_json_is_a_fault(own: tuple[World, Acts], name: str) -> None:
    world, _ = own
    assert world.ask(name, text="x") == FAULT
    [entry] = world.entries()
    assert entry["reason"] == "fault"


@promise("identity-not-from-the-wire")
def test_nothing_on_the_wire_changes_who_calls(world: World) -> None:
    call = world.call(
        target="docs_read",
        arguments={"path": "private/customer-secrets.txt"},
        params={"caller": "owner", "_meta": {"user": "owner", "roles": ["owner"]}},
        client="owner/1",
    )
    assert run(world.gate.answer(call)).code == "denied"
    assert world.last()["caller"] == "local"


def test_a_step_that_passes_says_nothing(world: World) -> None:
    walk = Walk(world.call(target="docs_read", arguments={"path": "public/handbook.txt"}))
    for name in DECISIONS:
        assert run(getattr(world.row, name).decide(walk)) == Passed()
