"""Make `docs/reference.md` from the code: commands, settings, tools, rows. `--check` compares."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import typer
from pydantic import BaseModel

from limen.catalogue import Catalogue
from limen.cli.root import app
from limen.servers.desk.tools import desk_catalogue
from limen.servers.ecb.tools import ecb_catalogue
from limen.settings import FolderSettings, HttpSettings, Settings
from limen.words import AuditRow

PAGE = Path(__file__).parent / "reference.md"


def commands(command: Any, name: str) -> Iterator[str]:
    """Describe a command and those below it."""
    below = getattr(command, "commands", {})
    if below:
        for word in below:
            yield from commands(below[word], f"{name} {word}")
        return
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    spelled = " ".join(p.make_metavar(None) if False else p.name.upper() for p in arguments)
    yield f"\n### `{name}{' ' + spelled if spelled else ''}`\n"
    yield (command.help or "").strip()
    options = [p for p in command.params if p.param_type_name == "option"]
    for option in [*arguments, *options]:
        shown = ", ".join(option.opts) if option in options else option.name.upper()
        yield f"- `{shown}`: {(getattr(option, 'help', '') or '').strip()}"


def settings(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Describe every setting: key, default and what to write."""
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield f"\n### `[{prefix}{name}]`\n"
            yield (kind.__doc__ or "").strip() + "\n"
            yield "| key | default | write |\n|---|---|---|"
            yield from settings(kind, f"{prefix}{name}.")
        else:
            default = "required" if field.is_required() else f"`{plain(field.default)}`"
            yield f"| `{name}` | {default} | `{(field.examples or [''])[0]}` |"


def plain(value: Any) -> Any:
    """Return a default as it reads in a table, in one order."""
    return sorted(value) if isinstance(value, frozenset) else value


def tools(catalogue: Catalogue) -> Iterator[str]:
    """Describe a server's tools as a caller sees them."""
    for entry in catalogue.tools.values():
        yield f"\n### `{entry.name}`: {entry.title}\n"
        yield entry.description + "\n"
        held = ", held for approval" if entry.held else ""
        yield f"Scope `{entry.scope}`, effect `{entry.effect}`{held}.\n"
        for name, schema in entry.input_schema["properties"].items():
            limit = schema.get("maxLength")
            bound = f" At most {limit:,} characters." if limit else ""
            yield f"- `{name}`: {schema['description']}{bound}"


def page() -> str:
    """Return the whole page."""
    lines = [
        "# Reference",
        "",
        "Made from the code by `docs/reference.py`; do not edit.",
        "",
        "## Commands",
    ]
    lines += commands(typer.main.get_command(app), "limen")
    lines += [
        "",
        "## Settings",
        "",
        "In `limen.toml` of the data folder, or as `LIMEN_SECTION__KEY`.",
    ]
    lines += settings(Settings)
    for kind in (FolderSettings, HttpSettings):
        lines += ["", f"### `[desk.destinations.NAME]`, {(kind.__doc__ or '').strip()}", ""]
        lines += ["| key | default | write |\n|---|---|---|", *settings(kind)]
    lines += ["", "## Tools of the desk", *tools(desk_catalogue(""))]
    lines += [
        "",
        "## Tools of the reference rates",
        *tools(ecb_catalogue("")),
        "",
        "## Fields of an audit row",
        "",
    ]
    lines += [f"- `{field.name}`" for field in fields(AuditRow)]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the page, or with `--check` say whether it is as it would be written."""
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    if PAGE.read_text(encoding="utf-8") == page():
        return 0
    print("docs/reference.md is not up to date: run `uv run python docs/reference.py`")
    return 1


if __name__ == "__main__":
    sys.exit(main())
