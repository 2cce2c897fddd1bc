"""The table of the desk, row by row, through a real process, in every protocol revision."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from houses import open_desk
from limen.app import open_house
from limen.settings import Settings
from limen.transport.envelope import SUPPORTED
from promised import promise
from wire import serving

SPELLINGS = [
    "public/../private/customer-secrets.txt",
    "./public/handbook.txt",
    "public//handbook.txt",
    "/public/handbook.txt",
    "public\\handbook.txt",
    "public/%2e%2e/private/customer-secrets.txt",
    "public/handbook.txt.",
    "public/handbook.txt ",
    "public/hand\x00book.txt",
    "public/" + "x" * 2_000,
    "public/cafe\u0301.txt",
    "public/handbook.txt/",
]
ONE_REFUSAL = {"code": -32602, "message": "no tool by that name is available to this caller"}


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("seeded")
    with open_desk(data):
        pass
    settings = '[desk.destinations.partner]\nkind = "folder"\npath = "outgoing"\n'
    (data / "limen.toml").write_text(settings + 'groups = ["partners"]\n')
    return data


@pytest.fixture
def data(seeded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(seeded, tmp_path / "data"))


def entries(data: Path) -> list[dict[str, Any]]:
    """Reopen the store after the process has exited, and return what it wrote down."""
    with open_house(data, Settings()) as house:
        newest = house.audit_reader.newest(1_000)
    return [entry for entry in reversed(newest) if entry["method"] == "tools/call"]


def rows(data: Path) -> list[tuple[str, str]]:
    return [(entry["decision"], entry["reason"]) for entry in entries(data)]


@promise("side-by-side")
@pytest.mark.parametrize("revision", SUPPORTED)
def test_the_table_holds_row_by_row(data: Path, revision: str) -> None:
    with serving(data, revision) as desk:
        read = desk.said("docs_read", path="public/handbook.txt")
        assert read["ok"] is True
        assert read["content"].startswith("Handbook of the Example Workshop")
        denied = desk.call("docs_read", {"path": "private/customer-secrets.txt"})["result"]
        assert denied["structuredContent"]["error"] == "denied"
        assert (denied["structuredContent"]["ok"], denied["isError"]) == (False, False)
        for spelling in SPELLINGS:
            said = desk.said("docs_read", path=spelling)
            assert (said["ok"], said["error"]) == (False, "invalid_path"), spelling
        shapes: list[tuple[str, dict[str, Any]]] = [
            ("docs_read", {"path": "public/handbook.txt", "approved": True}),
            ("docs_read", {}),
            ("docs_read", {"path": 7}),
            ("docs_update", {"path": "drafts/big.txt", "content": "x" * 20_000}),
        ]
        for tool, arguments in shapes:
            assert desk.call(tool, arguments)["error"]["code"] == -32602
        assert desk.call("made_up", {"path": "x"})["error"] == ONE_REFUSAL
        ticket = desk.said("tickets_get", ticket_id="T-2001")
        assert (ticket["ok"], ticket["error"]) == (False, "denied")
        held = desk.said("export", path="public/handbook.txt", destination="partner")
        assert (held["ok"], held["error"]) == (False, "pending_approval")
        assert held["approval"] in held["decide"]
        assert desk.said("docs_read", path="drafts/big.txt")["error"] == "not_found"
        assert desk.leave() < 2
    assert rows(data) == [
        ("allow", "allowed"),
        ("deny", "denied"),
        *[("deny", "invalid_path")] * len(SPELLINGS),
        ("deny", "extra_arguments"),
        ("deny", "missing_arguments"),
        ("deny", "invalid_type"),
        ("deny", "invalid_arguments"),
        ("deny", "unknown_tool"),
        ("deny", "denied"),
        ("hold", "pending_approval"),
        ("allow", "not_found"),
    ]
    assert all(entry["policies"] for entry in entries(data) if entry["reason"] == "allowed")
    assert {entry["revision"] for entry in entries(data)} == {revision}


@promise("seen-twice")
def test_the_four_denials_are_found_in_order_after_the_process_has_exited(data: Path) -> None:
    with serving(data) as desk:
        for tool, arguments in (
            ("docs_read", {}),
            ("docs_read", {"path": 7}),
            ("docs_read", {"path": "public/handbook.txt", "approved": True}),
            ("docs_raed", {"path": "public/handbook.txt"}),
        ):
            assert desk.call(tool, arguments)["error"]["code"] == -32602
        desk.leave()
    assert rows(data) == [
        ("deny", "missing_arguments"),
        ("deny", "invalid_type"),
        ("deny", "extra_arguments"),
        ("deny", "unknown_tool"),
    ]


@promise("one-refusal")
def test_an_ungranted_tool_is_answered_like_one_that_never_existed(data: Path) -> None:
    with serving(data, LIMEN_LOCAL__GRANTS='["desk:read"]') as desk:
        listed = [tool["name"] for tool in desk.ask("tools/list")["result"]["tools"]]
        assert listed == ["docs_read", "tickets_get"]
        answers = [
            desk.call(name, arguments)["error"]
            for name in ("docs_update", "export", "made_up")
            for arguments in ({}, {"path": "drafts/a.txt", "content": "x"}, {"path": 7})
        ]
        assert answers == [ONE_REFUSAL] * 9
        desk.leave()
    assert [reason for _, reason in rows(data)] == ["out_of_reach"] * 6 + ["unknown_tool"] * 3


def test_the_tools_are_exactly_five_and_ask_for_no_identity(data: Path) -> None:
    with serving(data) as desk:
        tools = {tool["name"]: tool for tool in desk.ask("tools/list")["result"]["tools"]}
        desk.leave()
    assert sorted(tools) == [
        "docs_read",
        "docs_update",
        "export",
        "tickets_add_note",
        "tickets_get",
    ]
    assert sorted(tools["docs_update"]["inputSchema"]["properties"]) == ["content", "path"]
    for tool in tools.values():
        schema = tool["inputSchema"]
        assert schema["additionalProperties"] is False
        assert not {"approved", "caller", "user", "identity"} & set(schema["properties"])
        assert sorted(schema["required"]) == sorted(schema["properties"])
    hints = {name: tool["annotations"] for name, tool in tools.items()}
    assert [name for name in sorted(hints) if hints[name]["readOnlyHint"]] == [
        "docs_read",
        "tickets_get",
    ]
    assert [name for name in hints if hints[name]["openWorldHint"]] == ["export"]
    assert not any(hint["destructiveHint"] for hint in hints.values())
