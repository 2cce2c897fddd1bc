"""`limen doctor`: look at everything that has to be right, and change nothing."""

from __future__ import annotations

import os
import platform
import shutil
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from limen.cli.call import SERVERS
from limen.cli.session import Config, Data, Json, read_settings
from limen.cli.show import print_json, print_table
from limen.errors import LimenError

if TYPE_CHECKING:
    from limen.settings import Settings

LOW_DISK = 200 * 1024 * 1024
"""Bytes. Below it the trail may soon refuse every call."""


@dataclass(frozen=True)
class Seen:
    """One thing looked at: how it is, and what to do where it is not well."""

    what: str
    state: Literal["ok", "warn", "fail"]
    said: str


def doctor(data: Data = None, config: Config = None, as_json: Json = False) -> None:
    """Look at settings, store, trail, rules and destinations. Exits with 1 when one fails."""
    seen = list(_look(data, config))
    if as_json:
        print_json([{"what": one.what, "state": one.state, "said": one.said} for one in seen])
    else:
        print_table(("", "what", "said"), [(one.state, one.what, one.said) for one in seen])
    if any(one.state == "fail" for one in seen):
        raise typer.Exit(1)


def _look(data: Path | None, config: Path | None) -> Iterator[Seen]:
    yield Seen("python", "ok", f"{platform.python_version()} at {sys.executable}")
    try:
        folder, settings, base = read_settings(data, config)
    except LimenError as error:
        yield Seen("settings", "fail", str(error))
        return
    from limen.settings import STORE_FILE, settings_file

    file = settings_file(config, folder)
    named = "no file, all as by default" if file is None else f"`{file}`"
    yield Seen("settings", "ok", f"{named}; paths start from `{base}`")
    yield _look_at_folder(folder)
    if not folder.is_dir():
        return
    yield _look_at_disk(folder)
    yield from _look_at_rules(folder, settings, base)
    yield from _look_at_destinations(folder, settings, base)
    yield _look_at_rates(settings, base)
    if not os.path.lexists(folder / STORE_FILE):
        yield Seen("store", "warn", "there is none yet; `limen serve desk` makes it")
        return
    yield from _look_at_store(folder)


def _look_at_folder(folder: Path) -> Seen:
    if not folder.exists():
        return Seen("data", "warn", f"`{folder}` is not there yet; `limen serve desk` makes it")
    if not folder.is_dir():
        return Seen("data", "fail", f"`{folder}` is no folder: name another with `--data`")
    if not os.access(folder, os.W_OK | os.X_OK):
        return Seen("data", "fail", f"`{folder}` cannot be written: `chmod u+wx` it")
    if stat.S_IMODE(folder.stat().st_mode) & 0o077:
        return Seen("data", "warn", f"others can look into `{folder}`: `chmod 700` it")
    return Seen("data", "ok", f"`{folder}`")


def _look_at_disk(folder: Path) -> Seen:
    free = shutil.disk_usage(folder).free
    state: Literal["ok", "fail"] = "ok" if free > LOW_DISK else "fail"
    return Seen("disk", state, f"{free // 2**20} MiB free")


def _look_at_rules(folder: Path, settings: Settings, base: Path) -> Iterator[Seen]:
    from limen.app import SystemClock, policy_folder, schema_of
    from limen.decisions.d5_policy import CedarPolicies

    for server in SERVERS:
        named = settings.policies_of(server)
        rules = policy_folder(folder, base, server, named, make=False)
        if not os.path.lexists(rules) and named is None:
            said = f"of `{server}`: none yet; `limen serve {server}` writes starter rules"
            yield Seen("rules", "warn", said)
            continue
        try:
            loaded = CedarPolicies.load(
                rules, schema_of(server), clock=SystemClock(), on_change=lambda _: None
            )
        except LimenError as error:
            yield Seen("rules", "fail", str(error))
            continue
        count = loaded.status().count
        state: Literal["ok", "warn"] = "ok" if count else "warn"
        yield Seen("rules", state, f"{count} in `{rules}`" + ("" if count else ": all is denied"))


def _look_at_rates(settings: Settings, base: Path) -> Seen:
    from limen.answers.calendars import target
    from limen.app import SystemClock
    from limen.app.ecb import source_of

    try:
        source_of(settings, base, target(), SystemClock())
    except LimenError as error:
        return Seen("rates", "fail", str(error))
    return Seen("rates", "ok", f"from the {settings.ecb.source}; nothing was asked")


def _look_at_destinations(folder: Path, settings: Settings, base: Path) -> Iterator[Seen]:
    from limen.app import LOCK_FILE, destinations, places
    from limen.settings import FolderSettings

    try:
        destinations(settings, folder, base)
    except LimenError as error:
        yield Seen("destinations", "fail", str(error))
        return
    for name, where in places(settings, folder).items():
        path = base / where.path if isinstance(where, FolderSettings) else None
        if path is None or path.is_dir():
            yield Seen("destinations", "ok", f"`{name}`")
        elif os.path.lexists(path):
            yield Seen("destinations", "fail", f"`{name}`: `{path}` is no folder")
        else:
            yield Seen("destinations", "warn", f"`{name}`: make the folder `{path}`")
    lock = folder / LOCK_FILE
    if os.path.lexists(lock) and not lock.is_file():
        yield Seen("destinations", "fail", f"`{lock}` is no file: remove it")


def _look_at_store(folder: Path) -> Iterator[Seen]:
    from limen.app import glance_at
    from limen.settings import KEY_FILE, STORE_FILE
    from limen.store.note import NoteSigner, open_checkpoint

    try:
        store = glance_at(folder / STORE_FILE)
    except LimenError as error:
        yield Seen("store", "fail", str(error))
        return
    yield Seen("store", "ok", f"{store.entries} entries in the trail")
    try:
        signer = NoteSigner.load(folder / KEY_FILE, None)
        if store.head is not None:
            open_checkpoint(store.head, signer.vkey)
        yield Seen("trail", "ok", f"signed by `{signer.origin}`; `limen audit verify` reads it all")
    except LimenError as error:
        yield Seen("trail", "fail", str(error))
    yield Seen("approvals", "ok", f"{store.pending} wait for a person")
    state: Literal["ok", "warn"] = "warn" if store.unconfirmed else "ok"
    said = f"{store.to_send} to be sent, {store.unconfirmed} of unknown outcome"
    yield Seen("outbox", state, said)
