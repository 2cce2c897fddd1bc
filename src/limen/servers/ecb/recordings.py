"""Answers of the portal that somebody recorded, replayed unmodified and only while they are whole.

A folder has one `index.json` and one `NAME.body` for each of its entries. An entry says what was
asked (`url_path`), when (`captured_at`) and what came: `status`, `bytes` and `sha256`.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from limen.servers.ecb.history import Stamp, stamp_of
from limen.servers.ecb.outcomes import DAY, Outcome, body_of, classify, observations_of
from limen.servers.ecb.series import find
from limen.servers.ecb.sources import (
    SOURCE,
    Body,
    DamagedFileError,
    NotCoveredError,
    UnknownSeriesError,
)

INDEX = "index.json"
EXR_PATH = "/service/data/EXR/"
PLAIN = {"format", "startPeriod", "endPeriod"}
"""The parameters that choose a window and its format. Any other may leave rows out."""

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,99}", re.ASCII)
SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Recording:
    """One entry of the index. `first` and `last` are the window asked for, None is no bound.

    `plain` says that all rows of that window were asked for, as CSV, and nothing besides.
    """

    name: str
    key: str
    first: date | None
    last: date | None
    plain: bool
    status: int
    length: int
    sha256: str
    captured_at: datetime

    def covers(self, key: str, first: date, last: date) -> bool:
        """Tell whether the window asked for then has the one asked for now in it."""
        return (
            self.plain
            and self.key == key
            and (self.first is None or self.first <= first)
            and (self.last is None or last <= self.last)
        )

    def reach_days(self) -> int:
        """Return how long the window is, so that the narrowest can be taken."""
        return ((self.last or date.max) - (self.first or date.min)).days


class Recordings:
    """Serve rates from a folder of recordings. The index is read once, when this is made.

    A body is compared with the index at the first question, and again whenever it was touched.
    """

    def __init__(self, folder: Path) -> None:
        """Read the index.

        Raises:
            NotCoveredError: there is no index.
            DamagedFileError: the index cannot be read, or an entry is not as it should be.
        """
        self._folder = folder
        self._entries = _read_index(folder)
        self._whole: dict[str, tuple[Stamp, Outcome]] = {}

    async def window(self, currency: str, first: date, last: date) -> Body:
        """Return the rates of one currency from the narrowest recording that covers the window."""
        series = find(currency)
        if series is None:
            raise UnknownSeriesError(f"there is no such series: `{currency[:10]}`")
        fitting = [one for one in self._entries.values() if one.covers(series.key, first, last)]
        if not fitting:
            raise NotCoveredError(
                f"no recording covers series `{series.key}` from {first} to {last}"
            )
        entry = min(fitting, key=Recording.reach_days)
        said = observations_of(self.outcome(entry.name), f"recording `{entry.name}`")
        body = body_of(
            said, series, (entry.first, entry.last), entry.captured_at, f"recording {entry.name}"
        )
        return body.within(first, last)

    async def close(self) -> None:
        """Do nothing: no file stays open."""

    def outcome(self, name: str) -> Outcome:
        """Return what a recording is, by its name.

        Raises:
            NotCoveredError: there is no recording of that name.
            DamagedFileError: its body is not the one that was recorded.
        """
        entry = self._entries.get(name)
        if entry is None:
            raise NotCoveredError(f"there is no recording `{name[:100]}`")
        path = self._folder / f"{name}.body"
        try:
            stamp = stamp_of(path)
            known = self._whole.get(name)
            if known is not None and known[0] == stamp:
                return known[1]
            body = path.read_bytes()
        except OSError as error:
            raise DamagedFileError(f"cannot read recording `{name}`: {error.strerror}") from error
        _compare(body, entry)
        outcome = classify(entry.status, body, expected_key=entry.key)
        self._whole[name] = (stamp, outcome)
        return outcome


def _compare(body: bytes, entry: Recording) -> None:
    # The length first: it tells a write that was cut off from bytes that were changed.
    if len(body) != entry.length:
        raise DamagedFileError(
            f"recording `{entry.name}` has {len(body)} bytes and not {entry.length}:"
            " a write or a copy was interrupted; fetch it again"
        )
    if hashlib.sha256(body).hexdigest() != entry.sha256:
        raise DamagedFileError(
            f"recording `{entry.name}` has its length but not its digest: its bytes changed"
        )


def _read_index(folder: Path) -> dict[str, Recording]:
    path = folder / INDEX
    try:
        written = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise NotCoveredError(
            f"there are no recordings in `{folder}`: set `recordings` under `[ecb]`"
            f" to a folder that has an `{INDEX}`; none is part of the package"
        ) from error
    except OSError as error:
        raise DamagedFileError(f"cannot read `{path}`: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DamagedFileError(f"cannot read `{path}`: it is not JSON") from error
    entries = [_entry(one, path) for one in (written if isinstance(written, list) else [None])]
    by_name = {entry.name: entry for entry in entries}
    if len(by_name) != len(entries):
        raise DamagedFileError(f"`{path}` has a name twice")
    return by_name


def _entry(written: Any, path: Path) -> Recording:
    try:
        url = urlsplit(written["url_path"])
        query = parse_qs(url.query)
        entry = Recording(
            name=written["name"],
            key=url.path.removeprefix(EXR_PATH),
            first=_bound(query, "startPeriod"),
            last=_bound(query, "endPeriod"),
            plain=query.get("format") == ["csvdata"] and query.keys() <= PLAIN,
            status=int(written["status"]),
            length=int(written["bytes"]),
            sha256=written["sha256"],
            captured_at=_moment(written["captured_at"]),
        )
        # Fails closed: a name becomes a file name, and only the reference rates may be reused so.
        sound = NAME.fullmatch(entry.name) and SHA256.fullmatch(entry.sha256)
        if not sound or not url.path.startswith(EXR_PATH) or url.netloc:
            raise ValueError(entry.name)
        if written["source"] != SOURCE:
            raise ValueError(written["source"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedFileError(
            f"`{path}` has an entry that is none: {type(error).__name__}: {str(error)[:80]}"
        ) from error
    return entry


def _bound(query: dict[str, list[str]], name: str) -> date | None:
    if name not in query:
        return None
    [text] = query[name]
    if not DAY.fullmatch(text):
        raise ValueError(text)
    return date.fromisoformat(text)


def _moment(text: str) -> datetime:
    # Of a day alone we take the first moment: what came out later that day may not be in there.
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
