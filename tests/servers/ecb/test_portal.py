"""The live source, against a stand-in of the portal that can misbehave."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any, TypeVar

import pytest

from houses import run
from limen.answers.calendars import target
from limen.servers.ecb.portal import GONE_HOST, Portal
from limen.servers.ecb.sources import RejectedError, UnknownSeriesError
from limen.upstream.client import Manners
from limen.upstream.errors import (
    SourceChangedError,
    SourceDownError,
    SourceThrottledError,
    WrongHostError,
)
from standins.ecb_portal import (
    EMPTY,
    HEADER_ONLY,
    HTML_400,
    XML_AT_200,
    EcbPortal,
    Reply,
    Slow,
    body,
    row,
    shipped_rows,
)
from standins.patience import PatientClock

T = TypeVar("T")

MONDAY, FRIDAY = date(2026, 8, 17), date(2026, 8, 21)


@pytest.fixture
def portal() -> Iterator[EcbPortal]:
    days = {day: rate for day, rate in shipped_rows("USD").items() if day <= date(2026, 8, 25)}
    with EcbPortal({"USD": days}) as opened:
        yield opened


@pytest.fixture
def clock() -> PatientClock:
    return PatientClock()


def ask(
    portal: EcbPortal,
    clock: PatientClock,
    work: Callable[[Portal], Awaitable[T]],
    manners: Manners | None = None,
) -> T:
    async def asked() -> T:
        source = Portal(target(), clock, base_url=portal.url, manners=manners, sleep=clock.sleep)
        try:
            return await work(source)
        finally:
            await source.close()

    return run(asked())


def week(source: Portal) -> Any:
    return source.window("USD", MONDAY, FRIDAY)


def test_a_window_is_asked_for_as_the_portal_documents_it(
    portal: EcbPortal, clock: PatientClock
) -> None:
    got = ask(portal, clock, week)
    assert got.rates[FRIDAY] == shipped_rows("USD")[FRIDAY]
    [request] = portal.requests
    assert request.path == "/service/data/EXR/D.USD.EUR.SP00.A"
    assert request.query == {
        "format": "csvdata",
        "startPeriod": "2026-08-17",
        "endPeriod": "2026-08-21",
    }
    assert "limen" in request.headers["user-agent"].lower()
    assert "authorization" not in request.headers
    assert got.source == "Source: ECB statistics."


def test_a_window_in_a_fresh_body_is_answered_without_asking(
    portal: EcbPortal, clock: PatientClock
) -> None:
    async def twice(source: Portal) -> None:
        await week(source)
        inner = await source.window("USD", date(2026, 8, 18), date(2026, 8, 19))
        assert list(inner.rates) == [date(2026, 8, 18), date(2026, 8, 19)]

    ask(portal, clock, twice)
    assert len(portal.requests) == 1


def test_after_the_next_publication_it_asks_what_has_changed_since(
    portal: EcbPortal, clock: PatientClock
) -> None:
    today = date(2026, 8, 26)

    async def days(source: Portal) -> None:
        first = await source.window("USD", MONDAY, today)
        clock.move(hours=4)
        assert await source.window("USD", MONDAY, today) == first
        clock.move(hours=1, minutes=1)
        again = await source.window("USD", MONDAY, today)
        assert again.rates == first.rates
        assert again.completed_at > first.completed_at
        portal.publish("USD", today, "1.1500")
        clock.move(seconds=31)
        assert (await source.window("USD", MONDAY, today)).rates[today] == "1.1500"

    ask(portal, clock, days)
    assert len(portal.requests) == 3
    assert portal.requests[1].headers["if-modified-since"] == "Tue, 25 Aug 2026 13:57:01 GMT"


def test_a_thousand_who_ask_for_one_window_make_one_request(
    portal: EcbPortal, clock: PatientClock
) -> None:
    may_answer = threading.Event()
    portal.then(Slow(may_answer))

    async def all_at_once(source: Portal) -> None:
        tasks = [asyncio.ensure_future(week(source)) for _ in range(1_000)]
        await asyncio.sleep(0.05)
        tasks[0].cancel()
        may_answer.set()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(done[0], asyncio.CancelledError)
        assert all(one == done[1] for one in done[1:])

    ask(portal, clock, all_at_once)
    assert len(portal.requests) == 1


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (HTML_400, RejectedError),
        (Reply(406), RejectedError),
        (XML_AT_200, SourceChangedError),
        (Reply(body=b"<html>1.1500</html>"), SourceChangedError),
        (Reply(body=b'{"TIME_PERIOD": 1}'), SourceChangedError),
        (Reply(304), SourceChangedError),
        (Reply(body=body(row("GBP", "2026-08-18", "0.86"))), SourceChangedError),
        (Reply(body=body(row("USD", "2026-08-18", "1.1", FREQ="M"))), SourceChangedError),
        (Reply(body=body(row("USD", "2026-W34", "1.1"))), SourceChangedError),
        (Reply(body=body(row("USD", "2026-08-18", "1,1"))), SourceChangedError),
        (Reply(body=body(row("USD", "2026-08-18", "-1.1"))), SourceChangedError),
        (Reply(body=body(row("USD", "2026-08-18", "007.1"))), SourceChangedError),
        (Reply(body=body(row("USD", "2026-08-18", "0.0"))), SourceChangedError),
        (Reply(body=body(*[row("USD", "2026-08-18", "1.1")] * 2)), SourceChangedError),
        (Reply(body=body(row("USD", "2026-09-01", "1.1"))), SourceChangedError),
        (Reply(body=body(row("USD", "2026-08-18", "1.1"))[:-40]), SourceChangedError),
    ],
)
def test_an_answer_that_is_not_whole_and_ours_gives_no_rate(
    portal: EcbPortal, clock: PatientClock, reply: Reply, error: type[Exception]
) -> None:
    portal.then(reply)
    with pytest.raises(error):
        ask(portal, clock, week)
    assert len(portal.requests) == 1


@pytest.mark.parametrize("reply", [EMPTY, HEADER_ONLY, Reply(body=b"\xef\xbb\xbf \r\n")])
def test_an_answer_without_rows_is_an_empty_window(
    portal: EcbPortal, clock: PatientClock, reply: Reply
) -> None:
    portal.then(reply)
    assert dict(ask(portal, clock, week).rates) == {}


def test_a_row_without_a_rate_is_a_placeholder_or_missing(
    portal: EcbPortal, clock: PatientClock
) -> None:
    rows = [
        row("USD", "2026-08-17", "", "H"),
        row("USD", "2026-08-18", "NaN", "M"),
        row("USD", "2026-08-19", "-", "M"),
        row("USD", "2026-08-20", "1.1500", "E"),
    ]
    portal.then(Reply(body=b"\xef\xbb\xbf" + body(*rows)))
    got = ask(portal, clock, week)
    assert dict(got.rates) == {date(2026, 8, 20): "1.1500"}
    assert got.placeholders == (date(2026, 8, 17),)
    assert got.missing == (date(2026, 8, 18), date(2026, 8, 19))
    assert got.statuses == {date(2026, 8, 20): "E"}


def test_a_failure_is_tried_again_and_each_try_pays(portal: EcbPortal, clock: PatientClock) -> None:
    portal.then(Reply(500), Reply(502))
    assert ask(portal, clock, week).rates
    assert len(portal.requests) == 3
    assert len(clock.slept) == 2
    portal.then(Reply(500), Reply(500), Reply(500))
    with pytest.raises(SourceDownError):
        ask(portal, clock, week)


def test_the_portal_says_when_to_come_back_and_is_obeyed(
    portal: EcbPortal, clock: PatientClock
) -> None:
    portal.then(Reply(503, headers={"Retry-After": "7"}))
    assert ask(portal, clock, week).rates
    assert sum(clock.slept) >= 7
    portal.then(*[Reply(429, headers={"Retry-After": "3600"})] * 3)
    with pytest.raises(SourceThrottledError) as caught:
        ask(portal, clock, week)
    assert caught.value.retry_after_s == 3600


def test_a_cut_answer_is_no_answer(portal: EcbPortal, clock: PatientClock) -> None:
    portal.then(*[Reply(body=body(row("USD", "2026-08-18", "1.1485")), cut=True)] * 3)
    with pytest.raises(SourceDownError):
        ask(portal, clock, week)


def test_more_questions_than_the_throttle_lets_wait_their_turn(
    portal: EcbPortal, clock: PatientClock
) -> None:
    async def many(source: Portal) -> None:
        for day in range(1, 8):
            await source.window("USD", date(2026, 5, day), date(2026, 5, day))

    ask(portal, clock, many, replace(Manners(), burst=2, per_second=1.0))
    assert sum(clock.slept) == pytest.approx(5.0)


def test_an_unknown_currency_and_a_reversed_window_are_not_asked(
    portal: EcbPortal, clock: PatientClock
) -> None:
    with pytest.raises(UnknownSeriesError):
        ask(portal, clock, lambda source: source.window("ZZZ", MONDAY, FRIDAY))
    with pytest.raises(RejectedError):
        ask(portal, clock, lambda source: source.window("USD", FRIDAY, MONDAY))
    assert portal.requests == []


def test_a_series_that_the_portal_does_not_have_is_said_in_its_words(
    portal: EcbPortal, clock: PatientClock
) -> None:
    with pytest.raises(UnknownSeriesError, match="No Series was returned"):
        ask(portal, clock, lambda source: source.window("GBP", MONDAY, FRIDAY))


@pytest.mark.parametrize(
    "url",
    [
        f"https://{GONE_HOST}",
        "http://data-api.ecb.europa.eu",
        "https://user:word@data-api.ecb.europa.eu",
        "https://data-api.ecb.europa.eu/service",
        "ftp://data-api.ecb.europa.eu",
        "nonsense",
    ],
)
def test_a_host_that_may_not_be_asked_is_refused_at_once(clock: PatientClock, url: str) -> None:
    with pytest.raises(WrongHostError) as caught:
        Portal(target(), clock, base_url=url)
    if GONE_HOST in url:
        assert "https://data-api.ecb.europa.eu" in str(caught.value)


def test_kept_bodies_are_bounded_by_bytes(portal: EcbPortal, clock: PatientClock) -> None:
    async def many(source: Portal) -> int:
        for day in (3, 4, 5, 3):
            await source.window("USD", date(2026, 8, day), date(2026, 8, day))
        return len(portal.requests)

    async def asked() -> int:
        source = Portal(target(), clock, base_url=portal.url, sleep=clock.sleep, max_kept=2 * 1024)
        try:
            return await many(source)
        finally:
            await source.close()

    assert run(asked()) == 4


def test_the_last_day_is_due_in_frankfurts_afternoon() -> None:
    assert target().due_at(date(2026, 8, 26)) == datetime(2026, 8, 26, 14, 0, tzinfo=UTC)
