"""The map is true: import floors, the order of the row, and what the docs draw of them."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from limen.gate import WALKS, Row

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "limen"

FLOORS = (
    {"__main__"},
    {"cli"},
    {"app"},
    {"transport", "prove"},
    {"gate", "review"},
    {"decisions", "backends", "servers", "store"},
    {"walk"},
    {"catalogue"},
    {"answers", "tokens", "upstream"},
    {"ports", "mirror"},
    {"words", "errors", "settings", "canonical", "strict_json", "version"},
)
"""From the top down. A room imports what is below it, or its own; never a neighbour or above."""

NEIGHBOURS_ALLOWED = {
    ("review", "gate"): False,
    ("strict_json", "errors"): True,
    ("settings", "errors"): True,
}
"""On the lowest floor the two that say what is wrong may say it in the words of `errors`."""

ONLY_IN = {
    "mcp": (),
    "sqlite3": ("store/",),
    "cedarpy": ("decisions/d5_policy.py",),
    "jsonschema_rs": ("decisions/d4_shape.py",),
    "cryptography": ("store/note.py",),
    "httpx": ("servers/desk/destinations.py", "upstream/", "cli/call.py", "cli/prove.py", "prove/"),
    "joserfc": ("tokens/",),
    "uvicorn": ("transport/web.py",),
    "pydantic_settings": ("settings.py",),
    "typer": ("cli/",),
    "rich": ("cli/",),
}
"""Where each library that decides something may be imported."""

STANDARD_LIBRARY_ONLY = ("words.py", "errors.py")

CATCHES_ANYTHING = {"gate.py": 1, "store/writer.py": 1}
"""Handlers for any exception: the gate refuses; the writer carries it to whoever waits."""

BANNED_NAMES = {"utils", "helpers", "common", "core", "base", "manager", "handler", "data", "info"}

MODULES = sorted(PACKAGE.rglob("*.py"))


def imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def place_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def room_of(place: str) -> str:
    return place.split("/")[0].removesuffix(".py")


def floor_of(room: str) -> int:
    return next(number for number, rooms in enumerate(FLOORS) if room in rooms)


def wrong_imports(place: str, imported: list[str]) -> list[str]:
    """Return the imports of a module that the floors do not allow."""
    room = room_of(place)
    wrong = []
    for name in imported:
        if not name.startswith("limen."):
            continue
        other = name.split(".")[1]
        if other == room or NEIGHBOURS_ALLOWED.get((room, other), False):
            continue
        if floor_of(other) <= floor_of(room):
            wrong.append(name)
    return wrong


def test_every_room_has_a_floor() -> None:
    rooms = {room_of(place_of(path)) for path in MODULES} - {"__init__"}
    assert rooms == set().union(*FLOORS)


@pytest.mark.parametrize("path", MODULES, ids=place_of)
def test_a_room_imports_only_what_is_below_it(path: Path) -> None:
    place = place_of(path)
    if place != "__init__.py":
        assert wrong_imports(place, list(imports_of(path))) == []


def test_the_floors_can_fail() -> None:
    assert wrong_imports("words.py", ["limen.ports"]) == ["limen.ports"]
    assert wrong_imports("store/audit.py", ["limen.decisions.d7_audit"])
    assert wrong_imports("review.py", ["limen.gate"]) == ["limen.gate"]
    assert wrong_imports("gate.py", ["limen.store.audit"]) == []


def test_the_lowest_rooms_use_the_standard_library_only() -> None:
    for place in STANDARD_LIBRARY_ONLY:
        for name in imports_of(PACKAGE / place):
            assert name.split(".")[0] in sys.stdlib_module_names, (place, name)


@pytest.mark.parametrize("library", ONLY_IN)
def test_a_library_is_imported_in_its_room_alone(library: str) -> None:
    users = [
        place_of(path)
        for path in MODULES
        if any(name.split(".")[0] == library for name in imports_of(path))
    ]
    assert [place for place in users if not place.startswith(ONLY_IN[library])] == [] or (
        not ONLY_IN[library] and not users
    )


def test_decisions_know_no_other_decision() -> None:
    for path in PACKAGE.glob("decisions/d*.py"):
        assert not [name for name in imports_of(path) if name.startswith("limen.decisions")]


def test_servers_know_no_other_server_and_no_gate() -> None:
    for path in PACKAGE.glob("servers/*/*.py"):
        own = f"limen.servers.{path.parent.name}"
        for name in imports_of(path):
            assert not name.startswith("limen.servers.") or name.startswith(own), (path, name)


def test_only_app_names_a_concrete_store() -> None:
    # The command line reads copies of the trail with the offline verifier, and opens no store.
    offline = {"limen.store.verify", "limen.store.note", "limen.store.merkle"}
    for path in MODULES:
        place = place_of(path)
        if not place.startswith(("app/", "store/")):
            named = {name for name in imports_of(path) if name.startswith("limen.store")}
            allowed = offline if place.startswith("cli/") else set()
            assert named <= allowed, place


def test_the_files_of_the_decisions_sort_in_the_order_of_the_row() -> None:
    files = sorted(path.stem for path in PACKAGE.glob("decisions/d*.py"))
    assert tuple(files) == Row._fields


@pytest.mark.parametrize("name", Row._fields)
def test_each_decision_opens_with_its_question(name: str) -> None:
    text = ast.get_docstring(ast.parse((PACKAGE / "decisions" / f"{name}.py").read_text()))
    assert text is not None
    assert text.splitlines()[0].endswith("?")


def test_every_walk_is_a_part_of_the_row_in_its_order() -> None:
    for method, steps in WALKS.items():
        assert list(steps) == sorted(steps), method
        assert set(steps) <= set(Row._fields), method
        assert steps[0] == "d1_audience", method


def drawn_walks(text: str) -> dict[str, set[str]]:
    """Read the table of walks in a document: methods as columns, steps as lines."""
    lines = text.splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("| step |"))
    methods = [cell.strip(" `") for cell in lines[head].split("|")[2:-1]]
    drawn: dict[str, set[str]] = {method: set() for method in methods}
    for line in lines[head + 2 : head + 2 + len(Row._fields)]:
        step, *marks = (cell.strip(" `") for cell in line.split("|")[1:-1])
        for method, mark in zip(methods, marks, strict=True):
            if mark:
                drawn[method].add(step)
    return drawn


def test_the_tour_draws_the_walks_as_the_gate_walks_them() -> None:
    drawn = drawn_walks((ROOT / "docs" / "tour.md").read_text())
    assert set(drawn) == {"tools/list", "tools/call", "prompts/get", "resources/read", "completion"}
    for column, steps in drawn.items():
        method = "completion/complete" if column == "completion" else column
        assert steps == {*WALKS[method], "d7_audit"}, method


def test_nothing_but_the_gate_and_the_writer_catches_any_exception() -> None:
    found: dict[str, int] = {}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ExceptHandler) and (
                node.type is None
                or (
                    isinstance(node.type, ast.Name)
                    and node.type.id in {"Exception", "BaseException"}
                )
            ):
                found[place_of(path)] = found.get(place_of(path), 0) + 1
    assert found == CATCHES_ANYTHING


def test_assert_guards_nothing_in_the_package() -> None:
    for path in MODULES:
        tree = ast.parse(path.read_text())
        assert not [node for node in ast.walk(tree) if isinstance(node, ast.Assert)], path


def test_no_room_has_a_name_that_says_nothing() -> None:
    for path in MODULES:
        assert not BANNED_NAMES & set(path.relative_to(PACKAGE).with_suffix("").parts), path


def test_the_map_in_the_package_names_every_room() -> None:
    text = ast.get_docstring(ast.parse((PACKAGE / "__init__.py").read_text()))
    assert text is not None
    for room in set().union(*FLOORS) - {"__main__"}:
        assert re.search(rf"\b{room}\b", text), room


def test_the_tree_of_errors_is_drawn_as_it_is() -> None:
    text = (PACKAGE / "errors.py").read_text()
    drawn = set(re.findall(r"[├└]── (\w+)", text))
    raised = {
        name
        for path in MODULES
        for name in re.findall(
            r"^class (\w+Error)\((?:Limen|Store|Upstream|SourceDown)Error\)",
            path.read_text(),
            re.MULTILINE,
        )
    }
    assert drawn == raised


def test_what_asks_from_outside_knows_nothing_of_the_inside() -> None:
    used = {
        name
        for path in MODULES
        if room_of(place_of(path)) == "prove"
        for name in imports_of(path)
        if name.startswith("limen")
    }
    assert {name for name in used if not name.startswith("limen.prove")} == {"limen.errors"}
