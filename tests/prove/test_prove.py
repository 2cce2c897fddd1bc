"""`limen prove`: nothing to find on a server that keeps its promises, and each planted fault."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import httpx
import pytest

from limen.prove.checks import CHECKS, run_all
from limen.prove.target import Target, read_manifest
from promised import promise
from standins.small_server import FAULTS, SmallServer
from web import going_up
from wire import limen


def states(folder: Path, faults: Collection[str] = ()) -> dict[str, str]:
    with SmallServer(faults) as server, httpx.Client(trust_env=False) as client:
        file = folder / "manifest.json"
        file.write_text(json.dumps(server.manifest()))
        target = Target(read_manifest(file, server.url), client)
        return {check.name: seen.state for check, seen in run_all(target)}


@promise("prober-finds")
def test_a_server_that_keeps_its_promises_has_nothing_to_find(tmp_path: Path) -> None:
    assert states(tmp_path) == {check.name: "held" for check in CHECKS}


@promise("prober-finds")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_by_its_check(tmp_path: Path, fault: str) -> None:
    found = states(tmp_path, [fault])
    assert found[FAULTS[fault]] == "broken", found


def test_every_check_but_the_first_has_a_fault_that_it_finds() -> None:
    assert {check.name for check in CHECKS} - set(FAULTS.values()) == {"good-token"}


def test_a_server_whose_good_tokens_open_nothing_proves_nothing(tmp_path: Path) -> None:
    with SmallServer() as server, httpx.Client(trust_env=False) as client:
        manifest: dict[str, Any] = server.manifest()
        manifest["tokens"]["small"]["other"] = "good-nobody"
        file = tmp_path / "manifest.json"
        file.write_text(json.dumps(manifest))
        target = Target(read_manifest(file, server.url), client)
        found = {check.name: seen.state for check, seen in run_all(target)}
    assert found["good-token"] == "broken"


@pytest.mark.parametrize("server", ["ecb", "desk"])
def test_nothing_is_found_on_ours(tmp_path: Path, server: str) -> None:
    with going_up(tmp_path, "--frozen-clock") as child:
        url = child.manifest["servers"][server]["url"]
        words = ("prove", url, "--manifest", str(tmp_path / "tokens.json"))
        done = limen(*words, "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 0, found
    assert found["counts"] == {"held": len(CHECKS), "broken": 0, "not asked": 0}
    assert found["revision"] == "2026-07-28"
    assert all(check["did"] and check["why"] for check in found["checks"])


def test_what_is_broken_is_said_with_its_reason_and_the_exit_code(tmp_path: Path) -> None:
    with SmallServer(["repeats the name"]) as server:
        file = tmp_path / "manifest.json"
        file.write_text(json.dumps(server.manifest()))
        done = limen("prove", server.url, "--manifest", str(file))
    assert done.returncode == 1
    assert "BROKEN    refusal-bytes" in done.stdout
    assert "why: a difference tells a stranger what exists" in done.stdout
    assert done.stdout.splitlines()[-1].endswith("17 held, 1 broken, 0 not asked")


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (None, "no such file"),
        ("{", "it is not JSON"),
        ("[]", "does not say what is needed"),
        ('{"servers": {}, "tokens": {}}', "no server has the URL"),
        ('{"servers": {"a": {"url": "http://127.0.0.1:9/mcp"}}, "tokens": {"a": {}}}', "no token"),
        (
            '{"servers": {"a": {"url": "http://127.0.0.1:9/mcp"}}, "tokens": {"a": {"x": "y"}}}',
            "cannot reach",
        ),
    ],
)
def test_a_manifest_that_says_too_little_is_one_line(
    tmp_path: Path, written: str | None, said: str
) -> None:
    file = tmp_path / "manifest.json"
    if written is not None:
        file.write_text(written)
    done = limen("prove", "http://127.0.0.1:9/mcp", "--manifest", str(file))
    assert done.returncode == 1
    assert said in done.stderr.lower() or said in done.stderr
    assert done.stderr.count("\n") == 1
