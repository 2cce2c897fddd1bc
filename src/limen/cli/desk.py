"""`limen desk`: bring documents and tickets in."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from limen.cli.session import Config, Data, Person, open_house, person
from limen.cli.show import clean, progress

if TYPE_CHECKING:
    from limen.app import House
    from limen.servers.desk.importing import Seen

T = TypeVar("T")

app = typer.Typer(help="Bring documents and tickets in.", no_args_is_help=True)

BATCH = 200
"""Documents or tickets in one transaction: the store is free again after about 50 ms."""

MAX_TOLD = 20
"""Skipped files that are told one by one."""


@dataclass
class Tally:
    """What became of everything that was found."""

    counts: Counter[str] = field(default_factory=Counter)
    skipped: list[tuple[str, str]] = field(default_factory=list)

    def tell(self, seen: Seen) -> None:
        """Take note of one file or line."""
        self.counts[seen.outcome] += 1
        if seen.outcome == "skipped":
            self.skipped.append((seen.name, seen.reason))

    def summary(self) -> str:
        """Return the whole in one line."""
        counts = self.counts
        return (
            f"{counts['written']} written, {counts['unchanged']} unchanged,"
            f" {counts['skipped']} skipped"
        )

    def print(self) -> None:
        """Print what was skipped and why, and the whole."""
        for name, reason in self.skipped[:MAX_TOLD]:
            print(f"skipped {clean(name)}: {clean(reason)}", file=sys.stderr)
        if len(self.skipped) > MAX_TOLD:
            print(f"and {len(self.skipped) - MAX_TOLD} more", file=sys.stderr)
        typer.echo(self.summary())


@app.command()
def seed(name: Person = None, data: Data = None, config: Config = None) -> None:
    """Load a small made-up set of documents and tickets, to try the desk with."""
    from limen.servers.desk.seed import seed as load_seed

    with open_house(data, config) as house:
        at = house.clock.now()
        added = house.write_tables(
            "desk/seed", person(name), lambda tables: load_seed(tables, tables, at)
        )
    typer.echo(f"{added} added")


@app.command("import")
def import_(
    folder: Annotated[
        Path | None, typer.Argument(help="Folder whose text files become documents.")
    ] = None,
    into: Annotated[str, typer.Option(help="Folder of the desk that they go to.")] = "public",
    csv: Annotated[
        Path | None,
        typer.Option(help="CSV of tickets: id,subject,status,assignee,requester."),
    ] = None,
    name: Person = None,
    data: Data = None,
    config: Config = None,
) -> None:
    """Import a folder of text files as documents, or a CSV file as tickets."""
    if (folder is None) == (csv is None):
        raise typer.BadParameter("say a folder, or `--csv FILE`")
    with open_house(data, config) as house:
        if folder is not None:
            tally = import_folder(house, folder, into, person(name))
        elif csv is not None:
            tally = _import_csv(house, csv, person(name))
    tally.print()


def import_folder(house: House, folder: Path, into: str, by: str) -> Tally:
    """Write each new or changed text file of a folder, and say what became of all of them."""
    from limen.servers.desk.importing import documents_in, import_documents

    tally, at = Tally(), house.clock.now()
    _in_batches(
        house,
        by,
        documents_in(folder, tally.tell, into=into),
        lambda tables, found: import_documents(found, tables, tally.tell, author=by, at=at),
    )
    return tally


def _import_csv(house: House, file: Path, by: str) -> Tally:
    from limen.servers.desk.importing import import_tickets, tickets_in

    tally = Tally()
    _in_batches(
        house,
        by,
        tickets_in(file, tally.tell),
        lambda tables, found: import_tickets(found, tables, tally.tell),
    )
    return tally


def _in_batches(house: House, by: str, found: Iterable[T], write: Callable[..., int]) -> None:
    done = 0
    with progress("importing", None) as bar:
        for batch in _batches(found):
            house.write_tables("desk/import", by, partial(_written, write, batch))
            done += len(batch)
            bar(done)


def _written(write: Callable[..., int], batch: list[T], tables: object) -> int:
    return write(tables, batch)


def _batches(found: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(found)
    while batch := list(islice(rest, BATCH)):
        yield batch
