"""What a person or a machine can get wrong around the commands: one line, and nothing done."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from limen.cli.session import person
from limen.errors import LimenError
from wire import limen

ODD = "before\u009b31m\u202eafter\n"
"""Text with a C1 control and a turned reading order, as a stranger may write it."""


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("odd")
    (folder / "odd.txt").write_text(ODD, encoding="utf-8")
    data = tmp_path_factory.mktemp("edges") / "data"
    assert limen("desk", "seed", "--data", str(data)).returncode == 0
    assert limen("desk", "import", str(folder), "--data", str(data)).returncode == 0
    return data


@pytest.fixture
def data(seeded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(seeded, tmp_path / "data"))


def told(expected: int, *words: str, **more: Any) -> str:
    """Run a command that must end in one line, and return the line."""
    done = limen(*words, **more)
    assert (done.returncode, done.stdout) == (expected, ""), done.stderr
    assert done.stderr.startswith("limen: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_a_wrong_log_level_stops_the_start_with_what_to_write(tmp_path: Path) -> None:
    environment = {**os.environ, "LIMEN_LOG": "loud"}
    line = told(2, "serve", "desk", "--data", str(tmp_path / "data"), env=environment, input="")
    assert "`LIMEN_LOG` is `loud`: write one of `DEBUG`" in line
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("closed", ["<&-", ">&-"])
def test_a_desk_without_a_wire_is_not_served(tmp_path: Path, closed: str) -> None:
    command = f'"$0" -m limen serve desk --data "$1" {closed}'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable, str(tmp_path / "data")],
        input="",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (
        1,
        "limen: cannot serve: stdin or stdout is closed\n",
    )
    assert not (tmp_path / "data").exists()


def test_a_requester_with_a_blank_added_is_nobody_else(data: Path) -> None:
    (data / "limen.toml").write_text(
        '[desk.destinations.partner]\nkind = "folder"\npath = "outgoing"\ngroups = ["partners"]\n'
    )
    (data / "outgoing").mkdir(exist_ok=True)
    export = ("export", "path=public/handbook.txt", "destination=partner")
    held = limen("call", "desk", *export, "--json", "--data", str(data))
    approval = json.loads(held.stdout)["result"]["structuredContent"]["approval"]
    for name in ("local ", ""):
        done = limen("approvals", "approve", approval, "--as", name, "--data", str(data))
        assert done.returncode == 2
    shown = limen("approvals", "show", approval, "--json", "--data", str(data))
    assert json.loads(shown.stdout)["state"] == "pending"
    assert list((data / "outgoing").iterdir()) == []


def test_a_user_without_a_name_is_asked_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr(getpass, "getuser", nameless)
    with pytest.raises(LimenError, match="say who you are with `--as NAME`"):
        person(None)
    assert person("boss") == "boss"


def test_a_question_about_the_rules_makes_no_store(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    asked = ("policy", "explain", "docs_read", "path=public/handbook.txt")
    assert "no store in `" in told(1, *asked, "--data", str(nowhere))
    assert not nowhere.exists()


def test_a_proof_that_cannot_be_written_is_told_in_one_line(data: Path, tmp_path: Path) -> None:
    listed = limen("audit", "list", "--json", "--data", str(data))
    row_id = json.loads(listed.stdout)["entries"][0]["id"]
    taken = tmp_path / "taken"
    taken.write_text("mine")
    line = told(1, "audit", "proof", row_id, "--out", str(taken), "--data", str(data))
    assert line == f"limen: cannot use `{taken}`: file exists\n"
    assert taken.read_text() == "mine"


def test_a_message_that_quotes_what_came_stays_one_line_of_text(data: Path) -> None:
    line = told(1, "audit", "show", "\x1b[31mred\nline", "--data", str(data))
    assert "`\\x1b[31mred\\nline`" in line


def test_json_for_programs_is_ascii_and_keeps_every_character(data: Path) -> None:
    read = ("call", "desk", "docs_read", "path=public/odd.txt", "--data", str(data))
    as_json = limen(*read, "--json").stdout
    assert as_json.isascii()
    assert json.loads(as_json)["result"]["structuredContent"]["content"] == ODD
    assert "before\\x9b31m\\u202eafter" in limen(*read).stdout


def test_tools_are_listed_and_a_tool_is_not_also_called(data: Path) -> None:
    listed = limen("call", "desk", "--list", "--data", str(data))
    tools = [line.split("\t")[0] for line in listed.stdout.splitlines()]
    assert tools == ["docs_read", "docs_update", "export", "tickets_add_note", "tickets_get"]
    both = limen("call", "desk", "docs_read", "--list", "--data", str(data))
    assert (both.returncode, both.stdout) == (2, "")


def test_an_argument_nested_too_deep_is_a_wrong_command_line(tmp_path: Path) -> None:
    deep = "path:=" + "[" * 50_000
    done = limen("call", "desk", "docs_read", deep, "--data", str(tmp_path))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_doctor_fails_where_the_data_folder_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_text("mine")
    done = limen("doctor", "--json", "--data", str(file))
    assert done.returncode == 1
    seen = {one["what"]: one for one in json.loads(done.stdout)}
    assert seen["data"]["state"] == "fail"
    assert file.read_text() == "mine"


@pytest.mark.parametrize("name", ["outgoing", "outbox.lock", "policies/desk", "limen.db"])
def test_doctor_fails_where_serving_would(tmp_path: Path, name: str) -> None:
    (tmp_path / "policies").mkdir()
    place = tmp_path / name
    if name == "outbox.lock":
        place.mkdir()
    elif name == "outgoing":
        place.write_text("no folder")
    else:
        place.symlink_to(tmp_path / "nowhere" / "else")
    done = limen("doctor", "--json", "--data", str(tmp_path))
    assert done.returncode == 1, done.stdout
    assert [one for one in json.loads(done.stdout) if one["state"] == "fail"]


def test_an_interrupted_command_ends_with_130_and_says_nothing(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    words = ["call", "desk", "docs_read", f"path=@{pipe}", "--data", str(tmp_path)]
    child = subprocess.Popen(
        [sys.executable, "-m", "limen", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    # Opening waits for the child to open its end: it is inside the command then.
    with pipe.open("w"):
        child.send_signal(signal.SIGINT)
        out, errors = child.communicate(timeout=60)
    assert (child.returncode, out, errors) == (130, b"", b"")


@pytest.mark.parametrize("name", ["limen.db", "audit.key"])
@pytest.mark.parametrize("words", [("serve", "desk"), ("doctor",)])
def test_a_pipe_in_the_data_folder_makes_nobody_wait(
    tmp_path: Path, name: str, words: tuple[str, ...]
) -> None:
    if name == "audit.key":
        assert limen("desk", "seed", "--data", str(tmp_path)).returncode == 0
        (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name, 0o600)
    done = limen(*words, "--data", str(tmp_path), input="")
    assert done.returncode == 1
    assert "not a regular file" in done.stdout + done.stderr
