"""TARGET agrees with the ECB's own history, with two libraries, and wrong files are refused."""

from __future__ import annotations

import csv
import io
import zipfile
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import holidays
import pytest
import QuantLib

from limen.answers.calendars import CalendarError, easter, load, target
from limen.servers.ecb.history import CSV_FILE, find_shipped

FIRST = date(1999, 1, 4)
OPEN_DAYS = {
    **{1999: 259, 2000: 255, 2001: 254, 2002: 255, 2003: 255, 2004: 259, 2005: 257, 2006: 255},
    **{2007: 255, 2008: 256, 2009: 256, 2010: 258, 2011: 257, 2012: 256, 2013: 255, 2014: 255},
    **{2015: 256, 2016: 257, 2017: 255, 2018: 255, 2019: 255, 2020: 257, 2021: 258, 2022: 257},
    **{2023: 255, 2024: 256, 2025: 255, 2026: 256, 2027: 258, 2028: 255, 2029: 255, 2030: 255},
}


def days_of_history() -> list[date]:
    with zipfile.ZipFile(find_shipped().path) as archive:
        text = archive.read(CSV_FILE).decode()
    return sorted(date.fromisoformat(row[0]) for row in list(csv.reader(io.StringIO(text)))[1:])


def every_day(first: date, last: date) -> list[date]:
    return [first + timedelta(days=n) for n in range((last - first).days + 1)]


def test_target_agrees_with_the_history_of_the_ecb_in_both_directions() -> None:
    published = days_of_history()
    asked = every_day(published[0], published[-1])
    assert published[0] == FIRST
    assert [day for day in asked if target().is_open(day)] == published


def test_the_history_to_2026_10_30_is_7126_open_2902_weekend_and_134_closed_days() -> None:
    reasons = [target().closing_reason(day) for day in every_day(FIRST, date(2026, 10, 30))]
    closed = [reason for reason in reasons if reason not in (None, "weekend")]
    assert (reasons.count(None), reasons.count("weekend"), len(closed)) == (7126, 2902, 134)
    assert closed.count("good-friday") + closed.count("easter-monday") == 54


@pytest.mark.parametrize("name", ["XECB", "TAR"])
def test_target_agrees_with_the_library_holidays(name: str) -> None:
    theirs = holidays.financial_holidays(name, years=range(1999, 2041))
    for day in every_day(FIRST, date(2040, 12, 31)):
        assert target().is_open(day) == (day.weekday() < 5 and day not in theirs), day


def test_target_agrees_with_quantlib() -> None:
    theirs = QuantLib.TARGET()
    for day in every_day(FIRST, date(2040, 12, 31)):
        expected = theirs.isBusinessDay(QuantLib.Date(day.day, day.month, day.year))
        assert target().is_open(day) == expected, day


def test_open_days_of_each_year_are_counted_by_arithmetic() -> None:
    counted = {
        year: target().count_open(max(FIRST, date(year, 1, 1)), date(year, 12, 31))
        for year in OPEN_DAYS
    }
    assert counted == OPEN_DAYS


@pytest.mark.parametrize(
    ("day", "reason"),
    [
        ("1999-04-02", None),
        ("1999-04-05", None),
        ("1999-12-31", "special-closure"),
        ("2001-12-31", "special-closure"),
        ("2000-01-01", "weekend"),
        ("2015-01-01", "new-years-day"),
        ("2016-03-28", "easter-monday"),
        ("2016-05-02", None),
        ("2023-10-03", None),
        ("2024-05-01", "labour-day"),
        ("2025-12-24", None),
        ("2026-04-03", "good-friday"),
        ("2026-04-06", "easter-monday"),
        ("2026-12-25", "christmas-day"),
        ("2028-12-26", "26-december"),
    ],
)
def test_why_a_day_is_closed(day: str, reason: str | None) -> None:
    assert target().closing_reason(date.fromisoformat(day)) == reason


@pytest.mark.parametrize(
    "day",
    [
        *("2000-04-23", "2012-04-08", "2024-03-31", "2025-04-20"),
        *("2026-04-05", "2027-03-28", "2028-04-16", "2038-04-25"),
    ],
)
def test_easter_sunday(day: str) -> None:
    expected = date.fromisoformat(day)
    assert easter(expected.year) == expected


