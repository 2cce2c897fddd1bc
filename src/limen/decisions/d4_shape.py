"""Do the raw arguments fit the tool's schema and limits, and nothing more?

Nothing is coerced and nothing is dropped: `"3"`, `true` and `4.0` are not integers, a key that
came twice or that no schema names is refused, and so is what is too deep, too large or too many.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import jsonschema_rs

from limen.catalogue import Catalogue, Entry, matches
from limen.errors import CatalogueError
from limen.walk import Walk
from limen.words import INVALID_PARAMS, Answer, Passed, Problem, Refused, Verdict

STEP = "d4_shape"

METHODS = frozenset({"tools/call", "prompts/get", "resources/read"})
"""Methods whose arguments have a schema."""

MAX_SCHEMA_DEPTH = 32
MAX_SCHEMA_NODES = 10_000
"""Of one schema: it is compiled once, but each call pays for every branch of it."""

INTEGER = "x-limen-integer"
"""A keyword of our own, put beside `type: integer`: JSON Schema takes 4.0 for an integer."""

NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z")
"""Names of unknown arguments that are said back; any other is not repeated."""

DRAFTS = {
    "http://json-schema.org/draft-04/schema": jsonschema_rs.Draft4Validator,
    "http://json-schema.org/draft-06/schema": jsonschema_rs.Draft6Validator,
    "http://json-schema.org/draft-07/schema": jsonschema_rs.Draft7Validator,
    "https://json-schema.org/draft/2019-09/schema": jsonschema_rs.Draft201909Validator,
    "https://json-schema.org/draft/2020-12/schema": jsonschema_rs.Draft202012Validator,
}
"""By `$schema` without a trailing `#`. Without `$schema` it is 2020-12, as MCP says."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How large arguments may be, whatever their schema says."""

    size: int = 256 * 1024
    """Bytes of the whole message. Ten times the largest call of our own servers."""
    depth: int = 32
    """Objects and arrays inside each other."""
    values: int = 10_000
    """Values in all: keys are not counted, what stands under them is."""
    string: int = 65_536
    """Characters of one string, four times the longest that the desk takes."""
    integer: int = 2**63 - 1
    """Magnitude: what fits a signed 64-bit column."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Compare raw arguments with schema and limits; set `walk.arguments` when they fit."""

    limits: Limits
    compiled: Mapping[tuple[str, str], Compiled]

    @classmethod
    def of(cls, catalogue: Catalogue, limits: Limits) -> Shape:
        """Compile every schema of a catalogue.

        Raises:
            CatalogueError: a schema cannot be compiled as it is.
        """
        shelves = (catalogue.tools, catalogue.prompts, catalogue.resources)
        entries = [entry for shelf in shelves for entry in shelf.values()]
        return cls(limits, {(entry.kind, entry.name): _compiled(entry) for entry in entries})

    async def decide(self, walk: Walk) -> Verdict:
        """Pass with `walk.arguments` set when the arguments fit; else say the first reason."""
        call = walk.call
        if call.duplicates:
            text = f"{_argument(call.duplicates[0])} came twice"
            return _no("invalid_arguments", text, "a key came twice")
        arguments: Any = {} if call.arguments is None else call.arguments
        if call.method == "resources/read":
            arguments = matches(walk.entered().name, call.target or "") or {}
        if (beyond := self._beyond_limits(arguments, call.size)) is not None:
            return _no("invalid_arguments", beyond)
        if not isinstance(arguments, dict):
            return _no("invalid_type", "`arguments` must be an object")
        if call.method in METHODS:
            entry = walk.entered()
            flaw = self.compiled[entry.kind, entry.name].first_flaw(arguments)
            if flaw is not None:
                return _no(flaw.reason, flaw.public, f"by `{flaw.rule}` of the schema")
        walk.arguments = arguments
        return Passed()

    def _beyond_limits(self, arguments: Any, size: int) -> str | None:
        limits = self.limits
        if size > limits.size:
            return f"message has {size} bytes; at most {limits.size} are allowed"
        values = 0
        level = [arguments]
        for _ in range(limits.depth + 1):
            inner: list[Any] = []
            values += len(level)
            if values > limits.values:
                return f"arguments have more than {limits.values} values"
            for value in level:
                kind = type(value)
                if kind is str:
                    if len(value) > limits.string:
                        return f"a string has more than {limits.string} characters"
                elif kind is dict:
                    inner.extend(value.values())
                elif kind is list:
                    inner.extend(value)
                elif kind is int and not -limits.integer - 1 <= value <= limits.integer:
                    return "a number does not fit 64 bits"
            if not inner:
                return None
            level = inner
        return f"arguments nest deeper than {limits.depth} levels"


@dataclass(frozen=True, slots=True)
class SchemaFlaw:
    """Where arguments do not fit. `public` names the argument, `rule` the place in the schema."""

    reason: str
    public: str
    rule: str


@dataclass(frozen=True, slots=True)
class Compiled:
    """A schema ready to compare with. Safe to share between tasks."""

    validator: Any = field(repr=False)

    def first_flaw(self, arguments: Any) -> SchemaFlaw | None:
        """Return the gravest flaw, None when the arguments fit."""
        if self.validator.is_valid(arguments):
            return None
        flaws = [_flaw(error) for error in self.validator.iter_errors(arguments)]
        return min(flaws, key=lambda flaw: ORDER.index(flaw.reason))


ORDER = ("extra_arguments", "missing_arguments", "invalid_type", "invalid_arguments")
"""Reasons in the order in which one of several is told."""


