"""Raw arguments against schema and limits: each reason, both texts, nothing coerced."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from houses import NOW
from limen.catalogue import Catalogue
from limen.decisions.d4_shape import Limits, Shape, compile_schema
from limen.errors import CatalogueError
from limen.servers.desk.tools import desk_catalogue
from limen.walk import Walk
from limen.words import INVALID_PARAMS, Call, Passed, Refused
from promised import promise

DESK = desk_catalogue("0")
OK = {"path": "drafts/a.txt", "content": "x"}


def decide(
    arguments: Any,
    *,
    method: str = "tools/call",
    target: str = "docs_update",
    limits: Limits | None = None,
    **call: Any,
) -> tuple[Any, Walk]:
    walk = Walk(
        Call("1", NOW, "stdio", "2026-07-28", "c", method, target, arguments, **call),
        entry=DESK.find(method, target),
    )
    shape = Shape.of(DESK, limits or Limits())
    return asyncio.run(shape.decide(walk)), walk


def refusal(arguments: Any, **more: Any) -> tuple[str, str]:
    verdict, walk = decide(arguments, **more)
    assert isinstance(verdict, Refused)
    assert verdict.step == "d4_shape"
    assert verdict.public.problem is not None
    assert verdict.public.problem.code == INVALID_PARAMS
    assert walk.arguments == {}
    return verdict.reason, verdict.public.problem.message


def test_arguments_that_fit_pass_as_they_came() -> None:
    verdict, walk = decide(OK)
    assert verdict == Passed()
    assert walk.arguments == OK


@promise("shape-reasons")
@pytest.mark.parametrize(
    ("arguments", "reason", "public"),
    [
        ({}, "missing_arguments", "argument `path` is missing"),
        (None, "missing_arguments", "argument `path` is missing"),
        ({"path": "a"}, "missing_arguments", "argument `content` is missing"),
        ({**OK, "path": 7}, "invalid_type", "argument `path` must be a string"),
        ({**OK, "path": None}, "invalid_type", "argument `path` must be a string"),
        ({**OK, "path": ["a"]}, "invalid_type", "argument `path` must be a string"),
        ({**OK, "approved": True}, "extra_arguments", "there is no argument `approved`"),
        ({**OK, "a b\n": 1}, "extra_arguments", "there is no argument of that name"),
        ({"path": 7, "approved": 1}, "extra_arguments", "there is no argument `approved`"),
        (
            {**OK, "content": "x" * 20_000},
            "invalid_arguments",
            "argument `content` has 20000 characters; at most 16384 are allowed",
        ),
        ([], "invalid_type", "`arguments` must be an object"),
        ("x", "invalid_type", "`arguments` must be an object"),
        (0, "invalid_type", "`arguments` must be an object"),
        (False, "invalid_type", "`arguments` must be an object"),
    ],
)
def test_each_reason_is_told_without_the_value(arguments: Any, reason: str, public: str) -> None:
    assert refusal(arguments) == (reason, public)


@promise("duplicate-keys")
def test_a_key_that_came_twice_is_refused_before_anything_else() -> None:
    assert refusal({"x": 1}, duplicates=("path",)) == (
        "invalid_arguments",
        "argument `path` came twice",
    )


@promise("arguments-not-kept")
def test_what_the_owner_reads_repeats_nothing_that_came() -> None:
    for arguments in ({**OK, "my-secret": 1}, {**OK, "path": 7}, {**OK, "content": "s" * 20_000}):
        verdict, _ = decide(arguments)
        assert "my-secret" not in verdict.private
        assert verdict.private.startswith("by `")
    verdict, _ = decide(OK, duplicates=("my-secret",))
    assert "my-secret" not in verdict.private


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@promise("shape-bounds")
@pytest.mark.parametrize(
    ("arguments", "limits", "public"),
    [
        ({**OK, "x": nested(40)}, Limits(), "arguments nest deeper than 32 levels"),
        ({**OK, "x": [0] * 10_000}, Limits(), "arguments have more than 10000 values"),
        ({**OK, "content": "x" * 70_000}, Limits(), "a string has more than 65536 characters"),
        ({**OK, "x": 2**63}, Limits(), "a number does not fit 64 bits"),
        ({**OK, "x": [{"y": -(2**63) - 1}]}, Limits(), "a number does not fit 64 bits"),
        (OK, Limits(size=10), "message has 99 bytes; at most 10 are allowed"),
    ],
)
def test_limits_hold_before_the_schema_is_looked_at(
    arguments: Any, limits: Limits, public: str
) -> None:
    assert refusal(arguments, limits=limits, size=99) == ("invalid_arguments", public)


def test_arguments_at_the_limits_are_within_them() -> None:
    limits = Limits(depth=1, values=3, string=12, size=99)
    assert decide({"path": "drafts/a.txt", "content": "y"}, limits=limits, size=99)[0] == Passed()


def test_a_resource_is_looked_at_by_its_address() -> None:
    address = "desk://documents/{+path}"
    walk = Walk(
        Call("1", NOW, "stdio", "", "c", "resources/read", "desk://documents/" + "x" * 20_000),
        entry=DESK.resources[address],
    )
    verdict = asyncio.run(Shape.of(DESK, Limits()).decide(walk))
    assert isinstance(verdict, Refused)
    assert verdict.reason == "invalid_arguments"


def test_a_prompt_takes_strings_only() -> None:
    reason, _ = refusal({"path": 7}, method="prompts/get", target="summarise_document")
    assert reason == "invalid_type"


def test_a_completion_is_looked_at_for_repeats_and_limits_only() -> None:
    more: Any = {"method": "completion/complete", "target": "summarise_document"}
    verdict, walk = decide({"name": "path", "value": 7}, **more)
    assert verdict == Passed()
    assert walk.arguments == {"name": "path", "value": 7}
    assert decide(None, **more)[1].arguments == {}
    assert refusal({"x": nested(40)}, **more)[0] == "invalid_arguments"
    assert refusal({"x": 1}, duplicates=("x",), **more)[0] == "invalid_arguments"


def test_a_list_has_no_arguments_to_refuse() -> None:
    assert decide(None, method="tools/list", target="")[0] == Passed()


DRAFTS = [
    "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
]


NOT_INTEGERS = ["3", True, False, 4.0, 4.5, None, [], {}]


@promise("no-coercion")
@pytest.mark.parametrize("value", NOT_INTEGERS)
@pytest.mark.parametrize(
    ("schema", "wrap"),
    [
        ({"type": "integer"}, lambda v: v),
        ({"type": ["integer"]}, lambda v: v),
        ({"items": {"type": "integer"}}, lambda v: [1, v]),
        ({"prefixItems": [{"type": "integer"}]}, lambda v: [v]),
        ({"anyOf": [{"type": "integer"}]}, lambda v: v),
        ({"allOf": [{"type": "integer"}]}, lambda v: v),
        ({"$ref": "#/properties/n/$defs/n", "$defs": {"n": {"type": "integer"}}}, lambda v: v),
        ({"additionalProperties": {"type": "integer"}}, lambda v: {"x": v}),
        ({"patternProperties": {"^x": {"type": "integer"}}}, lambda v: {"x": v}),
        ({"if": {"const": 1}, "else": {"type": "integer"}}, lambda v: v),
    ],
)
def test_an_integer_is_written_as_one_wherever_it_stands(
    schema: Any, wrap: Any, value: Any
) -> None:
    compiled = compile_schema({"properties": {"n": schema}, "required": ["n"]})
    assert compiled.first_flaw({"n": wrap(7)}) is None
    assert compiled.first_flaw({"n": wrap(value)}) is not None


def test_a_number_may_be_written_either_way() -> None:
    compiled = compile_schema({"properties": {"n": {"type": ["integer", "number"]}}})
    assert compiled.first_flaw({"n": 4.0}) is None
    assert compiled.first_flaw({"n": 4}) is None


def test_a_name_or_a_default_that_looks_like_a_schema_is_left_alone() -> None:
    schema = {
        "properties": {"type": {"const": {"type": "integer"}}, "$ref": {"type": "string"}},
        "additionalProperties": False,
    }
    assert compile_schema(schema).first_flaw({"type": {"type": "integer"}, "$ref": "x"}) is None


@promise("no-coercion")
@pytest.mark.parametrize(
    ("schema", "reference"),
    [
        ({"components": {"schemas": {"n": {"type": "integer"}}}}, "#/components/schemas/n"),
        ({"x-a": [{"type": "integer"}]}, "#/x-a/0"),
        ({"x/a": {"type": "integer"}}, "#/x~1a"),
        ({"x": {"a": {"type": "integer"}}}, "#/x%2Fa"),
        ({"$defs": {"n": {"$anchor": "n", "type": "integer"}}}, "#n"),
        ({"$defs": {"n": {"x-limen-integer": 0, "type": "integer"}}}, "#/$defs/n"),
    ],
)
def test_an_integer_is_written_as_one_wherever_a_reference_leads(
    schema: Any, reference: str
) -> None:
    compiled = compile_schema({**schema, "properties": {"n": {"$ref": reference}}})
    assert compiled.first_flaw({"n": 4}) is None
    flaw = compiled.first_flaw({"n": 4.0})
    assert flaw is not None
    assert (flaw.reason, flaw.public) == ("invalid_type", "argument `n` must be an integer")


def test_our_own_keyword_means_nothing_in_the_schema_of_another() -> None:
    for value in (0, "x", ["integer"]):
        compiled = compile_schema({"properties": {"n": {"x-limen-integer": value}}})
        assert compiled.first_flaw({"n": 4.0}) is None


@promise("no-coercion")
@pytest.mark.parametrize("key", ["default", "const", "enum", "examples"])
def test_a_reference_to_a_value_is_not_taken_for_a_schema(key: str) -> None:
    with pytest.raises(CatalogueError, match="no schema is at `#/\\$defs/v/"):
        compile_schema(
            {
                "$defs": {"v": {key: [{"type": "integer"}]}},
                "properties": {"n": {"$ref": f"#/$defs/v/{key}/0"}},
            }
        )


CLOSED = {"type": "object", "properties": {"a": {}}, "additionalProperties": False}
NULL = {"type": "null"}


@promise("shape-reasons")
@pytest.mark.parametrize(
    ("schema", "value", "reason", "public"),
    [
        (
            {"anyOf": [{"type": "integer"}, NULL]},
            "3",
            "invalid_type",
            "argument `n` must be an integer or null",
        ),
        (
            {"anyOf": [{"type": "integer"}, NULL]},
            4.0,
            "invalid_type",
            "argument `n` must be an integer or null",
        ),
        (
            {"type": ["integer", "string"]},
            4.0,
            "invalid_type",
            "argument `n` must be an integer or a string",
        ),
        (
            {"oneOf": [{"anyOf": [NULL, {"type": "array"}]}, {"type": "string"}]},
            1,
            "invalid_type",
            "argument `n` must be an array or null or a string",
        ),
        ({"anyOf": [CLOSED, NULL]}, {"b": 1}, "extra_arguments", "there is no argument `n.b`"),
        (
            {"anyOf": [{"required": ["a"]}, NULL]},
            {},
            "missing_arguments",
            "argument `n.a` is missing",
        ),
        (
            {"anyOf": [{"maximum": 3}, {"multipleOf": 7}]},
            5,
            "invalid_arguments",
            "argument `n` does not fit `anyOf`",
        ),
        (
            {"anyOf": [CLOSED, {**CLOSED, "required": ["a"]}]},
            {"b": 1},
            "extra_arguments",
            "there is no argument `n.b`",
        ),
        (
            {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
            {},
            "missing_arguments",
            "argument `n` does not fit `anyOf`",
        ),
        (False, 1, "extra_arguments", "there is no argument `n`"),
        (
            {"additionalProperties": False},
            {"b": 1},
            "extra_arguments",
            "there is no argument `n.b`",
        ),
        (
            {"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False},
            {"b": 1},
            "extra_arguments",
            "there is no argument `n.b`",
        ),
        ({"required": ["größe"]}, {}, "missing_arguments", "argument `n.größe` is missing"),
        ({"enum": ["a"]}, "secret", "invalid_arguments", "argument `n` does not fit `enum`"),
        (
            {"additionalProperties": {"type": "string"}},
            {"a`b": 1},
            "invalid_type",
            "argument of that name must be a string",
        ),
    ],
)
def test_reasons_are_told_through_alternatives_and_at_any_depth(
    schema: Any, value: Any, reason: str, public: str
) -> None:
    flaw = compile_schema({"properties": {"n": schema}}).first_flaw({"n": value})
    assert flaw is not None
    assert (flaw.reason, flaw.public) == (reason, public)


def test_many_values_are_refused_by_their_first_flaw() -> None:
    compiled = compile_schema({"properties": {"n": {"items": {"type": "string"}}}})
    flaw = compiled.first_flaw({"n": ["a"] * 5_000 + [1] * 4_000})
    assert flaw is not None
    assert (flaw.reason, flaw.public) == ("invalid_type", "argument `n.5000` must be a string")


def test_an_outer_id_and_an_id_without_a_place_are_no_obstacle() -> None:
    schema = {
        "$schema": DRAFTS[2],
        "$id": "https://a.invalid/schema",
        "definitions": {"n": {"$id": "#n", "type": "integer"}},
        "properties": {"n": {"$ref": "#n"}, "$id": {"type": "string"}},
    }
    compiled = compile_schema(schema)
    assert compiled.first_flaw({"n": 1, "$id": "https://b.invalid/"}) is None
    assert compiled.first_flaw({"n": 1.0}) is not None


@promise("extra-at-any-depth")
def test_an_unknown_field_is_refused_at_any_depth() -> None:
    inner = {"type": "object", "properties": {"a": {}}, "additionalProperties": False}
    compiled = compile_schema({"properties": {"list": {"items": inner}}})
    flaw = compiled.first_flaw({"list": [{"a": 1}, {"b": 1}]})
    assert flaw is not None
    assert (flaw.reason, flaw.public) == ("extra_arguments", "there is no argument `list.1.b`")


@promise("drafts")
@pytest.mark.parametrize("draft", DRAFTS)
def test_every_draft_means_its_own_exclusive_minimum(draft: str) -> None:
    bound: dict[str, Any] = {"exclusiveMinimum": 3}
    if "draft-04" in draft:
        bound = {"minimum": 3, "exclusiveMinimum": True}
    compiled = compile_schema({"$schema": draft, "properties": {"n": {"type": "integer", **bound}}})
    assert compiled.first_flaw({"n": 4}) is None
    for value in (3, 2, 4.0, "4"):
        assert compiled.first_flaw({"n": value}) is not None


@promise("local-refs-only")
@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"$ref": "https://example.invalid/schema"}, "only `#` within it is followed"),
        ({"properties": {"a": {"$ref": "file:///etc/passwd"}}}, "only `#` within it"),
        ({"$ref": "other.json"}, "only `#` within it is followed"),
        ({"$ref": "#/$defs/none"}, "schema cannot be used"),
        ({"$ref": "#none"}, "schema cannot be used"),
        ({"$ref": "#/no\nwhere"}, "schema cannot be used"),
        ({"$ref": "a\nb"}, "only `#` within it is followed"),
        ({"x": {"y": {"$dynamicRef": "other.json"}}}, "only `#` within it is followed"),
        ({"properties": {"a": {"$id": "https://a.invalid/", "items": {}}}}, "has an id inside"),
        ({"$schema": DRAFTS[0], "not": {"id": "https://a.invalid/"}}, "has an id inside"),
        (True, "schema cannot be used: it is not an object"),
        ({"properties": {"a": {"type": ["integer", 5]}}}, "schema cannot be used"),
        ({"type": "objec"}, "schema cannot be used"),
        ({"pattern": "(?=look)"}, "schema cannot be used"),
        ({"$schema": "http://json-schema.org/draft-03/schema#"}, "draft that is not supported"),
        ({"$schema": 7}, "draft that is not supported"),
        ({"enum": list(range(20_000))}, "more than 10000 values"),
    ],
)
def test_a_schema_that_cannot_be_kept_to_is_not_taken(schema: Any, said: str) -> None:
    with pytest.raises(CatalogueError, match=said) as caught:
        compile_schema(schema)
    assert "\n" not in str(caught.value)


def test_a_schema_that_nests_without_end_is_not_taken() -> None:
    schema: dict[str, Any] = {}
    for _ in range(100):
        schema = {"not": schema}
    with pytest.raises(CatalogueError, match="nests deeper"):
        compile_schema(schema)


def test_a_pattern_cannot_make_a_call_take_for_ever() -> None:
    compiled = compile_schema({"properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}})
    assert compiled.first_flaw({"a": "a" * 60_000 + "!"}) is not None


def test_a_catalogue_whose_schema_cannot_be_used_names_the_tool() -> None:
    broken = replace(DESK.tools["export"], input_schema={"type": "objec"})
    catalogue = Catalogue.of("x", [broken], title="", version="", instructions="")
    with pytest.raises(CatalogueError, match="tool `export`: schema cannot be used"):
        Shape.of(catalogue, Limits())
