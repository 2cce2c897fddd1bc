"""Do the raw arguments fit the tool's schema and limits, and nothing more?

Nothing is coerced and nothing is dropped: `"3"`, `true` and `4.0` are not integers, a key that
came twice or that no schema names is refused, and so is what is too deep, too large or too many.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import jsonschema_rs

from limen.catalogue import Catalogue, Entry, matches
from limen.errors import CatalogueError
from limen.mirror import Mirrored, mirrored_by
from limen.walk import Walk
from limen.words import HEADER_MISMATCH, INVALID_PARAMS, Answer, Passed, Problem, Refused, Verdict

STEP = "d4_shape"

METHODS = frozenset({"tools/call", "prompts/get", "resources/read"})
"""Methods whose arguments have a schema."""

MAX_SCHEMA_DEPTH = 32
MAX_SCHEMA_NODES = 10_000
"""Of one schema: it is compiled once, but each call pays for every branch of it."""

MAX_SAID = 300
"""Characters of what is said of a schema, which may be another server's text."""

INTEGER = "x-limen-integer"
"""A keyword of our own, put beside `type: integer`: JSON Schema takes 4.0 for an integer."""

PLACE = re.compile(r"(?!.{257})[A-Za-z0-9_-]{1,64}(?:\.[A-Za-z0-9_-]{1,64})*\Z")
"""Places of arguments that are said back; names in them came from the caller, so no others are."""

MAX_OWNED = 64
"""Characters of a name from the schema that is said to a caller."""

ErrorKind = jsonschema_rs.ValidationErrorKind

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
    """Magnitude: what fits a signed 64-bit column. Whoever reads numbers as doubles is exact to
    2**53 only, so a schema that is meant for them says `maximum`."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Compare raw arguments with schema and limits; set `walk.arguments` when they fit."""

    limits: Limits
    compiled: Mapping[tuple[str, str], Compiled]
    mirrored: Mapping[str, tuple[Mirrored, ...]]
    """By tool: the arguments that a header has to repeat."""

    @classmethod
    def of(cls, catalogue: Catalogue, limits: Limits) -> Shape:
        """Compile every schema of a catalogue.

        Raises:
            CatalogueError: a schema cannot be compiled as it is.
        """
        shelves = (catalogue.tools, catalogue.prompts, catalogue.resources)
        entries = [entry for shelf in shelves for entry in shelf.values()]
        return cls(
            limits,
            {(entry.kind, entry.name): _compiled(entry) for entry in entries},
            {tool.name: _mirrored(tool) for tool in catalogue.tools.values()},
        )

    async def decide(self, walk: Walk) -> Verdict:
        """Pass with `walk.arguments` set when the arguments fit; else say the first reason."""
        call = walk.call
        if call.duplicates:
            text = f"{_argument([call.duplicates[0]])} came twice"
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
        if call.mirrored is not None and call.method == "tools/call":
            for mirrored in self.mirrored[walk.entered().name]:
                if (said := mirrored.flaw(arguments, call.mirrored)) is not None:
                    problem = Problem(HEADER_MISMATCH, said)
                    return Refused(STEP, "header_mismatch", Answer(problem=problem), said)
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
        """Return the gravest flaw (the first of large arguments), None when they fit."""
        if self.validator.is_valid(arguments):
            return None
        told = [(_told(error), error.schema_path) for error in self._errors(arguments)]
        (reason, public), place = min(told, key=lambda one: _gravity(one[0]))
        # The row gets the place in the schema, which is the owner's, not that in the arguments.
        return SchemaFlaw(reason, public, "/".join(str(part) for part in place))

    def _errors(self, arguments: Any) -> list[jsonschema_rs.ValidationError]:
        if not _has_more_values(arguments, MAX_RANKED):
            return list(self.validator.iter_errors(arguments))
        try:
            self.validator.validate(arguments)
        except jsonschema_rs.ValidationError as error:
            return [error]
        raise ValueError("arguments do not fit, but nothing says why")


MAX_RANKED = 256
"""Values up to which the gravest of all flaws is told; of more arguments it is the first one.
The library makes every error before it gives one, which took 0.3 s for 10 000 values."""

ORDER = ("extra_arguments", "missing_arguments", "invalid_type", "invalid_arguments")
"""Reasons in the order in which one of several is told."""


