"""The tools of the reference rates, asked through their gate."""

from __future__ import annotations

import base64
import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import jsonschema_rs
import orjson
import pytest

from houses import StillClock, run
from limen.answers.calendars import target
from limen.app import House, new_call_id, open_house
from limen.app.ecb import Rates, build_ecb
from limen.servers.ecb.history import History
from limen.servers.ecb.portal import Portal
from limen.servers.ecb.series import SERIES
from limen.servers.ecb.tools import ecb_catalogue
from limen.settings import Settings
from limen.words import Answer, Call
from promised import promise
from standins.ecb_portal import EMPTY, EcbPortal, Reply, shipped_rows

AFTERWARDS = datetime(2026, 10, 30, 18, 0, tzinfo=UTC)
"""The evening of the last day of the shipped history."""

EASTER = [
    ["2026-03-30", 1.1484],
    ["2026-03-31", 1.1498],
    ["2026-04-01", 1.1605],
    ["2026-04-02", 1.1525],
    ["2026-04-07", 1.1557],
    ["2026-04-08", 1.1706],
    ["2026-04-09", 1.1685],
    ["2026-04-10", 1.1711],
]


@dataclass
class Asked:
    """The server, and what a test asks of it."""

    server: Rates
    clock: StillClock

    def call(self, tool: str, arguments: Mapping[str, Any]) -> Call:
        about = (new_call_id(), self.clock.now(), "stdio", "2026-07-28", "test/1", "tools/call")
        return Call(*about, target=tool, arguments=arguments)

    def answer(self, tool: str, **arguments: Any) -> Answer:
        return run(self.server.gate.answer(self.call(tool, arguments)))

    def text(self, tool: str, **arguments: Any) -> str:
        """Return the JSON as a caller gets it."""
        return orjson.dumps(self.answer(tool, **arguments).result).decode()

    def said(self, tool: str, **arguments: Any) -> dict[str, Any]:
        said: dict[str, Any] = orjson.loads(self.text(tool, **arguments))
        schema = self.server.catalogue.tools[tool].output_schema
        assert schema is not None
        jsonschema_rs.validate(dict(schema), said)
        return said


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with open_house(tmp_path, Settings(), clock=StillClock(AFTERWARDS)) as opened:
        yield opened


@pytest.fixture
def offline(house: House) -> Asked:
    """Return a server of the shipped history, on the evening of its last day."""
    assert isinstance(house.clock, StillClock)
    return Asked(build_ecb(house, source=History(target())), house.clock)


@dataclass
class Live(Asked):
    """The server of a stand-in portal; each question has a connection of its own."""

    portal: EcbPortal
    house: House

    def answer(self, tool: str, **arguments: Any) -> Answer:
        source = Portal(target(), self.clock, base_url=self.portal.url)
        self.server = build_ecb(self.house, source=source)
        call = self.call(tool, arguments)

        async def asked() -> Answer:
            try:
                return await self.server.gate.answer(call)
            finally:
                await source.close()

        return run(asked())


@pytest.fixture
def live(house: House) -> Iterator[Live]:
    """Return a server of a portal that has the real dollar up to 2025-08-29."""
    rates = {
        currency: {d: r for d, r in shipped_rows(currency).items() if d <= date(2025, 8, 29)}
        for currency in ("USD", "GBP")
    }
    assert isinstance(house.clock, StillClock)
    with EcbPortal(rates) as portal:
        server = build_ecb(house, source=History(target()))
        yield Live(server, house.clock, portal, house)


def at(asked: Asked, *moment: int) -> None:
    asked.clock.at = datetime(*moment, tzinfo=UTC)  # type: ignore[arg-type, misc]