@pytest.mark.parametrize(
    ("day", "due"),
    [
        ("2019-10-25", "2019-10-25T14:00:00+00:00"),
        ("2019-10-28", "2019-10-28T15:00:00+00:00"),
        ("2026-01-02", "2026-01-02T15:00:00+00:00"),
        ("2026-08-24", "2026-08-24T14:00:00+00:00"),
    ],
)
def test_a_rate_is_due_at_16_in_frankfurt_in_summer_and_in_winter(day: str, due: str) -> None:
    at = target().due_at(date.fromisoformat(day))
    assert at.isoformat() == due
    assert target().late_at(date.fromisoformat(day)) - at == timedelta(hours=1)


def test_the_day_begins_in_frankfurt_not_at_greenwich() -> None:
    half_past_midnight = datetime(2026, 8, 23, 22, 30, tzinfo=UTC)
    assert target().today(half_past_midnight) == date(2026, 8, 24)


def test_the_next_and_the_previous_open_day_step_over_easter() -> None:
    assert target().next_open(date(2026, 4, 2)) == date(2026, 4, 7)
    assert target().previous_open(date(2026, 4, 7)) == date(2026, 4, 2)


@pytest.mark.parametrize("day", [date.min, date.max])
def test_the_ends_of_time_have_no_neighbour_beyond_them(day: date) -> None:
    with pytest.raises(CalendarError, match="knows no open day next to"):
        (target().previous_open if day == date.min else target().next_open)(day)


FILE = """
name = "SHOP"
title = "A shop"
sources = ["https://shop.invalid"]
zone = "Asia/Manila"
published_at = 15:00:00
grace_minutes = 30
closed_as = "closed"
weekend = ["sunday"]
horizon = 2026-12-31
[[special]]
day = 2026-07-24
reason = "storm"
[[yearly]]
month = 2
day = 29
reason = "leap-day"
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "shop.toml"
    file.write_text(text)
    return file


def test_a_calendar_of_one_s_own_is_a_file(tmp_path: Path) -> None:
    shop = load(written(tmp_path, FILE))
    assert shop.closing_reason(date(2026, 7, 24)) == "storm"
    assert shop.closing_reason(date(2026, 7, 25)) is None
    assert shop.closing_reason(date(2024, 2, 29)) == "leap-day"
    assert shop.count_open(date(2025, 2, 1), date(2025, 2, 28)) == 24
    assert shop.due_at(date(2026, 7, 25)).isoformat() == "2026-07-25T07:00:00+00:00"


def test_a_calendar_does_not_guess_beyond_its_horizon(tmp_path: Path) -> None:
    shop = load(written(tmp_path, FILE))
    for ask in (shop.closing_reason, shop.next_open):
        with pytest.raises(CalendarError, match="SHOP ends on `2026-12-31`: `2027-01-01`"):
            ask(date(2027, 1, 1) if ask == shop.closing_reason else date(2026, 12, 31))
    with pytest.raises(CalendarError, match="ends on"):
        shop.open_days(date(2026, 1, 1), date(2027, 1, 1))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('zone = "Asia/Manila"', 'zone = "Asia/Nowhere"', "`zone` does not fit"),
        ('zone = "Asia/Manila"', 'zone = "../../etc/passwd"', "`zone` does not fit"),
        ('["sunday"]', '["funday"]', "`weekend"),
        ("day = 29", "", "`yearly.0` does not fit"),
        ("day = 29", "day = 30", "`yearly.0` does not fit"),
        ("day = 29", "day = 29\neaster = 1", "`yearly.0` does not fit"),
        ('name = "SHOP"', "", "`name` does not fit"),
        ('name = "SHOP"', 'name = "SHOP"\nextra = 1', "`extra` does not fit"),
        ("grace_minutes = 30", "grace_minutes = -1", "`grace_minutes` does not fit"),
        ('name = "SHOP"', "name = ", "cannot read calendar"),
    ],
)
def test_a_wrong_calendar_file_says_what_is_wrong(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    with pytest.raises(CalendarError) as raised:
        load(written(tmp_path, FILE.replace(old, new, 1)))
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_calendar_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CalendarError, match=r"cannot read calendar `.*none.toml`: No such file"):
        load(tmp_path / "none.toml")
