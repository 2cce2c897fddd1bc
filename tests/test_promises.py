"""Each promise has a test, each binding names a promise."""

from __future__ import annotations

import ast
from pathlib import Path

from promises import PROMISES


def bound() -> set[str]:
    """Return the ids that the tests of this tree are bound to."""
    ids: set[str] = set()
    for file in Path(__file__).parent.rglob("test_*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for mark in node.decorator_list:
                    if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "promise":
                        ids |= {ast.literal_eval(word) for word in mark.args}
    return ids


def test_each_promise_that_is_kept_is_bound_to_a_test_and_no_gap_is() -> None:
    assert {promise.id for promise in PROMISES if not promise.gap} == bound()


def test_no_promise_is_made_twice() -> None:
    assert len({promise.id for promise in PROMISES}) == len(PROMISES)


def test_each_promise_is_one_sentence() -> None:
    for promise in PROMISES:
        assert promise.sentence.endswith("."), promise
        assert promise.sentence.count(". ") == 0, promise
        assert promise.source, promise