@promise("coverage")
def test_the_easter_window_has_eight_rates_and_says_where_the_other_four_days_are(
    offline: Asked,
) -> None:
    said = offline.said("rates_window", currency="USD", start="2026-03-30", end="2026-04-10")
    assert said["observations"] == EASTER
    coverage = said["coverage"]
    assert list(coverage)[:10] == [
        "requested_from",
        "requested_to",
        "requested_calendar_days",
        "expected_observations",
        "delivered_observations",
        "delivered_from",
        "delivered_to",
        "absent",
        "window_still_open",
        "body_completed_at",
    ]
    assert coverage["requested_calendar_days"] == 12
    assert coverage["expected_observations"] == coverage["delivered_observations"] == 8
    assert coverage["absent"]["target_closed"] == 4
    assert coverage["complete"] is True
    assert coverage["weekends"] == {"closed": ["saturday", "sunday"], "days": 2}
    assert [(span["first"], span["reason"]) for span in coverage["spans"]] == [
        ("2026-04-03", "good-friday"),
        ("2026-04-06", "easter-monday"),
    ]
    assert coverage["source"] == said["source"] == "Source: ECB statistics."


@promise("exact-digits")
def test_a_rate_is_a_json_number_of_the_digits_that_were_printed(offline: Asked) -> None:
    text = offline.text("rates_window", currency="INR", start="2025-12-10", end="2025-12-10")
    assert '"observations":[["2025-12-10",104.6008]]' in text
    wide = offline.text("rates_on", currency="IDR", day="2026-10-30")
    printed = shipped_rows("IDR")[date(2026, 10, 30)]
    assert f'"rate":{printed},' in wide


@promise("exact-digits")
def test_zeros_at_the_end_of_a_rate_are_kept(live: Live) -> None:
    at(live, 2025, 8, 29, 18)
    live.portal.publish("USD", date(2025, 8, 29), "1.1500")
    asked = {"currency": "USD", "start": "2025-08-29", "end": "2025-08-29"}
    assert '"observations":[["2025-08-29",1.1500]]' in live.text("rates_window", **asked)
    assert '"rate":1.1500,' in live.text("rates_on", currency="USD", day="2025-08-29")
    assert '"rate":1.1500,' in live.text("rates_latest", currency="USD")


def test_a_window_asked_again_is_certified_for_the_moment_at_which_it_is_asked(
    offline: Asked,
) -> None:
    at(offline, 2026, 10, 30, 14, 30)
    asked = {"currency": "USD", "start": "2026-10-30", "end": "2026-11-02"}
    before = offline.said("rates_window", **asked)["coverage"]
    at(offline, 2026, 10, 30, 14, 31)
    again = offline.said("rates_window", **asked)["coverage"]
    assert again == {**before, "evaluated_at": "2026-10-30T14:31:00+00:00"}
    assert before["absent"]["in_the_future"] == 1
    at(offline, 2026, 11, 2, 12)
    monday = offline.said("rates_window", **asked)["coverage"]
    assert (monday["absent"]["in_the_future"], monday["absent"]["not_yet_published"]) == (0, 1)
    at(offline, 2026, 11, 2, 16, 30)
    late = offline.said("rates_window", **asked)["coverage"]
    assert (late["absent"]["not_yet_published"], late["absent"]["outside_the_source"]) == (0, 1)


def test_one_window_may_ask_several_currencies(offline: Asked) -> None:
    said = offline.said(
        "rates_window", currency=["USD", "JPY"], start="2026-04-07", end="2026-04-07"
    )
    assert [window["currency"] for window in said["windows"]] == ["USD", "JPY"]
    assert all(window["coverage"]["complete"] for window in said["windows"])


def test_a_window_beyond_the_shipped_history_says_that_the_source_ends_there(
    offline: Asked,
) -> None:
    at(offline, 2026, 12, 1, 12)
    said = offline.said("rates_window", currency="USD", start="2026-10-29", end="2026-11-10")
    assert said["coverage"]["absent"]["outside_the_source"] == 7
    assert said["coverage"]["complete"] is False


