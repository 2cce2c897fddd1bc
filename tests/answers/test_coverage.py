"""The certificate: every golden case, each cause, and what it refuses to certify."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limen.answers.calendars import target
from limen.answers.coverage import (
    CAUSES,
    MAX_SPAN,
    MAX_SPANS,
    Coverage,
    CoverageError,
    SeriesLife,
    SourceReach,
    certify,
)
from limen.answers.days import Days

LATER = datetime(2026, 12, 1, 12, tzinfo=UTC)
USD = SeriesLife(date(1999, 1, 4), None, ())
UNKNOWN = SeriesLife(None, None, ())
FRANKFURT = ZoneInfo("Europe/Berlin")


def day(text: str) -> date:
    return date.fromisoformat(text)


def certificate(
    first: str,
    last: str,
    delivered: Iterable[date] | Days | None = None,
    *,
    life: SeriesLife = USD,
    now: datetime = LATER,
    as_of: datetime | None = None,
    asked: tuple[date | None, date | None] = (None, None),
) -> Coverage:
    """Certify a window; without `delivered`, all that the calendar promises came."""
    if delivered is None:
        delivered = target().open_days(day(first), day(last))
    return certify(
        target(),
        life,
        SourceReach(*asked, as_of or now),
        requested_from=day(first),
        requested_to=day(last),
        delivered=delivered,
        evaluated_at=now,
        source="ECB statistics.",
    )


def at_frankfurt(hour: int, minute: int) -> datetime:
    return datetime(2026, 8, 24, hour, minute, tzinfo=FRANKFURT)


def figures(made: Coverage) -> tuple[int, ...]:
    """Return the figures of the golden table: from calendar days to before the series."""
    absent = made.absent
    return (
        made.requested_calendar_days,
        made.expected_observations,
        made.delivered_observations,
        absent["target_closed"],
        absent["not_yet_published"] + absent["in_the_future"],
        absent["no_such_observation"],
        absent["before_the_series"],
    )


EASTER = ("2026-03-30", "2026-04-10")


@pytest.mark.parametrize(
    ("window", "expected", "complete"),
    [
        (EASTER, (12, 8, 8, 4, 0, 0, 0), True),
        (("2026-08-22", "2026-08-23"), (2, 0, 0, 2, 0, 0, 0), True),
        (("1999-04-01", "1999-04-30"), (30, 22, 22, 8, 0, 0, 0), True),
        (("2000-04-01", "2000-04-30"), (30, 18, 18, 12, 0, 0, 0), True),
        (("2001-12-01", "2001-12-31"), (31, 18, 18, 13, 0, 0, 0), True),
        (("2012-04-01", "2012-05-31"), (61, 41, 41, 20, 0, 0, 0), True),
        (("2026-07-01", "2026-07-31"), (31, 23, 23, 8, 0, 0, 0), True),
    ],
)
def test_a_whole_window_is_certified_as_complete(
    window: tuple[str, str], expected: tuple[int, ...], complete: bool
) -> None:
    made = certificate(*window)
    assert figures(made) == expected
    assert made.complete is complete
    assert made.window_still_open is False


def test_a_day_that_is_missing_is_a_gap_with_its_date() -> None:
    came = target().open_days(*map(day, EASTER)) - Days.of([day("2026-04-08")])
    made = certificate(*EASTER, came)
    assert figures(made) == (12, 8, 7, 4, 0, 1, 0)
    assert (made.complete, made.window_still_open) == (False, False)
    gaps = [span for span in made.spans if span.cause == "no_such_observation"]
    assert [(span.first, span.last, span.days) for span in gaps] == [
        (day("2026-04-08"), day("2026-04-08"), 1)
    ]


def test_a_weekend_is_complete_with_nothing_delivered() -> None:
    made = certificate("2026-08-22", "2026-08-23", [])
    assert (made.delivered_from, made.delivered_to, made.complete) == (None, None, True)
    assert made.weekends == {"closed": ["saturday", "sunday"], "days": 2}
    assert made.spans == ()


@pytest.mark.parametrize(
    ("hour", "minute", "is_open"),
    [
        *((14, 30, True), (15, 0, True), (16, 30, True), (16, 59, True)),
        *((17, 0, False), (17, 1, False), (17, 30, False)),
    ],
)
def test_a_rate_is_missing_from_17_in_frankfurt_and_only_awaited_before(
    hour: int, minute: int, is_open: bool
) -> None:
    made = certificate("2026-08-24", "2026-08-24", [], now=at_frankfurt(hour, minute))
    assert figures(made) == (1, 1, 0, 0, int(is_open), int(not is_open), 0)
    assert (made.window_still_open, made.complete) == (is_open, False)
    assert made.absent["in_the_future"] == 0


def test_before_the_series_nothing_is_expected() -> None:
    made = certificate("1990-01-01", "1990-12-31", [])
    assert figures(made) == (365, 0, 0, 0, 0, 0, 365)
    assert made.complete


def test_the_start_of_a_series_is_never_guessed() -> None:
    made = certificate("1990-01-01", "1990-12-31", [], life=UNKNOWN)
    assert figures(made) == (365, 261, 0, 104, 0, 261, 0)
    assert not made.complete
    assert [(span.first, span.last, span.days) for span in made.spans] == [
        (day("1990-01-01"), day("1990-12-31"), 261)
    ]


def test_a_window_over_the_start_of_a_series_tells_the_two_apart() -> None:
    assert figures(certificate("1998-12-01", "1999-02-01", [])) == (63, 21, 0, 8, 0, 21, 34)


def test_the_last_days_of_time_are_answered() -> None:
    made = certificate("9999-12-30", "9999-12-31", [])
    assert figures(made) == (2, 2, 0, 0, 2, 0, 0)
    assert made.absent["in_the_future"] == 2
    assert made.window_still_open


def test_the_first_days_of_time_are_answered() -> None:
    assert figures(certificate("0001-01-01", "0001-01-02", [])) == (2, 0, 0, 0, 0, 0, 2)


def test_a_month_to_come_is_in_the_future_not_late() -> None:
    made = certificate("2026-12-01", "2026-12-31", [], now=datetime(2026, 11, 30, 18, tzinfo=UTC))
    assert made.expected_observations == 22
    assert made.absent["target_closed"] == 9
    assert made.absent["in_the_future"] == 22
    assert made.absent["not_yet_published"] == 0


def test_after_the_series_nothing_is_expected() -> None:
    hrk = SeriesLife(day("2005-04-01"), day("2022-12-30"), ())
    came = [day("2022-12-29"), day("2022-12-30")]
    made = certificate("2022-12-29", "2023-01-03", came, life=hrk)
    assert made.expected_observations == 2
    assert made.absent["after_the_series"] == 4
    assert made.complete


def test_a_suspended_series_is_not_a_gap() -> None:
    isk = SeriesLife(day("1999-01-04"), None, ((day("2008-12-10"), day("2018-01-31")),))
    came = [day("2008-12-08"), day("2008-12-09")]
    made = certificate("2008-12-08", "2008-12-12", came, life=isk)
    assert (made.expected_observations, made.absent["series_suspended"]) == (2, 3)
    assert made.complete


def test_a_source_that_was_asked_for_less_does_not_make_the_rest_a_gap() -> None:
    came = target().open_days(day("2026-07-01"), day("2026-07-31"))
    asked = (day("2026-07-01"), day("2026-07-31"))
    made = certificate("2026-06-29", "2026-08-04", came, asked=asked)
    assert made.absent["outside_the_source"] == 4
    assert made.absent["no_such_observation"] == 0
    assert not made.complete


def test_a_body_of_august_says_nothing_of_september() -> None:
    as_of = datetime(2026, 8, 26, 6, tzinfo=UTC)
    came = [day("2026-08-24"), day("2026-08-25")]
    made = certificate("2026-08-24", "2026-08-28", came, as_of=as_of)
    assert made.absent["outside_the_source"] == 3
    assert made.absent["no_such_observation"] == 0
    assert (made.as_of_body, made.body_completed_at, made.evaluated_at) == (as_of, as_of, LATER)


def test_a_body_fetched_before_the_grace_was_over_does_not_prove_a_gap() -> None:
    made = certificate("2026-08-24", "2026-08-24", [], as_of=at_frankfurt(16, 30))
    assert made.absent["outside_the_source"] == 1


def test_a_run_goes_on_over_days_on_which_nothing_was_due() -> None:
    came = target().open_days(*map(day, EASTER)) - Days.of([day("2026-04-02"), day("2026-04-07")])
    made = certificate(*EASTER, came)
    gaps = [span for span in made.spans if span.cause == "no_such_observation"]
    assert [(span.first, span.last, span.days) for span in gaps] == [
        (day("2026-04-02"), day("2026-04-07"), 2)
    ]


def test_an_observation_on_a_closed_day_is_counted_and_not_explained_away() -> None:
    made = certificate("2026-04-03", "2026-04-03", [day("2026-04-03")])
    assert figures(made) == (1, 1, 1, 0, 0, 0, 0)


def test_closed_weekdays_are_named_with_their_reasons() -> None:
    made = certificate(*EASTER)
    assert [(span.first, span.reason) for span in made.spans] == [
        (day("2026-04-03"), "good-friday"),
        (day("2026-04-06"), "easter-monday"),
    ]
    assert not made.spans_cut


def test_a_long_list_is_cut_and_says_so_and_gaps_come_before_closings() -> None:
    first, last = "1999-01-04", "2026-10-30"
    came = target().open_days(day(first), day(last)) - Days.of([day("2025-06-03")])
    made = certificate(first, last, came)
    assert (len(made.spans), made.spans_cut) == (MAX_SPANS, True)
    assert made.spans[-1].cause == "no_such_observation"
    assert figures(made) == (10_162, 7_126, 7_125, 3_036, 0, 1, 0)


@pytest.mark.parametrize(
    ("first", "last", "code", "said"),
    [
        ("2026-04-10", "2026-03-30", "reversed_window", "ends on `2026-03-30`, before it begins"),
        ("1999-01-04", "2041-01-01", "window_too_wide", "15339 days; at most 15338"),
    ],
)
def test_a_window_that_is_none_is_refused(first: str, last: str, code: str, said: str) -> None:
    with pytest.raises(CoverageError, match=said) as raised:
        certificate(first, last, [])
    assert raised.value.code == code


def test_the_widest_window_is_certified() -> None:
    assert certificate("1999-01-04", "2040-12-31", []).requested_calendar_days == MAX_SPAN


def test_a_time_without_a_zone_is_refused() -> None:
    naive = datetime(2026, 4, 11)
    for times in ({"now": naive}, {"as_of": naive}):
        with pytest.raises(CoverageError, match="has no zone"):
            certificate(*EASTER, [], **times)  # type: ignore[arg-type]


@pytest.mark.parametrize("outside", ["2026-03-29", "2026-04-11"])
def test_what_lies_outside_the_window_is_never_certified(outside: str) -> None:
    with pytest.raises(CoverageError, match="outside the window"):
        certificate(*EASTER, [day(outside)])


def test_no_field_of_a_certificate_has_a_default() -> None:
    for field in dataclasses.fields(Coverage):
        assert field.default is dataclasses.MISSING
        assert field.default_factory is dataclasses.MISSING


def test_the_fields_have_the_agreed_names_and_order() -> None:
    names = list(certificate(*EASTER).as_json())
    assert names[:11] == [
        *("requested_from", "requested_to", "requested_calendar_days", "expected_observations"),
        *("delivered_observations", "delivered_from", "delivered_to", "absent"),
        *("window_still_open", "body_completed_at", "source"),
    ]
    assert list(certificate(*EASTER).as_json()["absent"]) == ["target_closed", *CAUSES]


def walked(first: date, last: date, came: set[date], life: SeriesLife, now: datetime) -> Any:
    """Count by walking day by day, as slowly and plainly as can be."""
    counts = dict.fromkeys(("target_closed", *CAUSES), 0)
    for number in range((last - first).days + 1):
        one = first + timedelta(days=number)
        if one in came:
            continue
        if life.first_day and one < life.first_day:
            counts["before_the_series"] += 1
        elif life.last_day and one > life.last_day:
            counts["after_the_series"] += 1
        elif any(since <= one <= until for since, until in life.suspended):
            counts["series_suspended"] += 1
        elif target().closing_reason(one):
            counts["target_closed"] += 1
        elif one > target().today(now):
            counts["in_the_future"] += 1
        elif now < target().late_at(one):
            counts["not_yet_published"] += 1
        else:
            counts["no_such_observation"] += 1
    return counts


@given(
    first=st.dates(date(1998, 1, 1), date(2028, 1, 1)),
    length=st.integers(0, 900),
    now=st.datetimes(datetime(2000, 1, 1), datetime(2028, 1, 1), timezones=st.just(UTC)),
    life=st.tuples(
        st.none() | st.dates(date(1998, 1, 1), date(2028, 1, 1)),
        st.none() | st.dates(date(1998, 1, 1), date(2028, 1, 1)),
    ),
    seed=st.integers(0, 1000),
)
def test_arithmetic_by_year_says_what_a_walk_day_by_day_says(
    first: date,
    length: int,
    now: datetime,
    life: tuple[date | None, date | None],
    seed: int,
) -> None:
    last = first + timedelta(days=length)
    series = SeriesLife(*life, ((date(2008, 12, 10), date(2018, 1, 31)),))
    pick = random.Random(seed)
    every = [first + timedelta(days=n) for n in range(length + 1)]
    came = {one for one in every if pick.random() < 0.5}
    made = certificate(str(first), str(last), came, life=series, now=now)
    counts = walked(first, last, came, series, now)
    assert dict(made.absent) == counts
    assert sum(counts.values()) + made.delivered_observations == made.requested_calendar_days
    listed = [span for span in made.spans if span.cause == "no_such_observation"]
    if not made.spans_cut:
        assert sum(span.days for span in listed) == counts["no_such_observation"]
