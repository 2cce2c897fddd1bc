"""The commands as an owner gives them, each in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from houses import open_desk
from promised import promise
from wire import limen

SETTINGS = (
    '[desk.destinations.partner]\nkind = "folder"\npath = "outgoing"\ngroups = ["partners"]\n'
)


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("seeded")
    with open_desk(data) as world:
        world.ask("docs_read", path="public/handbook.txt")
        world.ask("docs_read", path="private/customer-secrets.txt")
    (data / "limen.toml").write_text(SETTINGS)
    return data


@pytest.fixture
def data(seeded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(seeded, tmp_path / "data"))


def said(data: Path, *words: str, expected: int = 0) -> str:
    done = limen(*words, "--data", str(data))
    assert done.returncode == expected, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done.stdout


def said_json(data: Path, *words: str, expected: int = 0) -> Any:
    return json.loads(said(data, *words, "--json", expected=expected))


@promise("executed-once")
def test_an_export_waits_and_is_sent_once_after_a_person_approves(data: Path) -> None:
    export = ("call", "desk", "export", "path=public/handbook.txt", "destination=partner")
    held = said_json(data, *export, expected=1)["result"]["structuredContent"]
    assert held["error"] == "pending_approval"
    approval = held["approval"]
    assert said(data, "approvals", "list", "--state", "pending").startswith(f"{approval}\tpending")
    shown = said_json(data, "approvals", "show", approval)
    assert shown["content"].startswith("Handbook of the Example Workshop")
    assert shown["arguments"] == {"path": "public/handbook.txt", "destination": "partner"}
    assert said(data, "approvals", "approve", approval, "--as", "boss").splitlines() == [
        f"approved: {approval}",
        f"delivered: {approval}",
    ]
    assert len(list((data / "outgoing").iterdir())) == 1
    done = limen("approvals", "approve", approval, "--as", "boss", "--data", str(data))
    assert (done.returncode, done.stderr) == (1, "limen: it is `delivered` already\n")
    outcome = said_json(data, *export)["result"]["structuredContent"]
    assert (outcome["ok"], outcome["state"]) == (True, "delivered")
    assert len(list((data / "outgoing").iterdir())) == 1


def test_a_delivery_that_fails_says_why(data: Path) -> None:
    export = ("call", "desk", "export", "path=public/handbook.txt", "destination=partner")
    approval = said_json(data, *export, expected=1)["result"]["structuredContent"]["approval"]
    outgoing = data / "outgoing"
    outgoing.rmdir()
    outgoing.write_text("no folder")
    lines = said(data, "approvals", "approve", approval, "--as", "boss", expected=1).splitlines()
    assert lines[1] == f"failed: {approval}"
    assert lines[2].startswith("because: ")
    assert "folder" in lines[2]


def test_the_requester_cannot_approve_and_a_rejection_reaches_the_caller(data: Path) -> None:
    export = ("call", "desk", "export", "path=public/handbook.txt", "destination=partner")
    approval = said_json(data, *export, expected=1)["result"]["structuredContent"]["approval"]
    done = limen("approvals", "approve", approval, "--as", "local", "--data", str(data))
    assert done.returncode == 1
    assert "someone else decides" in done.stderr
    said(data, "approvals", "reject", approval, "--reason", "not to them", "--as", "boss")
    assert "not to them" in said(data, *export, expected=1)


@promise("offline-verify")
def test_a_trail_verifies_from_a_copy_and_an_edit_is_found(data: Path, tmp_path: Path) -> None:

    entries = said_json(data, "audit", "list")["entries"]
    copy = tmp_path / "copy.db"
    shutil.copy(data / "limen.db", copy)
    key = str(data / "audit.key.pub")
    report = json.loads(limen("audit", "verify", str(copy), "--key", key, "--json").stdout)
    assert (report["ok"], report["rows"]) == (True, len(entries))
    checkpoint = tmp_path / "checkpoint"
    checkpoint.write_text(said(data, "audit", "checkpoint"))
    with closing(sqlite3.connect(copy, isolation_level=None)) as store:
        store.execute("UPDATE audit_entry SET body = replace(body, 'deny', 'allow') WHERE seq = 2")
    done = limen(
        "audit", "verify", str(copy), "--key", key, "--checkpoint", str(checkpoint), "--json"
    )
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert (found["ok"], found["finding"], found["seq"]) == (False, "edited", 2)


@promise("inclusion-proof")
def test_an_entry_is_proven_to_someone_who_sees_no_other(data: Path, tmp_path: Path) -> None:
    entry = said_json(data, "audit", "list", "--tool", "docs_read")["entries"][0]
    out = tmp_path / "proof"
    body, proof = said(data, "audit", "proof", entry["id"], "--out", str(out)).splitlines()
    key = (data / "audit.key.pub").read_text().strip()
    shutil.rmtree(data)
    done = limen("audit", "proof", "--check", proof, body, "--key", key)
    assert done.stdout == "the entry is in the log of size 3\n", done.stderr
    Path(body).write_text(Path(body).read_text().replace("deny", "allow"))
    assert limen("audit", "proof", "--check", proof, body, "--key", key).returncode == 1


def test_the_trail_is_listed_shown_and_exported(data: Path) -> None:
    lines = said(data, "audit", "list", "--decision", "deny").splitlines()
    assert [line.split("\t")[5:7] for line in lines] == [["deny", "denied"]]
    row_id = lines[0].split("\t")[1]
    assert "reason: denied" in said(data, "audit", "show", row_id).splitlines()
    exported = [json.loads(line) for line in said(data, "audit", "export").splitlines()]
    assert [entry["seq"] for entry in exported] == [0, 1, 2]


def test_rules_are_checked_and_explained(data: Path) -> None:
    assert said_json(data, "policy", "check")["policies"] == 8
    why = said_json(data, "policy", "explain", "docs_read", "path=private/customer-secrets.txt")
    assert (why["answer"], [one["id"] for one in why["decided"]]) == (
        "denied",
        ["private-is-the-owners"],
    )
    assert why["decided"][0]["place"] == "30-owner.cedar:5"
    owner = ("--caller", "ann", "--role", "owner")
    asked = ("policy", "explain", "docs_read", "path=private/customer-secrets.txt")
    assert said_json(data, *asked, *owner)["answer"] == "allowed"
    row = said_json(data, "audit", "list", "--decision", "deny")["entries"][0]["id"]
    of_call = said_json(data, "policy", "explain", "--call", row)
    assert [one["id"] for one in of_call["decided"]] == ["private-is-the-owners"]


def test_a_folder_is_imported_and_says_what_it_left_out(data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    for number in range(450):
        (folder / f"note-{number}.txt").write_text(f"note {number}")
    (folder / "picture.png").write_bytes(b"\x89PNG")
    (folder / ".hidden").write_text("x")
    done = limen("desk", "import", str(folder), "--data", str(data))
    assert done.stdout == "450 written, 0 unchanged, 2 skipped\n"
    assert "skipped public/picture.png: its name does not end like a text file's" in done.stderr
    assert said(data, "desk", "import", str(folder)) == "0 written, 450 unchanged, 2 skipped\n"
    read = said_json(data, "call", "desk", "docs_read", "path=public/note-7.txt")
    assert read["result"]["structuredContent"]["content"] == "note 7"


def test_tickets_are_imported_from_a_table(data: Path, tmp_path: Path) -> None:
    table = tmp_path / "tickets.csv"
    table.write_text("id,subject,status,assignee,requester\nT-77,Mine,open,local,\nX,Bad,open,,\n")
    assert said(data, "desk", "import", "--csv", str(table)).startswith("1 written")
    ticket = said_json(data, "call", "desk", "tickets_get", "ticket_id=T-77")
    assert ticket["result"]["structuredContent"]["subject"] == "Mine"


def test_doctor_looks_and_changes_nothing(data: Path, tmp_path: Path) -> None:
    states = {one["what"]: one["state"] for one in said_json(data, "doctor")}
    assert set(states.values()) <= {"ok", "warn"}
    assert states["trail"] == "ok"
    nowhere = tmp_path / "nowhere"
    said(nowhere, "doctor")
    assert not nowhere.exists()
    (data / "audit.key").chmod(0o644)
    said(data, "doctor", expected=1)


def test_what_only_reads_makes_no_store(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    for words in (("audit", "list"), ("audit", "verify"), ("approvals", "list")):
        done = limen(*words, "--data", str(nowhere))
        assert done.returncode == 1
        assert done.stderr.startswith("limen: no store in `")
    assert not nowhere.exists()


@promise("wrong-settings")
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            "[budget]\ncapacty = 3\n",
            "there is no setting `budget.capacty`: write `budget.capacity`",
        ),
        ('[budget]\ncapacity = "many"\n', "setting `budget.capacity` does not fit"),
        ("[budget\n", "cannot read settings"),
        ('[local]\nid = "two words"\n', 'write for example `id = "local"`'),
        ('[audit]\nkeep = ["docs_read.password"]\n', "names a secret, which is never kept"),
        ('[audit]\nkeep = ["docs_read.pth"]\n', "is no argument of a tool: write some of"),
        ('[desk.destinations.a]\nkind = "mail"\n', "setting `desk.destinations.a` does not fit"),
        (
            '[desk.destinations.a]\nkind = "http"\nurl = "http://example.com"\nhosts = []\n',
            "is not allowed: add `example.com` to the allowed hosts",
        ),
        ('[desk]\npolicies = "none"\n', "cannot read policies in"),
    ],
)
def test_a_wrong_setting_stops_the_start_with_one_line(
    tmp_path: Path, settings: str, expected: str
) -> None:
    (tmp_path / "limen.toml").write_text(settings)
    done = limen("serve", "desk", "--data", str(tmp_path), input="")
    assert done.returncode in (1, 2)
    assert expected in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_a_data_folder_that_is_a_file_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = limen("serve", "desk", "--data", str(tmp_path / "file"), input="")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("limen: cannot make folder `")


@promise("wrong-policies")
def test_a_wrong_rule_stops_the_start_with_file_line_and_reason(data: Path) -> None:
    rules = data / "policies" / "desk"
    (rules / "50-own.cedar").write_text(
        '@id("x")\npermit (principal, action, resource)\nwhen { fly };'
    )
    done = limen("serve", "desk", "--data", str(data), input="")
    assert done.returncode == 1
    assert done.stderr.startswith("limen: policy file `50-own.cedar` line 3: ")
    assert done.stderr.count("\n") == 1
    assert said(data, "policy", "check", expected=1) == ""


@pytest.mark.parametrize(
    "words",
    [
        ("serve", "nothing"),
        ("call", "nothing", "x"),
        ("call", "desk", "docs_read", "path"),
        ("call", "desk", "docs_read", "path:=nope"),
        ("call", "desk", "docs_read", "path=a", "path=b"),
        ("call", "desk", "docs_read", "path=@/no/such/file"),
        ("audit", "list", "--decision", "maybe"),
        ("audit", "list", "--limit", "0"),
        ("approvals", "list", "--state", "odd"),
        ("approvals", "reject", "ap-x"),
        ("policy", "explain"),
        ("desk", "import"),
        ("nonsense",),
    ],
)
def test_a_wrong_command_line_is_told_and_ends_with_two(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    done = limen(*words, "--data", str(tmp_path)) if words != ("nonsense",) else limen(*words)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("audit", "show", "none"), "no entry has id `none`"),
        (("audit", "proof", "none"), "no entry has id `none`"),
        (("approvals", "show", "ap-none"), "there is no approval `ap-none`"),
        (("approvals", "approve", "ap-none"), "there is no such approval"),
        (("policy", "explain", "fly"), "there is no tool `fly`: write one of"),
        (("policy", "explain", "docs_read"), "argument `path` is missing"),
        (("policy", "explain", "docs_read", "path=../x"), "the arguments name nothing"),
        (("desk", "import", "/no/such/folder"), "it is not a folder"),
        (("audit", "verify", "/no/such/file"), "there is no such file"),
    ],
)
def test_what_is_not_there_is_told_in_one_line(
    data: Path, words: tuple[str, ...], expected: str
) -> None:
    done = limen(*words, "--data", str(data))
    assert done.returncode == 1
    assert expected in done.stderr
    assert done.stderr.count("\n") == 1


def test_text_from_outside_cannot_act_on_a_terminal(data: Path) -> None:
    done = limen("call", "desk", "\x1b[31m[bold]red", "--data", str(data))
    assert done.returncode == 1
    listed = said(data, "audit", "list")
    assert "\x1b" not in listed
    assert "\\x1b[31m[bold]red" in listed


def test_a_reader_that_leaves_early_is_no_error(data: Path) -> None:
    command = f"{sys.executable} -m limen audit export --data {data} | head -c 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("{", "")


def test_the_rules_of_each_server_are_checked_by_its_own_schema(data: Path) -> None:
    assert limen("serve", "ecb", "--data", str(data), stdin=subprocess.DEVNULL).returncode == 0
    assert said_json(data, "policy", "check", "--server", "ecb")["policies"] == 1
    (data / "policies" / "ecb" / "20-own.cedar").write_text(
        '@id("x") permit (principal, action == Action::"docs_read", resource);'
    )
    assert limen("policy", "check", "--server", "ecb", "--data", str(data)).returncode == 1
    assert said_json(data, "policy", "check")["policies"] >= 8
    states = [one for one in said_json(data, "doctor", expected=1) if one["state"] == "fail"]
    assert [one["what"] for one in states] == ["rules"]


def test_a_source_that_is_gone_is_named_with_the_one_that_took_its_place(data: Path) -> None:
    gone = {**os.environ, "LIMEN_ECB__BASE_URL": "https://sdw-wsrest.ecb.europa.eu"}
    done = limen("serve", "ecb", "--data", str(data), env=gone)
    assert done.returncode == 1
    assert "set `base_url` to `https://data-api.ecb.europa.eu`" in done.stderr