@pytest.mark.parametrize(
    ("first", "last", "expected", "closed", "before"),
    [
        ("1990-01-01", "1990-12-31", 0, 0, 365),
        ("1998-12-01", "1999-02-01", 21, 8, 34),
        ("1999-04-01", "1999-04-30", 22, 8, 0),
        ("2000-04-01", "2000-04-30", 18, 12, 0),
        ("2001-12-01", "2001-12-31", 18, 13, 0),
        ("2012-04-01", "2012-05-31", 41, 20, 0),
        ("2026-07-01", "2026-07-31", 23, 8, 0),
    ],
)
def test_whole_windows_of_the_dollar_are_as_the_specification_counts_them(
    offline: Asked, first: str, last: str, expected: int, closed: int, before: int
) -> None:
    coverage = offline.said("rates_window", currency="USD", start=first, end=last)["coverage"]
    assert coverage["expected_observations"] == coverage["delivered_observations"] == expected
    assert coverage["absent"]["target_closed"] == closed
    assert coverage["absent"]["before_the_series"] == before
    assert coverage["complete"] is True


def test_the_last_days_of_all_time_are_answered(offline: Asked) -> None:
    coverage = offline.said("rates_window", currency="USD", start="9999-12-30", end="9999-12-31")[
        "coverage"
    ]
    assert coverage["absent"]["in_the_future"] == 2


@pytest.mark.parametrize(
    ("start", "end", "code"),
    [
        ("20260330", "2026-04-10", "invalid_date"),
        ("2026-W14-1", "2026-04-10", "invalid_date"),
        ("2026-02-30", "2026-04-10", "invalid_date"),
        ("٢٠٢٦-٠٣-٣٠", "2026-04-10", "invalid_date"),
        ("2026-04-10", "2026-03-30", "reversed_window"),
        ("1990-01-01", "2040-12-31", "window_too_wide"),
    ],
)
def test_a_window_that_is_none_is_a_business_answer_with_the_next_step(
    offline: Asked, start: str, end: str, code: str
) -> None:
    said = offline.said("rates_window", currency="USD", start=start, end=end)
    assert said["error"] == code
    if code == "invalid_date":
        assert start in said["message"]
        assert "YYYY-MM-DD" in said["message"]


@pytest.mark.parametrize(
    ("currency", "hint"),
    [("usd", "`USD`"), ("ZZZ", "ISO 4217"), ("EUR", "it is 1"), ("", "ISO 4217")],
)
def test_an_unknown_currency_is_told_what_to_write_and_no_other_is_listed(
    offline: Asked, currency: str, hint: str
) -> None:
    said = offline.said("rates_on", currency=currency, day="2026-03-30")
    assert said["error"] == "unknown_series"
    assert hint in said["message"]
    assert "GBP" not in said["message"]


@pytest.mark.parametrize(
    ("currency", "day", "cause", "reason", "previous", "rate"),
    [
        ("USD", "2015-01-01", "target_closed", "new-years-day", "2014-12-31", 1.2141),
        ("USD", "2019-01-01", "target_closed", "new-years-day", "2018-12-31", 1.1450),
        ("LVL", "2014-01-02", "after_the_series", None, "2013-12-31", 0.702804),
        ("HRK", "2023-01-02", "after_the_series", None, "2022-12-30", 7.5365),
        ("BGN", "2026-01-02", "after_the_series", None, "2025-12-31", 1.9558),
        ("USD", "2024-01-07", "target_closed", "weekend", "2024-01-05", 1.0921),
        ("ISK", "2010-06-01", "series_suspended", None, "2008-12-09", 290.0),
    ],
)
def test_a_day_without_a_rate_says_why_and_which_day_has_the_last_one(
    offline: Asked,
    currency: str,
    day: str,
    cause: str,
    reason: str | None,
    previous: str,
    rate: float,
) -> None:
    said = offline.said("rates_on", currency=currency, day=day)
    assert (said["error"], said["cause"], said.get("closed_because")) == ("no_rate", cause, reason)
    assert said["previous_day"] == previous
    fallback = offline.said("rates_on", currency=currency, day=day, fallback="previous")
    assert (fallback["day"], fallback["rate"], fallback["is_fallback"]) == (previous, rate, True)
    assert fallback["passed_over"]["absent"][cause] >= 1


