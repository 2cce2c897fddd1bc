"""Composition of the server of reference rates, and of where its numbers come from."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from limen.answers.calendars import PublicationCalendar, target
from limen.app import Door, House, load_policies, local_door, row_of
from limen.backends.native import Native
from limen.catalogue import Catalogue
from limen.errors import SettingsError
from limen.gate import Gate, Row
from limen.ports import Clock, Transaction
from limen.servers.ecb.history import History
from limen.servers.ecb.portal import Portal
from limen.servers.ecb.recordings import Recordings
from limen.servers.ecb.sources import RateSource
from limen.servers.ecb.tools import ecb_catalogue
from limen.servers.ecb.view import RatesView
from limen.settings import Settings
from limen.version import __version__

NEVER_HELD = timedelta(hours=1)
"""How long an approval would wait. No tool here is held."""


@dataclass(frozen=True)
class Rates:
    """The server of reference rates, put together. Close it in the loop that used it."""

    house: House
    catalogue: Catalogue
    native: Native
    row: Row
    gate: Gate
    source: RateSource

    async def close(self) -> None:
        """Let go of the source."""
        await self.source.close()


def build_ecb(house: House, door: Door | None = None, source: RateSource | None = None) -> Rates:
    """Put the server together, by default for the one caller over stdio.

    Raises:
        PolicyError: a rule cannot be used.
        SettingsError: a setting names what is not there.
    """
    settings, calendar = house.settings, target()
    door = door or local_door(settings, house.clock)
    source = source or source_of(settings, house.base, calendar, house.clock)
    catalogue = ecb_catalogue(__version__)
    view = RatesView(source, calendar, house.clock)

    def view_of(transaction: Transaction | None, caller: str, key: str) -> RatesView:
        return view

    policies = load_policies(house, "ecb", settings.ecb.policies)
    native = Native(catalogue, policies, view_of)
    row = row_of(house, catalogue, policies, view_of, door, NEVER_HELD)
    return Rates(house, catalogue, native, row, Gate(row, native, house.clock), source)


def source_of(
    settings: Settings, base: Path, calendar: PublicationCalendar, clock: Clock
) -> RateSource:
    """Return where the settings say that the numbers come from.

    Raises:
        SettingsError, UpstreamError: it cannot be that.
    """
    ecb = settings.ecb
    if ecb.source == "history":
        return History(calendar)
    if ecb.source == "recordings":
        if ecb.recordings is None:
            raise SettingsError(
                "setting `ecb.source` is `recordings`: say where with `ecb.recordings`"
            )
        return Recordings(base / ecb.recordings)
    return Portal(calendar, clock, base_url=ecb.base_url)
