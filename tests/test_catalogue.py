"""What can be entered in a catalogue: above all, no observations without their papers."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

import pytest
from typing_extensions import TypedDict

from limen.catalogue import tool
from limen.errors import CatalogueError
from limen.words import Answer


class No(TypedDict):
    ok: Literal[False]


class Papers(TypedDict):
    complete: bool


class Bare(TypedDict):
    observations: list[list[Any]]


class Sometimes(TypedDict):
    observations: list[list[Any]]
    coverage: NotRequired[Papers]


class Whole(TypedDict):
    observations: list[list[Any]]
    coverage: Papers


class Several(TypedDict):
    windows: list[Sometimes]


class OfNothing(TypedDict):
    coverage: Papers


def bare(view: Any) -> Bare:
    """Return numbers."""


def sometimes(view: Any) -> Sometimes | Answer:
    """Return numbers."""


def inside(view: Any) -> Several:
    """Return numbers."""


def one_of_two(view: Any) -> No | Bare:
    """Return numbers."""


def of_nothing(view: Any) -> OfNothing:
    """Return numbers."""


def whole(view: Any) -> Whole | No | Answer:
    """Return numbers."""


def text(view: Any) -> No | str:
    """Return text."""


@pytest.mark.parametrize("body", [bare, sometimes, inside, one_of_two])
def test_observations_cannot_be_entered_without_a_coverage_that_is_always_there(body: Any) -> None:
    with pytest.raises(CatalogueError, match="without a `coverage` that is always there"):
        tool(scope="a:b", title="Numbers")(body)


def test_a_coverage_of_nothing_cannot_be_entered() -> None:
    with pytest.raises(CatalogueError, match="a `coverage` of no `observations`"):
        tool(scope="a:b", title="Numbers")(of_nothing)


def test_observations_with_their_coverage_are_entered_as_one_kind_of_object() -> None:
    schema = tool(scope="a:b", title="Numbers")(whole).output_schema
    assert schema is not None
    assert schema["type"] == "object"
    assert len(schema["anyOf"]) == 2


def test_a_result_that_may_be_no_object_is_not_entered() -> None:
    with pytest.raises(CatalogueError, match="returns no JSON object"):
        tool(scope="a:b", title="Text")(text)
