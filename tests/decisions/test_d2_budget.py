"""The budget: reserves, a common spare, and what is said when both are spent."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from houses import StillClock, run
from limen.catalogue import Catalogue, tool
from limen.decisions.d2_budget import FOREVER_S, Budget, FairBudget, NaiveBucket, Quotas
from limen.walk import Walk
from limen.words import Call, Caller


def granted(budget: Any, caller: str, asked: int = 500) -> int:
    """Return how many calls in a row are granted before the first no."""
    for number in range(asked):
        if not budget.reserve(caller, 1).granted:
            return number
    return asked


def fair(*callers: str, refill: float = 60, fraction: float = 0.5) -> tuple[FairBudget, StillClock]:
    clock = StillClock()
    return FairBudget(60, refill, callers, clock, reserve_fraction=fraction), clock


def test_the_naive_bucket_lets_the_greedy_take_all() -> None:
    naive = NaiveBucket(60, 60, StillClock())
    assert (granted(naive, "greedy"), granted(naive, "quiet")) == (60, 0)


def test_the_greedy_gets_45_and_the_quiet_exactly_15() -> None:
    budget, _ = fair("greedy", "quiet")
    assert (granted(budget, "greedy"), granted(budget, "quiet")) == (45, 15)


def test_one_caller_alone_has_all() -> None:
    assert granted(fair("only")[0], "only") == 60


def test_of_three_each_has_10_and_the_spare_refills_for_all() -> None:
    budget, clock = fair("a", "b", "c")
    assert granted(budget, "a") == 40
    clock.seconds += 0.1
    assert granted(budget, "a") == 4
    assert granted(budget, "b") == 10


@pytest.mark.parametrize("seconds", [1, 5, 30, 120])
def test_over_time_no_more_is_granted_than_capacity_and_refill(seconds: int) -> None:
    budget, clock = fair("a", "b")
    total = granted(budget, "a") + granted(budget, "b")
    for _ in range(seconds * 10):
        clock.seconds += 0.1
        total += granted(budget, "a") + granted(budget, "b")
    assert 60 + 60 * seconds - 4 <= total <= 60 + 60 * seconds


def test_names_that_are_made_up_share_the_spare_and_leave_nothing_behind() -> None:
    budget, _ = fair("a", "b", refill=0)
    assert sum(granted(budget, f"stranger-{number}") for number in range(1_000)) == 30
    assert granted(budget, "a") == 15
    assert set(budget.levels()) == {"", "a", "b"}


def test_when_to_come_back_depends_on_the_own_reserve_alone() -> None:
    quiet, clock = fair("a", "b", refill=1)
    granted(quiet, "a")
    alone = quiet.reserve("a", 1).retry_after_s
    busy, _ = fair("a", "b", refill=1)
    granted(busy, "b")
    granted(busy, "a")
    assert busy.reserve("a", 1).retry_after_s == alone == 4.0
    assert clock.monotonic() == 0


def test_a_stranger_s_wait_tells_nothing() -> None:
    budget, _ = fair("a", "b", refill=1)
    granted(budget, "stranger")
    before = budget.reserve("stranger", 1).retry_after_s
    granted(budget, "a")
    assert budget.reserve("stranger", 1).retry_after_s == before


def test_a_budget_that_never_refills_says_not_today() -> None:
    budget, _ = fair("a", refill=0)
    granted(budget, "a")
    assert budget.reserve("a", 1).retry_after_s == FOREVER_S


def test_a_dear_call_takes_what_is_missing_from_the_spare_and_a_refused_one_takes_nothing() -> None:
    budget, _ = fair("a", "b", refill=0)
    assert budget.reserve("a", 20).granted
    assert budget.levels() == {"": 25.0, "a": 0.0, "b": 15.0}
    assert not budget.reserve("a", 26).granted
    assert budget.levels() == {"": 25.0, "a": 0.0, "b": 15.0}


@pytest.mark.parametrize(("callers", "fraction"), [((), 0.5), (("a",), 0), (("a",), 1.1)])
def test_a_budget_that_shares_nothing_out_is_refused(
    callers: tuple[str, ...], fraction: float
) -> None:
    with pytest.raises(ValueError, match=r"a budget names|the reserve is"):
        fair(*callers, fraction=fraction)


def test_a_budget_goes_on_after_a_restart_where_it_ended() -> None:
    before, _ = fair("a", "b", refill=1)
    granted(before, "a")
    after, _ = fair("a", "b", refill=1)
    after.restore({**before.levels(), "gone": 3.0}, elapsed_s=8)
    assert after.levels() == {"": 4.0, "a": 2.0, "b": 15.0}


def test_a_clock_that_was_set_back_gives_nothing_away() -> None:
    before, _ = fair("a", refill=1)
    granted(before, "a")
    after, _ = fair("a", refill=1)
    after.restore(before.levels(), elapsed_s=-100)
    assert granted(after, "a") == 0


def test_a_quota_by_the_minute_opens_again_with_the_next() -> None:
    clock = StillClock()
    quotas = Quotas(2, None, clock)
    assert [quotas.take("a") for _ in range(2)] == [0, 0]
    wait_s = quotas.take("a")
    assert 0 < wait_s <= 60
    assert quotas.take("b") == 0
    clock.at += timedelta(seconds=wait_s)
    assert quotas.take("a") == 0


def test_a_quota_by_the_day_lasts_until_midnight_and_over_a_restart() -> None:
    clock = StillClock()
    quotas = Quotas(None, 3, clock)
    assert [quotas.take("a") for _ in range(3)] == [0, 0, 0]
    again = Quotas(None, 3, clock)
    again.restore(quotas.days(), clock.now())
    wait_s = again.take("a")
    assert wait_s > 0
    clock.at += timedelta(seconds=wait_s)
    assert again.take("a") == 0


def test_a_dear_call_waits_the_same_however_much_of_the_spare_others_left() -> None:
    waits = set()
    for spent_by_others in (0, 20, 45):
        budget, _ = fair("a", "b", refill=1)
        for _ in range(spent_by_others):
            budget.reserve("b", 1)
        waits.add(budget.reserve("a", 46).retry_after_s)
        waits.add(budget.reserve("a", 46).retry_after_s)
    assert waits == {(46 - 15) / 0.25}


def test_a_hidden_tool_costs_what_a_made_up_one_costs_whatever_its_weight() -> None:
    def dear(view: Any) -> dict[str, Any]:
        """Cost much."""

    entry = tool(scope="dear:use", title="Dear")(dear)
    catalogue = Catalogue.of("own", [entry], title="Own", version="1", instructions="")

    def cost(target: str, *scopes: str) -> float:
        budget, clock = fair("a", refill=0, fraction=1)
        call = Call("1", clock.now(), "http", "", "", "tools/call", target)
        walk = Walk(call, caller=Caller("a", frozenset(), frozenset(scopes)))
        run(Budget(budget, None, {"dear": 7}, catalogue).decide(walk))
        return 60 - budget.levels()["a"]

    assert (cost("dear", "dear:use"), cost("dear"), cost("made-up")) == (7, 1, 1)