def test_before_a_series_there_is_no_rate_and_never_one_that_was_made_up(offline: Asked) -> None:
    said = offline.said("rates_window", currency="RUB", start="2000-01-01", end="2000-01-10")
    assert said["observations"] == []
    assert said["coverage"]["absent"]["before_the_series"] == 10
    on = offline.said("rates_on", currency="RUB", day="2000-01-05", fallback="previous")
    assert (on["error"], on["cause"]) == ("no_rate", "before_the_series")


@pytest.mark.parametrize(
    ("currency", "day", "printed"),
    [
        ("USD", "2022-07-19", "1.0245"),
        ("GBP", "2025-03-18", "0.84173"),
        ("USD", "2019-10-29", "1.1095"),
        ("USD", "2019-10-30", "1.1106"),
        ("USD", "2016-05-02", None),
        ("USD", "2023-10-03", None),
        ("USD", "2025-12-24", None),
    ],
)
def test_a_day_with_a_rate_has_its_own(
    offline: Asked, currency: str, day: str, printed: str | None
) -> None:
    expected = printed or shipped_rows(currency)[date.fromisoformat(day)]
    text = offline.text("rates_on", currency=currency, day=day)
    assert f'"day":"{day}","rate":{expected},"is_fallback":false' in text


@promise("no-silent-fallback")
def test_a_day_after_the_shipped_history_is_not_answered_with_an_older_rate(
    offline: Asked,
) -> None:
    at(offline, 2026, 12, 1, 12)
    for fallback in ("none", "previous"):
        said = offline.said("rates_on", currency="USD", day="2026-11-10", fallback=fallback)
        assert (said["error"], said["data_through"]) == ("not_covered", "2026-10-30")
    latest = offline.said("rates_latest", currency="USD")["rates"][0]
    assert (latest["day"], latest["up_to_date"]) == ("2026-10-30", False)
    assert latest["passed_over"]["absent"]["outside_the_source"] > 0


def test_on_a_sunday_fridays_rate_is_the_latest_and_nothing_is_late(live: Live) -> None:
    at(live, 2025, 8, 31, 12)
    latest = live.said("rates_latest", currency="USD")["rates"][0]
    assert (latest["day"], latest["rate"], latest["up_to_date"]) == ("2025-08-29", 1.1658, True)
    assert latest["passed_over"]["weekends"]["days"] == 2
    assert latest["next_due"] == "2025-09-01T14:00:00+00:00"


def test_in_the_morning_todays_rate_is_not_yet_published(live: Live) -> None:
    live.portal.rates["USD"] = {
        d: r for d, r in shipped_rows("USD").items() if d <= date(2024, 7, 26)
    }
    at(live, 2024, 7, 29, 8)
    latest = live.said("rates_latest", currency="USD")["rates"][0]
    assert (latest["day"], latest["rate"], latest["up_to_date"]) == ("2024-07-26", 1.0860, True)
    assert latest["passed_over"]["absent"]["not_yet_published"] == 1
    on = live.said("rates_on", currency="USD", day="2024-07-29")
    assert (on["error"], on["cause"]) == ("no_rate", "not_yet_published")
    assert "2024-07-29T14:00Z" in on["message"]
    live.portal.publish("USD", date(2024, 7, 29), "1.0817")
    at(live, 2024, 7, 29, 14, 30)
    assert live.said("rates_latest", currency="USD")["rates"][0]["rate"] == 1.0817


def test_half_an_hour_after_midnight_in_frankfurt_it_is_the_new_day(live: Live) -> None:
    at(live, 2025, 8, 28, 22, 30)
    del live.portal.rates["USD"][date(2025, 8, 29)]
    said = live.said("rates_latest", currency="USD")
    assert (said["asked_day"], said["timezone"]) == ("2025-08-29", "Europe/Berlin")
    assert said["rates"][0]["passed_over"]["absent"]["not_yet_published"] == 1


def test_an_empty_answer_for_a_weekend_is_a_whole_window(live: Live) -> None:
    at(live, 2025, 8, 29, 18)
    live.portal.then(EMPTY)
    said = live.said("rates_window", currency="USD", start="2024-01-06", end="2024-01-07")
    assert (said["observations"], said["coverage"]["complete"]) == ([], True)
    assert said["coverage"]["delivered_from"] is None