def compile_schema(schema: Mapping[str, Any]) -> Compiled:
    """Compile a JSON Schema of draft 4, 6, 7, 2019-09 or 2020-12. Fetches nothing.

    Raises:
        CatalogueError: the draft is another, the schema is not valid by it or too large, a `$ref`
            leads out of it or nowhere, or a `pattern` needs an engine without bounds.
    """
    named = schema.get("$schema", "https://json-schema.org/draft/2020-12/schema")
    draft = DRAFTS.get(named.removesuffix("#")) if isinstance(named, str) else None
    if draft is None:
        raise CatalogueError(
            "schema is of a draft that is not supported: write 2020-12 or leave it"
        )
    _refuse_large(schema)
    for reference in _references(schema):
        if not reference.startswith("#"):
            raise CatalogueError(f"schema refers to `{reference}`: only `#` within it is followed")
    try:
        validator = draft(
            _with_integers(schema),
            validate_formats=False,
            offline=True,
            # The engine without backtracking: a pattern must not make a call take for ever.
            pattern_options=jsonschema_rs.RegexOptions(),
            keywords={INTEGER: _Integer},
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        raise CatalogueError(f"schema cannot be used: {str(error).splitlines()[0]}") from error
    return Compiled(validator)


def _compiled(entry: Entry) -> Compiled:
    try:
        return compile_schema(entry.input_schema)
    except CatalogueError as error:
        raise CatalogueError(f"{entry.kind} `{entry.name}`: {error}") from error


class _Integer:
    """The keyword that sets apart 4 and 4.0."""

    def __init__(self, parent: Any, value: Any, path: Any) -> None:
        """Take what the library gives; none of it matters."""

    def validate(self, instance: Any) -> None:
        """Refuse a number that was written as a fraction."""
        if type(instance) is float:
            raise ValueError("not an integer")


IN_PLACE = frozenset(
    {
        "additionalItems",
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
IN_LISTS = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
UNDER_NAMES = frozenset(
    ["$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"]
)
"""Where a schema holds schemas: under a keyword, in a list, or under names of its own."""


def _with_integers(schema: Any) -> Any:
    """Return a copy in which every schema that says integer, and not number, means it."""
    if not isinstance(schema, Mapping):
        return schema
    made: dict[str, Any] = {}
    for key, value in schema.items():
        if key in UNDER_NAMES and isinstance(value, Mapping):
            made[key] = {name: _with_integers(inner) for name, inner in value.items()}
        elif key in IN_LISTS and isinstance(value, list):
            made[key] = [_with_integers(inner) for inner in value]
        elif key in IN_PLACE:
            made[key] = _with_integers(value)
        else:
            made[key] = value
    kinds = schema.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if "integer" in kinds and "number" not in kinds:
        made[INTEGER] = True
    return made


def _references(node: Any) -> Iterator[str]:
    """Yield every `$ref` of a schema, wherever it stands; an id would change what `#` means."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            if key in ("$ref", "$dynamicRef", "$recursiveRef") and isinstance(value, str):
                yield value
            yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)


def _refuse_large(schema: Any) -> None:
    nodes = 0
    level = [schema]
    for _ in range(MAX_SCHEMA_DEPTH):
        nodes += len(level)
        if nodes > MAX_SCHEMA_NODES:
            raise CatalogueError(f"schema has more than {MAX_SCHEMA_NODES} values")
        level = [
            inner
            for node in level
            if isinstance(node, (Mapping, list))
            for inner in (node.values() if isinstance(node, Mapping) else node)
        ]
        if not level:
            return
    raise CatalogueError(f"schema nests deeper than {MAX_SCHEMA_DEPTH} levels")


def _flaw(error: Any) -> SchemaFlaw:
    # The row gets the place in the schema, which is the owner's, and not that in the arguments.
    return SchemaFlaw(*_told(error), "/".join(str(part) for part in error.schema_path))


def _told(error: Any) -> tuple[str, str]:
    """Return reason and public text of one error: the argument's place, and never its value."""
    place = _argument(".".join(str(part) for part in error.instance_path))
    kind = error.kind
    match kind:
        case (
            jsonschema_rs.ValidationErrorKind.AdditionalProperties()
            | jsonschema_rs.ValidationErrorKind.UnevaluatedProperties()
        ):
            return "extra_arguments", f"there is no {_argument(_inside(error, kind.unexpected[0]))}"
        case jsonschema_rs.ValidationErrorKind.Required():
            return "missing_arguments", f"{_argument(_inside(error, kind.property))} is missing"
        case jsonschema_rs.ValidationErrorKind.Type():
            return "invalid_type", f"{place} must be {_kinds(kind.types)}"
        case jsonschema_rs.ValidationErrorKind.Custom(keyword=keyword) if keyword == INTEGER:
            return "invalid_type", f"{place} must be an integer"
        case jsonschema_rs.ValidationErrorKind.MaxLength():
            length = len(error.instance)
            text = f"{place} has {length} characters; at most {kind.limit} are allowed"
            return "invalid_arguments", text
        case _:
            return "invalid_arguments", f"{place} does not fit `{kind.name}`"


def _inside(error: Any, name: str) -> str:
    return ".".join([*(str(part) for part in error.instance_path), name])


def _kinds(kinds: list[str]) -> str:
    named = [f"an {kind}" if kind[0] in "aio" else f"a {kind}" for kind in sorted(kinds)]
    return " or ".join(named).replace("a null", "null")


def _argument(place: str) -> str:
    if not place:
        return "what came as arguments"
    return f"argument `{place}`" if NAME.match(place) else "argument of that name"


def _no(reason: str, text: str, private: str | None = None) -> Refused:
    public = Answer(problem=Problem(INVALID_PARAMS, text))
    return Refused(STEP, reason, public, text if private is None else private)
