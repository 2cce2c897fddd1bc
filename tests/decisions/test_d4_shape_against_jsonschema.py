"""Our verdict on generated schemas and arguments, beside that of an independent validator."""

from __future__ import annotations

from typing import Any

import jsonschema
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from limen.decisions.d4_shape import compile_schema
from limen.errors import CatalogueError
from promised import promise

VALIDATORS = {
    "http://json-schema.org/draft-04/schema#": jsonschema.Draft4Validator,
    "http://json-schema.org/draft-06/schema#": jsonschema.Draft6Validator,
    "http://json-schema.org/draft-07/schema#": jsonschema.Draft7Validator,
    "https://json-schema.org/draft/2019-09/schema": jsonschema.Draft201909Validator,
    "https://json-schema.org/draft/2020-12/schema": jsonschema.Draft202012Validator,
}


def is_integer(_: Any, value: Any) -> bool:
    return type(value) is int


def expected_to_fit(schema: dict[str, Any], arguments: Any) -> bool:
    validator = VALIDATORS[schema["$schema"]]
    strict = jsonschema.validators.extend(
        validator, type_checker=validator.TYPE_CHECKER.redefine("integer", is_integer)
    )
    return bool(strict(schema).is_valid(arguments))


names = st.sampled_from(["a", "b", "c"])
small = st.integers(-3, 3)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.sampled_from([0.0, 1.0, 2.5, -1.5, 1e300])
    | st.sampled_from(["", "a", "ab", "abc", "é", "1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
kinds = st.sampled_from(["string", "integer", "number", "boolean", "null", "array", "object"])
leaves = st.fixed_dictionaries(
    {},
    optional={
        "type": kinds | st.lists(kinds, min_size=1, max_size=3, unique=True),
        "maxLength": st.integers(0, 3),
        "minLength": st.integers(0, 3),
        "minimum": small,
        "maximum": small,
        "maxItems": st.integers(0, 3),
        "uniqueItems": st.booleans(),
        "enum": st.lists(values, min_size=1, max_size=3, unique_by=repr),
        "pattern": st.sampled_from(["^a", "b$", "[0-9]"]),
        "maxProperties": st.integers(0, 2),
        "required": st.lists(names, min_size=1, max_size=2, unique=True),
    },
)


def composed(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(inner, min_size=1, max_size=2)
    return st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(names, inner, max_size=3),
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "b"]), inner, max_size=1),
            "additionalProperties": st.booleans() | inner,
            "items": inner,
            "anyOf": some,
            "allOf": some,
            "oneOf": some,
            "not": inner,
            "type": kinds,
            "required": st.lists(names, min_size=1, max_size=2, unique=True),
        },
    ) | st.sampled_from([{"$ref": "#/definitions/other"}, {"$ref": "#/x-shared/0/other"}])


inner_schemas = st.recursive(leaves, composed, max_leaves=5)
schemas = st.builds(
    lambda draft, body, other, shared: {
        **body,
        "$schema": draft,
        "definitions": {"other": other},
        "x-shared": [{"other": shared}],
    },
    st.sampled_from(sorted(VALIDATORS)),
    composed(inner_schemas).filter(lambda schema: "$ref" not in schema),
    leaves,
    leaves,
)


@promise("shape-agrees")
@given(schema=schemas, arguments=st.dictionaries(names, values, max_size=3))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_our_verdict_is_that_of_an_independent_validator(
    schema: dict[str, Any], arguments: dict[str, Any]
) -> None:
    try:
        VALIDATORS[schema["$schema"]].check_schema(schema)
    except jsonschema.SchemaError:
        assume(False)
    flaw = compile_schema(schema).first_flaw(arguments)
    assert (flaw is None) == expected_to_fit(schema, arguments)


@given(
    schema=st.dictionaries(
        st.text(max_size=8)
        | st.sampled_from(
            ["type", "$ref", "items", "properties", "pattern", "required", "$schema", "$id"]
        ),
        values,
        max_size=4,
    )
)
@settings(max_examples=200, deadline=None)
def test_any_object_is_a_schema_that_works_or_is_refused_in_one_line(schema: Any) -> None:
    said = ""
    try:
        compile_schema(schema).first_flaw({"a": 1})
    except CatalogueError as error:
        said = str(error)
    assert "\n" not in said
