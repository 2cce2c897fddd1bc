"""Whatever is asked of the reference rates, the answer has the shape that was promised."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import jsonschema_rs
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from houses import StillClock, run
from limen.answers.calendars import target
from limen.app import new_call_id, open_house
from limen.app.ecb import Rates, build_ecb
from limen.servers.ecb.history import History
from limen.servers.ecb.series import SERIES
from limen.settings import Settings
from limen.words import INVALID_PARAMS, Call

DAYS = st.dates().map(str) | st.sampled_from(
    ["0001-01-01", "9999-12-31", "1998-12-31", "2026-04-03", "2026-13-01", "20260403", ""]
)
CURRENCIES = st.sampled_from([*SERIES, "EUR", "usd", "ZZZ", "", "É"])
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
VALUES = {
    "currency": CURRENCIES | st.lists(CURRENCIES, max_size=9),
    "from_currency": CURRENCIES,
    "to_currency": CURRENCIES,
    "start": DAYS,
    "end": DAYS,
    "day": DAYS,
    "fallback": st.sampled_from(["none", "previous", "next"]),
    "amount": st.floats(allow_nan=False) | st.integers() | st.text(max_size=12),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rates]:
    clock = StillClock(datetime(2026, 12, 1, 12, tzinfo=UTC))
    wide = Settings(**{"budget": {"capacity": 1_000_000}})
    with open_house(tmp_path_factory.mktemp("generated"), wide, clock=clock) as house:
        yield build_ecb(house, source=History(target()))


@st.composite
def calls(draw: st.DrawFn) -> tuple[int, dict[str, Any]]:
    place = draw(st.integers(0, 7))
    chosen = draw(st.sets(st.sampled_from(sorted(VALUES))))
    fitting = draw(st.booleans())
    arguments = {name: draw(VALUES[name] if fitting else ANYTHING) for name in sorted(chosen)}
    return place, arguments


@settings(max_examples=400, deadline=None)
@given(asked=calls(), complete=st.booleans())
def test_an_answer_is_refused_by_shape_or_has_the_shape_that_was_promised(
    server: Rates, asked: tuple[int, dict[str, Any]], complete: bool
) -> None:
    names = [name for name in server.catalogue.tools if name != "rates_chart"]
    entry = server.catalogue.tools[names[asked[0]]]
    arguments = asked[1]
    if complete:
        # Most of what is made up lacks something or has too much, and ends at D4.
        known = entry.input_schema["properties"]
        arguments = {name: value for name, value in arguments.items() if name in known}
        day = arguments.get("day", "2026-04-01")
        spare = {"currency": "USD", "start": day, "end": day, "day": day, "amount": "1"}
        spare |= {"from_currency": "USD", "to_currency": "PHP"}
        required = entry.input_schema.get("required", ())
        arguments = {**{name: spare[name] for name in required}, **arguments}
    call = Call(
        new_call_id(),
        server.house.clock.now(),
        "stdio",
        "2026-07-28",
        "test/1",
        "tools/call",
        target=entry.name,
        arguments=arguments,
    )
    answer = run(server.gate.answer(call))
    if answer.problem is not None:
        assert answer.problem.code == INVALID_PARAMS
        return
    said = orjson.loads(orjson.dumps(answer.result))
    assert entry.output_schema is not None
    jsonschema_rs.validate(dict(entry.output_schema), said)
    assert said["ok"] is True or (said["error"] and said["message"])
