"""What most commands begin with: where the data is, the settings, an open house or desk."""

from __future__ import annotations

import contextlib
import gc
import getpass
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from limen.errors import LimenError, StoreError

if TYPE_CHECKING:
    from limen.app import Desk, House
    from limen.settings import Settings

Data = Annotated[
    Path | None,
    typer.Option("--data", help="Folder of the store. Default: LIMEN_DATA, else the user's state."),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config", help="Settings file. Default: LIMEN_CONFIG, else limen.toml in --data."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Person = Annotated[
    str | None, typer.Option("--as", help="Your name in the trail. Default: your login name.")
]


def read_settings(data: Path | None, config: Path | None) -> tuple[Path, Settings, Path]:
    """Return the data folder, the settings, and the folder that their relative paths start from.

    Raises:
        SettingsError: a setting is wrong.
    """
    from limen.settings import data_dir, load, settings_file

    folder = data_dir(data)
    file = settings_file(config, folder)
    return folder, load(file), folder if file is None else file.parent


@contextlib.contextmanager
def open_house(
    data: Path | None, config: Path | None, *, must_exist: bool = False
) -> Iterator[House]:
    """Open the data folder for one command.

    Raises:
        StoreError: there is no store and the command only reads.
    """
    from limen import app
    from limen.settings import STORE_FILE

    # From here on all is imported; what is garbage now is so little that it may stay.
    gc.enable()
    gc.freeze()
    folder, settings, base = read_settings(data, config)
    if must_exist and not (folder / STORE_FILE).exists():
        raise StoreError(
            f"no store in `{folder}` yet: start with `limen serve desk` or `limen desk seed`"
        )
    with app.open_house(folder, settings, base=base, tell=tell) as house:
        yield house


@contextlib.contextmanager
def open_desk(
    data: Path | None, config: Path | None, *, must_exist: bool = False
) -> Iterator[Desk]:
    """Open the data folder and put the desk together."""
    from limen.app import build_desk

    with open_house(data, config, must_exist=must_exist) as house:
        yield build_desk(house)


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}\Z")
"""What a caller's name can be too, so that no two names look alike."""


def person(named: str | None) -> str:
    """Return who gives this command, as the trail will say.

    Raises:
        LimenError: nobody was named, and this user has no name.
    """
    if named is not None:
        # A requester who spells their name another way would be someone else to `approve`.
        if not NAME.match(named):
            raise typer.BadParameter("`--as` is 1 to 64 of A-Z, a-z, 0-9, `.`, `_`, `@`, `-`")
        return named
    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:
        raise LimenError("this user has no name: say who you are with `--as NAME`") from error


def tell(line: str) -> None:
    """Say a line to the owner, where it disturbs no output."""
    print(f"limen: {line}", file=sys.stderr)