def compile_schema(schema: Mapping[str, Any]) -> Compiled:
    """Compile a JSON Schema of draft 4, 6, 7, 2019-09 or 2020-12. Fetches nothing.

    Raises:
        CatalogueError: the draft is another, the schema is not valid by it or too large, a `$ref`
            leads out of it or nowhere, or a `pattern` needs an engine without bounds.
    """
    draft = _draft(schema)
    _refuse_large(schema)
    rewritten = _Rewritten(schema, "id" if draft is jsonschema_rs.Draft4Validator else "$id")
    rewritten.refuse_far_references()
    try:
        validator = draft(
            rewritten.root,
            validate_formats=False,
            offline=True,
            # The engine without backtracking: a pattern must not make a call take for ever.
            pattern_options=jsonschema_rs.RegexOptions(),
            keywords={INTEGER: _Integer},
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        said = _one_line(str(error).partition("\n")[0])
        raise CatalogueError(f"schema cannot be used: {said}") from error
    return Compiled(validator)


def _draft(schema: Any) -> type[jsonschema_rs.Validator]:
    if not isinstance(schema, Mapping):
        raise CatalogueError("schema cannot be used: it is not an object")
    named = schema.get("$schema", "https://json-schema.org/draft/2020-12/schema")
    draft = DRAFTS.get(named.removesuffix("#")) if isinstance(named, str) else None
    if draft is None:
        raise CatalogueError(
            "schema is of a draft that is not supported: write 2020-12 or leave it"
        )
    return draft


def _one_line(said: object) -> str:
    text = " ".join(str(said).split())
    return text if len(text) <= MAX_SAID else text[: MAX_SAID - 1] + "…"


def _compiled(entry: Entry) -> Compiled:
    try:
        return compile_schema(entry.input_schema)
    except CatalogueError as error:
        raise CatalogueError(f"{entry.kind} `{entry.name}`: {error}") from error


def _mirrored(tool: Entry) -> tuple[Mirrored, ...]:
    try:
        return mirrored_by(tool.input_schema)
    except CatalogueError as error:
        raise CatalogueError(f"tool `{tool.name}`: {error}") from error


class _Integer:
    """The keyword that sets apart 4 and 4.0; its value is the types that stand beside it."""

    def __init__(self, parent: Any, value: Any, path: Any) -> None:
        """Take what the library gives; only the value matters."""
        self._kinds = ",".join(value)

    def validate(self, instance: Any) -> None:
        """Refuse a number that was written as a fraction."""
        if type(instance) is float:
            raise ValueError(self._kinds)


UNDER_NAMES = frozenset(
    ["$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"]
)
"""Keywords under which schemas stand under names of their own."""

VALUES = frozenset({"const", "default", "enum", "examples"})
"""Keywords under which there are values, and never schemas."""

REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


class _Rewritten:
    """A copy of a schema in which integer, where it does not stand beside number, means it.

    `root` is the copy. A keyword that is in no draft may hold schemas too, since a `$ref` may
    lead there; what it holds is rewritten like a schema, and means nothing if nothing leads there.
    """

    def __init__(self, schema: Mapping[str, Any], id_keyword: str) -> None:
        """Rewrite a schema that is not too deep, of a draft that calls ids by a keyword."""
        self._id_keyword = id_keyword
        self._places: set[int] = set()
        self._references: list[str] = []
        self.root = self._schema(schema, is_root=True)

    def refuse_far_references(self) -> None:
        """Refuse a reference that leads out, nowhere, or to what has not been rewritten."""
        for reference in self._references:
            said = _one_line(reference)
            if not reference.startswith("#"):
                raise CatalogueError(f"schema refers to `{said}`: only `#` within it is followed")
            fragment = unquote(reference[1:])
            if fragment.startswith("/") and not self._is_schema(self._at(fragment)):
                raise CatalogueError(f"schema cannot be used: no schema is at `{said}` within it")

    def _schema(self, schema: Any, *, is_root: bool = False) -> Any:
        if isinstance(schema, list):
            return [self._schema(inner) for inner in schema]
        if not isinstance(schema, Mapping):
            return schema
        made = {
            key: self._under(key, value)
            for key, value in schema.items()
            # Ours is not theirs to set, and the outermost draft is that of the whole.
            if key != INTEGER and (key != "$schema" or is_root)
        }
        self._references += [made[key] for key in REFERENCES if isinstance(made.get(key), str)]
        named = made.get(self._id_keyword)
        # Inside an id, `#` begins elsewhere, and a reference could lead around this copy.
        if not is_root and isinstance(named, str) and not named.startswith("#"):
            raise CatalogueError("schema has an id inside: only the outermost may have one")
        kinds = schema.get("type")
        kinds = kinds if isinstance(kinds, list) else [kinds]
        if "integer" in kinds and "number" not in kinds:
            made[INTEGER] = [kind for kind in kinds if isinstance(kind, str)]
        if made.get("additionalProperties") is False and "patternProperties" not in made:
            # Means the same, but without it the library does not say which names are too many.
            made.setdefault("properties", {})
        self._places.add(id(made))
        return made

    def _under(self, key: str, value: Any) -> Any:
        if key in VALUES:
            return value
        if key in UNDER_NAMES and isinstance(value, Mapping):
            return {name: self._schema(inner) for name, inner in value.items()}
        return self._schema(value)

    def _is_schema(self, node: Any) -> bool:
        return isinstance(node, bool) or id(node) in self._places

    def _at(self, pointer: str) -> Any:
        node = self.root
        for part in pointer[1:].split("/"):
            name = part.replace("~1", "/").replace("~0", "~")
            if isinstance(node, dict) and name in node:
                node = node[name]
            elif isinstance(node, list) and name.isdecimal() and int(name) < len(node):
                node = node[int(name)]
            else:
                return None
        return node


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


def _told(error: Any) -> tuple[str, str]:
    """Return reason and public text of one error: the argument's place, and never its value."""
    inside = [str(part) for part in error.instance_path]
    place = _argument(inside)
    if wanted := _wanted(error, error.instance_path):
        return "invalid_type", f"{place} must be {_kinds(wanted)}"
    kind = error.kind
    match kind:
        case ErrorKind.AdditionalProperties() | ErrorKind.UnevaluatedProperties():
            return "extra_arguments", f"there is no {_argument([*inside, kind.unexpected[0]])}"
        case ErrorKind.FalseSchema() if inside and isinstance(error.instance_path[-1], str):
            return "extra_arguments", f"there is no {place}"
        case ErrorKind.Required():
            return "missing_arguments", f"{_argument(inside, kind.property)} is missing"
        case ErrorKind.AnyOf() | ErrorKind.OneOfNotValid():
            return _told_of_branches(error, f"{place} does not fit `{kind.name}`")
        case ErrorKind.MaxLength():
            length = len(error.instance)
            text = f"{place} has {length} characters; at most {kind.limit} are allowed"
            return "invalid_arguments", text
        case _:
            return "invalid_arguments", f"{place} does not fit `{kind.name}`"


def _told_of_branches(error: Any, text: str) -> tuple[str, str]:
    """Return what the branches agree on that take the type of what came."""
    here = error.instance_path
    told = {
        min(map(_told, branch), key=_gravity, default=("invalid_arguments", text))
        for branch in error.kind.context
        if not any(_wanted(inner, here) for inner in branch)
    }
    if len(told) == 1:
        return told.pop()
    reasons = {reason for reason, _ in told}
    return reasons.pop() if len(reasons) == 1 else "invalid_arguments", text


def _wanted(error: Any, here: list[str | int]) -> set[str]:
    """Return the types that an error asks for at a place: none when it is not about the type."""
    if error.instance_path != here:
        return set()
    kind = error.kind
    match kind:
        case ErrorKind.Type():
            return set(kind.types)
        case ErrorKind.Custom():
            return set(kind.message.split(","))
        case ErrorKind.AnyOf() | ErrorKind.OneOfNotValid():
            branches = [
                set().union(*(_wanted(inner, here) for inner in branch)) for branch in kind.context
            ]
            return set().union(*branches) if all(branches) else set()
    return set()


def _has_more_values(arguments: Any, limit: int) -> bool:
    rest = [arguments]
    for _ in range(limit):
        if not rest:
            return False
        node = rest.pop()
        rest.extend(node.values() if isinstance(node, dict) else node if type(node) is list else ())
    return bool(rest)


def _gravity(told: tuple[str, str]) -> int:
    return ORDER.index(told[0])


def _kinds(kinds: Iterable[str]) -> str:
    named = [f"an {kind}" if kind[0] in "aio" else f"a {kind}" for kind in sorted(kinds)]
    return " or ".join(named).replace("a null", "null")


def _argument(inside: list[str], owned: str = "") -> str:
    """Return how an argument is called. `owned` is a last name that the schema has."""
    if not inside and not owned:
        return "what came as arguments"
    is_said = not inside or PLACE.match(".".join(inside))
    place = ".".join([*inside, owned] if owned else inside)
    if is_said and owned.isprintable() and len(owned) <= MAX_OWNED:
        return f"argument `{place}`"
    return "argument of that name"


def _no(reason: str, text: str, private: str | None = None) -> Refused:
    public = Answer(problem=Problem(INVALID_PARAMS, text))
    return Refused(STEP, reason, public, text if private is None else private)
