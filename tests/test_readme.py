"""The README says what is so: its JSON is made again, its commands and numbers are looked up."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from houses import StillClock, run
from limen.answers.calendars import target
from limen.prove.checks import CHECKS
from limen.servers.ecb.history import History
from limen.servers.ecb.series import SERIES
from limen.servers.ecb.tools import rates_window
from limen.servers.ecb.view import RatesView
from standins.small_server import FAULTS
from wire import limen

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCED = re.compile(r"^```[a-z]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^(?:uv run )?limen ([a-z]+(?: [a-z]+)?)", re.MULTILINE)


def easter() -> dict[str, Any]:
    """Return the window as the server answers it, at a moment that stands still."""
    clock = StillClock(datetime(2026, 12, 1, 12, tzinfo=UTC))
    view = RatesView(History(target()), target(), clock)
    asked = {"currency": "USD", "start": "2026-03-30", "end": "2026-04-10"}
    said: dict[str, Any] = orjson.loads(orjson.dumps(run(rates_window.body(view, **asked))))
    return said


def written(said: dict[str, Any]) -> str:
    """Return the answer as a person reads it: small things on one line."""

    def flat(value: Any) -> str:
        if isinstance(value, dict):
            inner = ", ".join(f"{flat(key)}: {flat(one)}" for key, one in value.items())
            return "{" + inner + "}"
        if isinstance(value, list):
            return "[" + ", ".join(flat(one) for one in value) + "]"
        return orjson.dumps(value).decode()

    def rows(value: list[Any], each: int, indent: str) -> str:
        lines = [
            ", ".join(flat(one) for one in value[at : at + each])
            for at in range(0, len(value), each)
        ]
        inner = ",\n".join(f"{indent}  {line}" for line in lines)
        return f"[\n{inner}\n{indent}]"

    lines = []
    for key, value in said.items():
        if key == "observations":
            text = rows(value, 4, "  ")
        elif key == "coverage":
            inner = [
                f"    {flat(name)}: {rows(one, 1, '    ') if name == 'spans' else flat(one)}"
                for name, one in value.items()
            ]
            text = "{\n" + ",\n".join(inner) + "\n  }"
        else:
            text = flat(value)
        lines.append(f"  {flat(key)}: {text}")
    return "{\n" + ",\n".join(lines) + "\n}"


def test_the_easter_window_in_the_readme_is_what_the_server_answers() -> None:
    found = re.search(r"<!-- easter -->\n```json\n(.*?)```", README, re.DOTALL)
    assert found is not None
    assert found[1] == written(easter()) + "\n"
    assert orjson.loads(found[1]) == easter()


def test_every_command_in_the_pages_is_a_command() -> None:
    told = {
        command
        for page in PAGES[:-1]
        for block in FENCED.findall(page.read_text("utf-8"))
        for command in COMMAND.findall(block)
    }
    assert len(told) >= 6
    for command in told:
        words = command.split()
        plain = limen(*words, "--help")
        assert plain.returncode == 0 or limen(words[0], "--help").returncode == 0, command


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    for target_ in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8")):
        if not target_.startswith("http"):
            assert (page.parent / target_).exists(), target_


def test_the_numbers_in_the_pages_are_those_of_the_code() -> None:
    proofs = (ROOT / "docs" / "proofs.md").read_text("utf-8")
    declared = re.search(r"DECLARED = (\d+);", (ROOT / "clients/typescript/prove.ts").read_text())
    assert declared is not None
    assert f"It makes {len(CHECKS)} checks" in README
    assert f"It makes {len(CHECKS)} checks" in proofs
    assert f"{len(FAULTS)} planted faults" in proofs
    assert f"{declared[1]} checks in both protocol eras" in proofs
    assert all(f"`{check.name}`" in proofs for check in CHECKS)
    servers = (ROOT / "docs" / "servers.md").read_text("utf-8")
    assert f"reference rates of {len(SERIES)} currencies" in servers


def test_the_readme_admits_what_is_missing() -> None:
    limits = README.partition("## Limits")[2]
    assert len(re.findall(r"^- ", limits, re.MULTILINE)) >= 3


if __name__ == "__main__":
    block = f"<!-- easter -->\n```json\n{written(easter())}\n```"
    made = re.sub(r"<!-- easter -->\n```json\n.*?```", lambda _: block, README, flags=re.DOTALL)
    (ROOT / "README.md").write_text(made, "utf-8")