def test_a_rate_that_is_missing_at_the_source_is_a_gap_with_its_day(live: Live) -> None:
    at(live, 2025, 8, 29, 18)
    del live.portal.rates["USD"][date(2025, 4, 8)]
    said = live.said("rates_window", currency="USD", start="2025-04-07", end="2025-04-09")
    assert said["coverage"]["absent"]["no_such_observation"] == 1
    assert said["coverage"]["spans"] == [
        {
            "cause": "no_such_observation",
            "first": "2025-04-08",
            "last": "2025-04-08",
            "days": 1,
        }
    ]
    on = live.said("rates_on", currency="USD", day="2025-04-08", fallback="previous")
    assert (on["error"], on["cause"]) == ("no_rate", "no_such_observation")


def test_a_source_that_cannot_answer_is_a_business_answer_without_a_number(live: Live) -> None:
    at(live, 2025, 8, 29, 18)
    live.portal.then(Reply(400, b"<html>1.1500</html>", "text/html"))
    said = live.said("rates_window", currency="USD", start="2025-04-07", end="2025-04-09")
    assert (said["ok"], said["error"]) == (False, "rejected_parameters")
    live.portal.then(Reply(body=b'<?xml version="1.0"?><x/>', content_type="text/xml"))
    said = live.said("rates_window", currency="USD", start="2025-04-07", end="2025-04-09")
    assert said["error"] == "source_changed"


@pytest.mark.parametrize(
    ("amount", "from_currency", "to_currency", "day", "result"),
    [
        (1, "USD", "EUR", "2021-06-11", "0.8247422680"),
        ("100", "EUR", "USD", "2026-04-10", "117.1100000000"),
        (1, "EUR", "EUR", "2026-04-10", "1.0000000000"),
        ("-12.50", "USD", "USD", "2026-04-10", "-12.5000000000"),
        (0.1, "EUR", "USD", "2026-04-10", "0.1171100000"),
    ],
)
def test_a_conversion_goes_through_the_euro_with_both_rates_of_one_day(
    offline: Asked, amount: Any, from_currency: str, to_currency: str, day: str, result: str
) -> None:
    arguments = {"from_currency": from_currency, "to_currency": to_currency, "day": day}
    text = offline.text("convert", amount=amount, **arguments)
    assert f'"result":{result},"day":"{day}"' in text
    said = offline.said("convert", amount=amount, **arguments)
    assert all(leg["day"] == day for leg in said["legs"])


def test_a_conversion_states_its_direction_and_takes_the_last_common_day(offline: Asked) -> None:
    said = offline.said("convert", amount=1, from_currency="USD", to_currency="PHP")
    assert said["day"] == "2026-10-30"
    assert said["direction"] == "amount in USD / USD for 1 EUR × PHP for 1 EUR = result in PHP"
    dollar, peso = (float(leg["rate"]) for leg in said["legs"])
    assert said["result"] == pytest.approx(peso / dollar)
    weekend = offline.said(
        "convert", amount=1, from_currency="USD", to_currency="EUR", day="2021-06-12"
    )
    assert (weekend["error"], weekend["previous_day"]) == ("no_rate", "2021-06-11")


@pytest.mark.parametrize("amount", ["1e3", "NaN", " 1", "1,5", "0x10", "1" * 16, "", "٣"])
def test_an_amount_that_is_no_plain_decimal_is_refused(offline: Asked, amount: str) -> None:
    said = offline.said("convert", amount=amount, from_currency="USD", to_currency="EUR")
    assert said["error"] == "invalid_amount"


