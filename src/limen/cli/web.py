"""What the commands that serve over HTTP share."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from limen.errors import LimenError, SettingsError

if TYPE_CHECKING:
    from limen.app import Desk
    from limen.settings import Settings

Host = Annotated[str, typer.Option(help="Address to serve at.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port to serve at; 0 takes a free one.")]

DRAIN_EVERY_S = 30.0
"""Seconds between two looks into the outbox. An approval sends at once; this is for what a
process that was killed has left."""


def use_log() -> None:
    """Log to stderr, as much as `LIMEN_LOG` says.

    Raises:
        SettingsError: there is no such level.
    """
    named = os.environ.get("LIMEN_LOG") or "WARNING"
    levels = logging.getLevelNamesMapping()
    if named.upper() not in levels:
        raise SettingsError(
            f"variable `LIMEN_LOG` is `{named}`: write one of"
            " `DEBUG`, `INFO`, `WARNING`, `ERROR`, `CRITICAL`"
        )
    logging.basicConfig(
        level=levels[named.upper()], format="limen: %(levelname)s %(message)s", stream=sys.stderr
    )


def public_url_at(host: str, port: int, settings: Settings) -> str:
    """Return what callers write: the setting, or the address itself while it is of this machine.

    Raises:
        SettingsError: the address can be reached from elsewhere, and nobody said under what name.
    """
    if settings.http.public_url is not None:
        return settings.http.public_url.lower()
    if not _is_loopback(host):
        raise SettingsError(
            f"address `{host}` can be reached from elsewhere: say what callers write with"
            " `public_url` under `[http]`, such as `https://mcp.example.com`"
        )
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@contextlib.contextmanager
def keep_sending(desk: Desk | None) -> Iterator[None]:
    """Send what was approved and not sent, now and then, for as long as we serve."""
    ended = threading.Event()
    if desk is not None:
        threading.Thread(target=_send_on, args=(desk, ended), daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _send_on(desk: Desk, ended: threading.Event) -> None:
    while True:
        try:
            if desk.has_something_to_send():
                desk.drain()
        except (LimenError, OSError) as error:
            if ended.is_set():
                return
            logging.getLogger(__name__).error("cannot send: %s", error)
        if ended.wait(DRAIN_EVERY_S):
            return
