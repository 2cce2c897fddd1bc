"""How commands print: tables on a terminal, tab-separated lines in a pipe, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import typer


def print_json(value: Any) -> None:
    """Print one JSON document with sorted keys, in ASCII: a terminal acts on nothing in it."""
    typer.echo(json.dumps(value, sort_keys=True, separators=(",", ":"), default=str))


def print_exact(text: str) -> None:
    """Print text byte for byte, except to a terminal, which must not act on it."""
    typer.echo(clean(text, keep="\n") if sys.stdout.isatty() else text)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print rows under their columns. Nothing in a cell acts on the terminal."""
    if not sys.stdout.isatty():
        for row in rows:
            typer.echo("\t".join(clean(cell) for cell in row))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(_text(cell) for cell in row))
    Console().print(table)


def print_fields(fields: Mapping[str, Any]) -> None:
    """Print one thing as lines of `name: value`, without what is empty."""
    for name, value in fields.items():
        if value not in ("", None, (), []):
            shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            typer.echo(f"{name}: {clean(shown)}")


def clean(value: Any, keep: str = "") -> str:
    """Return a value as text without anything that a terminal acts on, but for `keep`."""
    text = str(value)
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or character in keep
        else character.encode("unicode_escape").decode()
        for character in text
    )


class Progress(Protocol):
    """Take note of how far a long command has come."""

    def __call__(self, done: int) -> None:
        """Say how many are done by now."""


@contextmanager
def progress(what: str, total: int | None) -> Iterator[Progress]:
    """Draw a progress bar on stderr when it is a terminal; else draw nothing."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)


def _text(cell: Any) -> Any:
    from rich.text import Text

    # Not a string: that would be read as markup.
    return Text(clean(cell))