@pytest.mark.parametrize(
    ("day", "status", "reason"),
    [
        ("1998-12-31", "before_the_series", None),
        ("1999-04-02", "expected", None),
        ("1999-12-31", "closed", "special-closure"),
        ("2026-04-03", "closed", "good-friday"),
        ("2026-08-22", "closed", "weekend"),
        ("2016-05-02", "expected", None),
        ("2016-03-28", "closed", "easter-monday"),
        ("2024-05-01", "closed", "labour-day"),
        ("2026-10-30", "expected", None),
        ("2026-11-02", "in_the_future", None),
    ],
)
def test_the_calendar_says_why(offline: Asked, day: str, status: str, reason: str | None) -> None:
    said = offline.said("calendar_why", day=day)
    assert (said["status"], said["closed_because"]) == (status, reason)


@pytest.mark.parametrize(
    ("hour", "minute", "status"),
    [(12, 30, "not_yet_published"), (14, 59, "not_yet_published"), (15, 0, "expected")],
)
def test_a_rate_is_not_yet_published_until_an_hour_after_it_is_due(
    offline: Asked, hour: int, minute: int, status: str
) -> None:
    at(offline, 2026, 8, 24, hour, minute)
    assert offline.said("calendar_why", day="2026-08-24")["status"] == status


@pytest.mark.parametrize(("day", "due"), [("2019-10-25", "14:00"), ("2019-10-28", "15:00")])
def test_rates_are_due_at_four_in_frankfurt_whatever_the_season(
    offline: Asked, day: str, due: str
) -> None:
    said = offline.said("calendar_why", day=day)
    assert said["due_at"] == f"{day}T{due}:00+00:00"


def test_the_calendar_of_a_window_adds_up(offline: Asked) -> None:
    said = offline.said("calendar_window", start="1998-12-01", end="2026-08-25")
    assert said["open_days"] == 7_078
    assert len(said["closings"]) == 134
    assert said["before_the_series"] == 34
    assert said["calendar_days"] == 7_078 + 134 + 34 + said["weekends"]["days"]
    assert said["weekends"]["days"] == 2_884
    one = offline.said("calendar_window", start="1998-12-01", end="1998-12-01")
    assert (one["before_the_series"], one["open_days"], one["weekends"]["days"]) == (1, 0, 0)


def test_a_series_is_described_with_its_end_and_its_pauses(offline: Asked) -> None:
    krona = offline.said("series_describe", currency="ISK")
    assert krona["suspended"] == [{"first": "2008-12-10", "last": "2018-01-31"}]
    kuna = offline.said("series_describe", currency="HRK")
    assert (kuna["status"], kuna["last_day"]) == ("ended", "2022-12-30")
    assert "Croatia" in kuna["why_ended"]


def test_the_catalogue_of_series_has_a_scope_of_its_own(offline: Asked) -> None:
    assert len(offline.said("series_catalogue")["series"]) == len(SERIES) == 41
    assert offline.server.catalogue.tools["series_catalogue"].scope == "series:list"
    others = {e.scope for e in offline.server.catalogue.tools.values()} - {"series:list"}
    assert others == {"rates:read"}


def test_every_tool_has_a_title_and_a_typed_answer_that_names_its_source() -> None:
    for entry in ecb_catalogue("1").tools.values():
        assert entry.title != entry.name
        assert entry.output_schema is not None
        assert '"source"' in orjson.dumps(entry.output_schema).decode()


def test_all_current_currencies_are_answered_at_once(offline: Asked) -> None:
    said = offline.said("rates_latest")
    assert len(said["rates"]) == sum(series.last_day is None for series in SERIES.values())
    assert said["without"] == []
    assert {rate["day"] for rate in said["rates"]} == {"2026-10-30"}


@pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="needs the extra: limen[plot]"
)
def test_a_chart_is_a_png_with_its_numbers_and_their_certificate(offline: Asked) -> None:
    asked = {"currency": "ISK", "start": "2008-11-01", "end": "2018-03-01"}
    answer = offline.answer("rates_chart", **asked)
    [image] = answer.content
    assert image["mimeType"] == "image/png"
    assert base64.b64decode(image["data"]).startswith(b"\x89PNG\r\n\x1a\n")
    assert offline.said("rates_chart", **asked)["coverage"]["absent"]["series_suspended"] > 2_000
