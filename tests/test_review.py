"""A call that is held, the person who decides, and what leaves the house."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from houses import PARTNER, World, open_desk
from limen.app import Desk, build_desk
from limen.errors import ApprovalError
from limen.servers.desk.tools import export as export_tool
from limen.settings import Settings
from promised import promise

EXPORT = {"path": "public/handbook.txt", "destination": "partner"}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with open_desk(tmp_path) as opened:
        yield opened


def desk_of(world: World) -> Desk:
    assert world.desk is not None
    return world.desk


def asked(world: World, **arguments: str) -> str:
    said = world.said("export", **{**EXPORT, **arguments})
    assert said["error"] == "pending_approval", said
    return str(said["approval"])


def refusal(world: World, approval_id: str, by: str = "boss") -> str:
    with pytest.raises(ApprovalError) as caught:
        desk_of(world).review.approve(approval_id, by=by)
    return caught.value.code


def sent(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "outgoing").iterdir())


@promise("held")
def test_an_export_waits_for_a_person_and_says_where_one_can_decide(
    world: World, tmp_path: Path
) -> None:
    said = world.said("export", **EXPORT)
    assert (said["ok"], said["error"]) == (False, "pending_approval")
    assert said["decide"] == f"limen approvals show {said['approval']}"
    [entry] = world.entries()
    assert (entry["decision"], entry["reason"]) == ("hold", "pending_approval")
    assert entry["approval"] == said["approval"]
    assert desk_of(world).drain() == {}
    assert sent(tmp_path) == []


@promise("same-approval")
def test_the_same_call_again_is_told_of_the_same_approval(world: World) -> None:
    assert asked(world) == asked(world)
    assert len(world.house.list_approvals(10)) == 1


@promise("executed-once")
def test_what_a_person_approves_is_sent_once_and_the_caller_gets_its_outcome(
    world: World, tmp_path: Path
) -> None:
    approval_id = asked(world)
    approved = desk_of(world).review.approve(approval_id, by="boss", reason="fine")
    assert approved.state == "approved"
    assert world.said("export", **EXPORT)["state"] == "queued"
    assert desk_of(world).drain() == {"delivered": 1}
    assert desk_of(world).drain() == {}
    [name] = sent(tmp_path)
    text = (tmp_path / "outgoing" / name).read_text()
    assert text.startswith("Handbook of the Example Workshop")
    said = world.said("export", **EXPORT)
    assert (said["ok"], said["state"], said["approval"]) == (True, "delivered", approval_id)
    assert desk_of(world).drain() == {}
    assert sent(tmp_path) == [name]


@promise("linked-by-approval")
def test_request_decision_and_outcome_are_linked_in_the_trail(world: World) -> None:
    approval_id = asked(world)
    desk_of(world).review.approve(approval_id, by="boss")
    desk_of(world).drain()
    linked = [
        (entry["method"], entry["caller"], entry["decision"], entry["reason"], entry["state"])
        for entry in world.entries()
        if entry["approval"] == approval_id
    ]
    assert linked == [
        ("tools/call", "local", "hold", "pending_approval", "done"),
        ("approvals/approve", "boss", "allow", "approved", "done"),
        ("outbox/deliver", "local", "allow", "sending", "started"),
        ("outbox/deliver", "local", "allow", "delivered", "done"),
    ]


@promise("second-use")
def test_an_approval_cannot_be_used_twice(world: World) -> None:
    approval_id = asked(world)
    desk_of(world).review.approve(approval_id, by="boss")
    assert refusal(world, approval_id) == "decided"
    assert desk_of(world).drain() == {"delivered": 1}
    assert refusal(world, approval_id) == "decided"
    entry = world.last()
    assert (entry["decision"], entry["reason"]) == ("deny", "decided")


@promise("not-the-requester")
def test_nobody_approves_what_they_asked_for(world: World) -> None:
    approval_id = asked(world)
    assert refusal(world, approval_id, by="local") == "own_request"
    assert world.house.find_approval(approval_id) is not None
    assert world.said("export", **EXPORT)["approval"] == approval_id


def test_a_rejected_call_is_told_so_and_nothing_leaves(world: World, tmp_path: Path) -> None:
    approval_id = asked(world)
    desk_of(world).review.reject(approval_id, by="boss", reason="not to them")
    said = world.said("export", **EXPORT)
    assert (said["error"], said["reason"]) == ("rejected", "not to them")
    assert refusal(world, approval_id) == "decided"
    assert desk_of(world).drain() == {}
    assert sent(tmp_path) == []


@promise("bound-to-every-byte")
def test_a_newer_document_is_another_approval_and_ends_the_old_one(
    world: World, tmp_path: Path
) -> None:
    first = asked(world)
    world.ask("docs_update", path="public/handbook.txt", content="newer")
    assert refusal(world, first) == "conflict"
    second = asked(world)
    assert second != first
    desk_of(world).review.approve(second, by="boss")
    desk_of(world).drain()
    [name] = sent(tmp_path)
    assert (tmp_path / "outgoing" / name).read_text() == "newer"


@promise("bound-to-every-byte")
def test_other_arguments_are_another_approval(world: World) -> None:
    assert asked(world) != asked(world, path="public/opening-hours.md")


@promise("bound-to-every-byte")
def test_changed_rules_end_what_waits(world: World, tmp_path: Path) -> None:
    first = asked(world)
    rules = tmp_path / "policies" / "desk" / "10-staff.cedar"
    rules.write_text(rules.read_text() + "\n// a comment is a change too\n")
    world.clock.move(seconds=5)
    assert asked(world) != first
    assert refusal(world, first) == "conflict"


@promise("bound-to-every-byte")
def test_a_changed_definition_of_the_tool_ends_what_waits(world: World) -> None:
    first = asked(world)
    catalogue = desk_of(world).catalogue
    changed = replace(export_tool, description="Send it, and more.")
    tools = {**catalogue.tools, "export": changed}
    review = replace(desk_of(world).review, catalogue=replace(catalogue, tools=tools))
    with pytest.raises(ApprovalError) as caught:
        review.approve(first, by="boss")
    assert caught.value.code == "conflict"


@promise("expires")
def test_an_approval_that_nobody_decides_expires_and_the_call_asks_again(world: World) -> None:
    first = asked(world)
    world.clock.move(hours=24)
    assert refusal(world, first) == "expired"
    assert world.said("export", **EXPORT)["error"] == "expired"
    assert asked(world) != first


@promise("expires")
def test_the_caller_is_told_once_that_it_expired(world: World) -> None:
    first = asked(world)
    world.clock.move(hours=24)
    said = world.said("export", **EXPORT)
    assert (said["error"], said["approval"]) == ("expired", first)
    assert (world.last()["decision"], world.last()["reason"]) == ("deny", "expired")
    assert asked(world) != first


def test_nobody_is_asked_to_send_what_is_not_there(world: World) -> None:
    said = world.said("export", path="public/none.txt", destination="partner")
    assert said["error"] == "not_found"
    assert world.house.list_approvals(10) == []
    assert (world.last()["decision"], world.last()["reason"]) == ("allow", "not_found")


def test_an_approval_that_is_not_there_is_an_error_with_a_row(world: World) -> None:
    assert refusal(world, "ap-none") == "not_found"
    assert (world.last()["method"], world.last()["reason"]) == ("approvals/approve", "not_found")


@pytest.mark.parametrize("destination", ["archive", "nowhere"])
def test_rules_decide_where_something_may_be_sent(tmp_path: Path, destination: str) -> None:
    places: dict[str, Any] = {
        "archive": {"kind": "folder", "path": "archive", "groups": ["others"]}
    }
    with open_desk(tmp_path, desk={"destinations": places}) as world:
        said = world.said("export", path="public/handbook.txt", destination=destination)
        assert said["error"] == "denied"


def test_a_delivery_that_fails_is_told_to_the_caller_as_failed(
    world: World, tmp_path: Path
) -> None:
    approval_id = asked(world)
    desk_of(world).review.approve(approval_id, by="boss")
    (tmp_path / "outgoing").rmdir()
    assert desk_of(world).drain() == {"failed": 1}
    said = world.said("export", **EXPORT)
    assert (said["ok"], said["error"]) == (False, "failed")


@promise("executed-once")
def test_a_kill_between_the_yes_and_the_delivery_loses_nothing(
    world: World, tmp_path: Path
) -> None:
    approval_id = asked(world)
    desk_of(world).review.approve(approval_id, by="boss")
    # The process that approved is gone; another one opens the same house and drains.
    other = build_desk(world.house)
    assert other.has_something_to_send()
    assert other.drain() == {"delivered": 1}
    assert len(sent(tmp_path)) == 1


def repointed(world: World, tmp_path: Path) -> Desk:
    """Put the desk together again after the owner has changed where `partner` leads."""
    (tmp_path / "elsewhere").mkdir()
    return desk_with(world, desk={"destinations": {"partner": ELSEWHERE}})


ELSEWHERE = {"kind": "folder", "path": "elsewhere", "groups": ["partners"]}


def desk_with(world: World, **settings: Any) -> Desk:
    return build_desk(replace(world.house, settings=Settings(**settings)))


@promise("bound-to-every-byte")
def test_a_destination_that_leads_elsewhere_ends_what_waits(world: World, tmp_path: Path) -> None:
    approval_id = asked(world)
    changed = repointed(world, tmp_path)
    with pytest.raises(ApprovalError) as caught:
        changed.review.approve(approval_id, by="boss")
    assert caught.value.code == "conflict"
    assert changed.drain() == {}
    assert list((tmp_path / "elsewhere").iterdir()) == []


@promise("bound-to-every-byte")
def test_what_was_approved_goes_where_it_was_approved_for_or_nowhere(
    world: World, tmp_path: Path
) -> None:
    desk_of(world).review.approve(asked(world), by="boss")
    assert repointed(world, tmp_path).drain() == {"failed": 1}
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert sent(tmp_path) == []


@promise("bound-to-every-byte")
@pytest.mark.parametrize(
    "settings",
    [
        {"local": {"grants": ["desk:read"]}, "desk": {"destinations": PARTNER}},
        {"local": {"roles": []}, "desk": {"destinations": PARTNER}},
        {"local": {"id": "another"}, "desk": {"destinations": PARTNER}},
        {"desk": {"destinations": {"partner": {**PARTNER["partner"], "groups": []}}}},
    ],
)
def test_rights_that_were_taken_away_end_what_waits(
    world: World, tmp_path: Path, settings: dict[str, Any]
) -> None:
    approval_id = asked(world)
    with pytest.raises(ApprovalError) as caught:
        desk_with(world, **settings).review.approve(approval_id, by="boss")
    assert caught.value.code == "conflict"
    assert desk_of(world).drain() == {}
    assert sent(tmp_path) == []


@promise("not-the-requester")
def test_a_name_in_capitals_is_the_same_person(world: World) -> None:
    assert refusal(world, asked(world), by="LOCAL") == "own_request"


def test_a_document_with_a_long_name_arrives_under_a_shorter_one(
    world: World, tmp_path: Path
) -> None:
    path = "drafts/" + "漢" * 96 + ".txt"
    world.ask("docs_update", path=path, content="long")
    desk_of(world).review.approve(asked(world, path=path), by="boss")
    assert desk_of(world).drain() == {"delivered": 1}
    [name] = sent(tmp_path)
    assert name.endswith("漢.txt")
    assert (tmp_path / "outgoing" / name).read_text() == "long"
