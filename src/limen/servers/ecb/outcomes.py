"""What an answer of the ECB data portal is: decided by its content, never by its status alone.

The portal answers 200 with nothing for a window without rates, 200 with XML for a format that it
does not know, and 400 with a page of HTML. Only rows that are whole and of the series that was
asked for become rates, and a rate stays the text that was printed.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from dataclasses import dataclass
from datetime import date, datetime
from types import MappingProxyType
from typing import assert_never

from limen.servers.ecb.series import Series
from limen.servers.ecb.sources import Body, RejectedError, UnknownSeriesError
from limen.upstream.errors import SourceChangedError, SourceDownError, SourceThrottledError

DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
RATE = re.compile(r"(0|[1-9]\d{0,11})(\.\d{1,12})?", re.ASCII)
"""A plain decimal as JSON has it: no sign, exponent, separator, leading zero or other digits."""

NO_VALUE = frozenset({"", "NaN", "-"})
"""What stands in OBS_VALUE where there is no rate."""

PLACEHOLDER = "H"
NORMAL = "A"
"""Values of OBS_STATUS: a day without fixing (until 2012 such days had a row); a usual rate."""

REQUIRED = ("KEY", "FREQ", "TIME_PERIOD", "OBS_VALUE", "OBS_STATUS", "UNIT_MULT")
"""Columns without which a row cannot be told to be what was asked for."""

MAX_DETAIL = 300
"""Characters kept of a text that the portal wrote."""


@dataclass(frozen=True, slots=True)
class UnknownSeries:
    """There is no series of that key."""

    detail: str


@dataclass(frozen=True, slots=True)
class RejectedParameters:
    """The question was refused, or answered in a way that no question of ours asks for."""

    detail: str


@dataclass(frozen=True, slots=True)
class VendorThrottled:
    """The portal says: not now. `retry_after_s` is None when it does not say when."""

    detail: str
    retry_after_s: float | None


@dataclass(frozen=True, slots=True)
class VendorUnavailable:
    """The portal cannot answer. Its body was not read."""

    detail: str


@dataclass(frozen=True, slots=True)
class NotModified:
    """Nothing has changed since the moment that the question named."""


@dataclass(frozen=True, slots=True)
class EmptyWindow:
    """The window has no row at all."""


@dataclass(frozen=True, slots=True)
class WrongFormat:
    """The answer is not what we know how to read. No rate of it was used."""

    detail: str


@dataclass(frozen=True, slots=True)
class Observation:
    """One rate as printed, with its OBS_STATUS and OBS_CONF."""

    day: date
    rate: str
    status: str = NORMAL
    confidentiality: str = ""


@dataclass(frozen=True, slots=True)
class Observations:
    """The rows of an answer, oldest first.

    `placeholders` are days whose row has no rate and status `H`; `missing` those with another.
    `decimals` and `title` are what DECIMALS and TITLE_COMPL say, None and empty where they do not.
    """

    observed: tuple[Observation, ...] = ()
    placeholders: tuple[date, ...] = ()
    missing: tuple[date, ...] = ()
    decimals: int | None = None
    title: str = ""

    @property
    def detail(self) -> str:
        """Say how many rows of each kind there are."""
        without = len(self.placeholders) + len(self.missing)
        return f"{len(self.observed)} rates and {without} rows without one"


Outcome = (
    UnknownSeries
    | RejectedParameters
    | VendorThrottled
    | VendorUnavailable
    | NotModified
    | EmptyWindow
    | WrongFormat
    | Observations
)


def classify(
    status: int, body: bytes, *, expected_key: str, retry_after_s: float | None = None
) -> Outcome:
    """Return what an answer is. Each condition is asked in its turn; the first that holds decides.

    Args:
        status: of HTTP.
        body: unpacked.
        expected_key: the series asked for, `D.USD.EUR.SP00.A`.
        retry_after_s: what `Retry-After` said, None without one.
    """
    if status == 404:
        return UnknownSeries(_problem_detail(body))
    if status == 304:
        return NotModified()
    if status == 429 or (status == 503 and retry_after_s is not None):
        return VendorThrottled(f"status {status}", retry_after_s)
    if status >= 500:
        return VendorUnavailable(f"status {status}")
    if status == 400:
        return RejectedParameters("status 400")
    if status != 200:
        return RejectedParameters(f"unexpected status {status}")
    text = body.removeprefix(codecs.BOM_UTF8).strip()
    if not text:
        return EmptyWindow()
    if text.startswith(b"<?xml"):
        return WrongFormat(f"XML at status 200, {len(body)} bytes")
    try:
        return _read_rows(body, expected_key)
    except WrongFormatError as error:
        return WrongFormat(str(error))


def observations_of(outcome: Outcome, question: str) -> Observations:
    """Return the observations of an outcome that has an answer in it; raise what any other means.

    `question` says in a few words what was asked, for the messages.

    Raises:
        UnknownSeriesError, RejectedError, SourceThrottledError, SourceDownError,
        SourceChangedError: the outcome's own, each with its code.
    """
    match outcome:
        case Observations():
            return outcome
        case EmptyWindow():
            return Observations()
        case UnknownSeries(detail):
            raise UnknownSeriesError(f"ECB has no such series: {question}: {detail}")
        case RejectedParameters(detail):
            raise RejectedError(f"ECB rejected our question: {question}: {detail}")
        case VendorThrottled(detail, retry_after_s):
            raise SourceThrottledError(f"ECB says not now: {question}: {detail}", retry_after_s)
        case VendorUnavailable(detail):
            raise SourceDownError(f"ECB could not answer: {question}: {detail}")
        case NotModified():
            raise SourceChangedError(
                f"ECB says `not modified` to a question that named no moment: {question}"
            )
        case WrongFormat(detail):
            raise SourceChangedError(f"ECB answered in another format: {question}: {detail}")
        case _:
            assert_never(outcome)


def body_of(
    said: Observations,
    series: Series,
    reach: tuple[date | None, date | None],
    completed_at: datetime,
    origin: str,
    last_modified: datetime | None = None,
) -> Body:
    """Return the body that observations are, of a source asked about the days of `reach`."""
    return Body(
        series=series,
        rates=MappingProxyType({one.day: one.rate for one in said.observed}),
        covers_from=reach[0],
        covers_to=reach[1],
        completed_at=completed_at,
        origin=origin,
        last_modified=last_modified,
        placeholders=said.placeholders,
        missing=said.missing,
        statuses=MappingProxyType(
            {one.day: one.status for one in said.observed if one.status != NORMAL}
        ),
        decimals=said.decimals,
        title=said.title,
    )


class WrongFormatError(ValueError):
    """Say what about a body is not as we know it. Ends as a `WrongFormat`, never outside."""


def _problem_detail(body: bytes) -> str:
    # RFC 9457: `detail` of a problem document. Anything else at 404 gets our own words.
    try:
        problem = json.loads(body)
    except (ValueError, RecursionError):
        return "status 404"
    detail = problem.get("detail") if isinstance(problem, dict) else None
    if not isinstance(detail, str) or not detail.strip():
        return "status 404"
    return " ".join(detail.split())[:MAX_DETAIL]


def _read_rows(body: bytes, expected_key: str) -> Outcome:
    try:
        text = body.decode("utf-8-sig")
        rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except UnicodeDecodeError as error:
        raise WrongFormatError(f"not UTF-8 at byte {error.start}") from error
    except csv.Error as error:
        raise WrongFormatError(f"not CSV: {error}") from error
    header, *rows = rows
    absent = [name for name in REQUIRED if header.count(name) != 1]
    if absent:
        raise WrongFormatError(f"no column `{absent[0]}`, or more than one, {len(body)} bytes")
    if not rows:
        return EmptyWindow()
    return _sorted_rows(header, rows, f"EXR.{expected_key}")


def _sorted_rows(header: list[str], rows: list[list[str]], expected_key: str) -> Observations:
    key, freq, period, value, state, power = (header.index(name) for name in REQUIRED)
    confidentiality = header.index("OBS_CONF") if "OBS_CONF" in header else None
    seen: set[date] = set()
    observed: list[Observation] = []
    placeholders: list[date] = []
    missing: list[date] = []
    for number, row in enumerate(rows, start=2):
        # A cut answer ends in a row that is too short, and its last rate may lack digits.
        if len(row) != len(header):
            raise WrongFormatError(f"row {number} has {len(row)} of {len(header)} columns")
        _refuse_other_series((row[key], row[freq], row[power]), (expected_key, "D", "0"), number)
        day = _day(row[period], number)
        if day in seen:
            raise WrongFormatError(f"row {number} has `{day}` a second time")
        seen.add(day)
        if row[value] not in NO_VALUE:
            conf = "" if confidentiality is None else row[confidentiality]
            observed.append(Observation(day, _rate(row[value], number), row[state], conf))
        elif row[state] == PLACEHOLDER:
            placeholders.append(day)
        else:
            missing.append(day)
    said = dict(zip(header, rows[-1], strict=True))
    decimals = said.get("DECIMALS", "")
    return Observations(
        tuple(sorted(observed, key=lambda one: one.day)),
        tuple(sorted(placeholders)),
        tuple(sorted(missing)),
        int(decimals) if re.fullmatch(r"[0-9]{1,2}", decimals) else None,
        said.get("TITLE_COMPL", ""),
    )


def _refuse_other_series(
    said: tuple[str, str, str], expected: tuple[str, str, str], number: int
) -> None:
    for name, got, wanted in zip(("KEY", "FREQ", "UNIT_MULT"), said, expected, strict=True):
        if got != wanted:
            raise WrongFormatError(f"row {number} has {name} `{got[:40]}` and not `{wanted}`")


def _day(period: str, number: int) -> date:
    # Asked first: `fromisoformat` takes `2026-W14-1` and `20260331`, which are no days of ours.
    if DAY.fullmatch(period):
        try:
            return date.fromisoformat(period)
        except ValueError:
            pass
    raise WrongFormatError(f"row {number} has period `{period[:20]}` and not a day")


def _rate(value: str, number: int) -> str:
    if not RATE.fullmatch(value) or not value.strip("0."):
        raise WrongFormatError(f"row {number} has value `{value[:20]}` and not a rate above zero")
    return value
