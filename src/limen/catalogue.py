"""What a tool is, and how one is entered: from a typed Python function.

The first positional parameter of the function is the narrowed view that its server gives it;
every keyword-only parameter is an argument of the tool. The JSON Schema is made from the
annotations and closed to extra fields. Prompts and resource templates are entered the same way.
"""

from __future__ import annotations

import functools
import inspect
import operator
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ConfigDict, TypeAdapter, create_model
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

from limen.canonical import digest
from limen.errors import CatalogueError
from limen.ports import PolicyResource
from limen.words import Answer, Caller, Effect

Kind = Literal["tool", "prompt", "resource"]

TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}\Z")
"""What the 2026-07-28 specification allows in a tool's name."""

NEVER_ARGUMENTS = frozenset(
    {"approved", "approval", "caller", "caller_id", "user", "user_id", "identity", "recipient"}
)
"""Identity and approval never come from the model, so no schema may ask for them."""

ResourceOf = Callable[[Any, Mapping[str, Any]], "PolicyResource | Answer"]
"""From a view and well-shaped arguments to what the call is about, or to the answer that says
why they name nothing."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One tool, prompt or resource template, as the gate knows it.

    `name` is the tool's or prompt's name or the template's address. `scope` must be granted for
    the entry to exist for a caller. `action` is what policy calls it.
    """

    kind: Kind
    name: str
    title: str
    description: str
    scope: str
    action: str
    effect: Effect
    held: bool
    destructive: bool
    idempotent: bool
    open_world: bool
    open_arguments: bool
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None
    body: Callable[..., Any]
    resource: ResourceOf | None
    complete: Mapping[str, Callable[..., Iterable[str]]]
    enabled: bool = True

    def visible_to(self, caller: Caller) -> bool:
        """Tell whether the entry exists for a caller."""
        return self.enabled and self.scope in caller.scopes

    @property
    def digest(self) -> str:
        """Return the digest of all that a caller or an approver relies on."""
        return digest(
            {
                "name": self.name,
                "description": self.description,
                "scope": self.scope,
                "effect": str(self.effect),
                "held": self.held,
                "input_schema": self.input_schema,
                "output_schema": self.output_schema,
            }
        )


def tool(
    *,
    scope: str,
    title: str,
    effect: Effect = Effect.READ,
    resource: ResourceOf | None = None,
    held: bool = False,
    destructive: bool = False,
    idempotent: bool = False,
    open_world: bool = False,
    open_arguments: bool = False,
    name: str | None = None,
) -> Callable[[Callable[..., Any]], Entry]:
    """Enter a function as a tool.

    Without `resource`, policy is asked about the tool itself (`Tool::"name"`).

    Raises:
        CatalogueError: the function or its annotations do not make a tool.
    """

    def entered(body: Callable[..., Any]) -> Entry:
        tool_name = name or body.__name__
        if not TOOL_NAME.match(tool_name):
            raise CatalogueError(
                f"tool name `{tool_name}` does not fit:"
                " use 1 to 128 of A-Z, a-z, 0-9, `_`, `.`, `-`"
            )
        if effect is Effect.STORE and inspect.iscoroutinefunction(body):
            raise CatalogueError(
                f"tool `{tool_name}` writes to the store, so it runs inside one transaction:"
                " write it with `def`, not `async def`"
            )
        if held and effect is not Effect.STORE:
            raise CatalogueError(
                f"tool `{tool_name}` is held for approval, so what it does has to be one"
                " transaction: queue what leaves the house, with `effect=Effect.STORE`"
            )
        return Entry(
            kind="tool",
            name=tool_name,
            title=title,
            description=_description(tool_name, body),
            scope=scope,
            action=tool_name,
            effect=effect,
            held=held,
            destructive=destructive,
            idempotent=idempotent or effect is Effect.READ,
            open_world=open_world,
            open_arguments=open_arguments,
            input_schema=_input_schema(tool_name, body, open_arguments=open_arguments),
            output_schema=_output_schema(tool_name, body),
            body=body,
            resource=resource,
            complete={},
        )

    return entered


def prompt(
    *,
    scope: str,
    title: str,
    action: str,
    resource: ResourceOf | None = None,
    complete: Mapping[str, Callable[..., Iterable[str]]] | None = None,
) -> Callable[[Callable[..., Any]], Entry]:
    """Enter a function as a prompt; it returns the text of the one user message.

    Raises:
        CatalogueError: the function or its annotations do not make a prompt.
    """
    return _reading("prompt", None, scope, title, action, resource, complete)


def resource_template(
    address: str,
    *,
    scope: str,
    title: str,
    action: str,
    resource: ResourceOf | None = None,
    complete: Mapping[str, Callable[..., Iterable[str]]] | None = None,
) -> Callable[[Callable[..., Any]], Entry]:
    """Enter a function as a resource template, `scheme://host/{name}` with one variable at the end.

    The function returns the text of the resource, or an `Answer` that says no.

    Raises:
        CatalogueError: the address or the function does not make a template.
    """
    if not re.fullmatch(r"[a-z][a-z0-9+.-]*://[A-Za-z0-9./_-]*\{\+?[a-z_]+\}", address):
        raise CatalogueError(
            f"resource address `{address}` does not fit: write `scheme://host/{{name}}`"
        )
    return _reading("resource", address, scope, title, action, resource, complete)


def _reading(
    kind: Kind,
    name: str | None,
    scope: str,
    title: str,
    action: str,
    resource: ResourceOf | None,
    complete: Mapping[str, Callable[..., Iterable[str]]] | None,
) -> Callable[[Callable[..., Any]], Entry]:
    def entered(body: Callable[..., Any]) -> Entry:
        entry_name = name or body.__name__
        return Entry(
            kind=kind,
            name=entry_name,
            title=title,
            description=_description(entry_name, body),
            scope=scope,
            action=action,
            effect=Effect.READ,
            held=False,
            destructive=False,
            idempotent=True,
            open_world=False,
            open_arguments=False,
            input_schema=_input_schema(entry_name, body, open_arguments=False),
            output_schema=None,
            body=body,
            resource=resource,
            complete=complete or {},
        )

    return entered


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All that one server offers, in a fixed order. Names are unique within a kind."""

    server: str
    title: str
    version: str
    instructions: str
    tools: Mapping[str, Entry]
    prompts: Mapping[str, Entry]
    resources: Mapping[str, Entry]

    @classmethod
    def of(
        cls, server: str, entries: Iterable[Entry], *, title: str, version: str, instructions: str
    ) -> Catalogue:
        """Build a catalogue.

        Raises:
            CatalogueError: two entries share a name.
        """
        shelves: dict[Kind, dict[str, Entry]] = {"tool": {}, "prompt": {}, "resource": {}}
        for entry in entries:
            shelf = shelves[entry.kind]
            if entry.name in shelf:
                raise CatalogueError(f"{entry.kind} `{entry.name}` is entered twice")
            shelf[entry.name] = entry
        return cls(
            server,
            title,
            version,
            instructions,
            dict(sorted(shelves["tool"].items())),
            dict(sorted(shelves["prompt"].items())),
            dict(sorted(shelves["resource"].items())),
        )

    def find(self, method: str, target: str | None) -> Entry | None:
        """Return the entry that a method's target names, or None."""
        if target is None:
            return None
        if method == "tools/call":
            return self.tools.get(target)
        if method == "prompts/get":
            return self.prompts.get(target)
        if method == "resources/read":
            return next((e for e in self.resources.values() if matches(e.name, target)), None)
        if method == "completion/complete":
            return self.prompts.get(target) or self.resources.get(target)
        return None

    def scopes(self) -> frozenset[str]:
        """Return every scope that some entry asks for."""
        shelves = (self.tools, self.prompts, self.resources)
        return frozenset(entry.scope for shelf in shelves for entry in shelf.values())


def matches(address: str, uri: str) -> dict[str, str] | None:
    """Return the variable of a template address as read from a URI, or None if it does not fit."""
    prefix, _, variable = address.partition("{")
    if not uri.startswith(prefix) or len(uri) == len(prefix):
        return None
    return {variable.strip("+}"): uri[len(prefix) :]}


def _description(name: str, body: Callable[..., Any]) -> str:
    text = inspect.getdoc(body)
    if not text:
        raise CatalogueError(f"`{name}` has no docstring: a caller reads it as the description")
    return text.strip()


def _input_schema(name: str, body: Callable[..., Any], *, open_arguments: bool) -> dict[str, Any]:
    hints = typing.get_type_hints(body, include_extras=True)
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(body).parameters.values():
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            continue
        if parameter.name in NEVER_ARGUMENTS:
            raise CatalogueError(
                f"`{name}` asks for `{parameter.name}`:"
                " identity and approval never come from a caller"
            )
        if parameter.name not in hints:
            raise CatalogueError(f"argument `{parameter.name}` of `{name}` has no type")
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        fields[parameter.name] = (hints[parameter.name], default)
    extra: Literal["allow", "forbid"] = "allow" if open_arguments else "forbid"
    try:
        model = create_model(name, __config__=ConfigDict(extra=extra), **fields)
        schema: dict[str, Any] = model.model_json_schema()
    except (PydanticSchemaGenerationError, PydanticUserError) as error:
        raise CatalogueError(
            f"`{name}` has an argument that no JSON Schema describes: {error}"
        ) from error
    for field, described in schema.get("properties", {}).items():
        described.pop("title", None)
        if "description" not in described:
            raise CatalogueError(f"argument `{field}` of `{name}` has no description")
    schema.pop("title", None)
    schema.setdefault("properties", {})
    schema["additionalProperties"] = open_arguments
    return schema


def _output_schema(name: str, body: Callable[..., Any]) -> dict[str, Any] | None:
    returned = _without_answer(typing.get_type_hints(body).get("return"))
    if returned is None or returned is dict:
        return None
    try:
        schema: dict[str, Any] = TypeAdapter(returned).json_schema()
    except (PydanticSchemaGenerationError, PydanticUserError) as error:
        raise CatalogueError(f"`{name}` returns what no JSON Schema describes: {error}") from error
    variants = schema.get("anyOf")
    if variants is not None and all(_is_object(one, schema) for one in variants):
        # The specification wants it said at the root, though each variant says it too.
        schema = {"type": "object", **schema}
    if schema.get("type") != "object":
        raise CatalogueError(f"`{name}` returns no JSON object: structured answers are objects")
    _refuse_without_papers(name, schema)
    return schema


def _is_object(schema: Mapping[str, Any], root: Mapping[str, Any]) -> bool:
    reference = schema.get("$ref", "")
    if reference:
        schema = root["$defs"][reference.removeprefix("#/$defs/")]
    return schema.get("type") == "object"


def _refuse_without_papers(name: str, node: Any) -> None:
    """Refuse a result that has observations without their coverage, or a coverage of nothing."""
    if isinstance(node, list):
        for inner in node:
            _refuse_without_papers(name, inner)
    if not isinstance(node, Mapping):
        return
    properties = node.get("properties")
    if isinstance(properties, Mapping):
        promised = "coverage" in properties and "coverage" in node.get("required", ())
        if "observations" in properties and not promised:
            raise CatalogueError(
                f"`{name}` returns `observations` without a `coverage` that is always there:"
                " a number says nothing about what did not come"
            )
        if "coverage" in properties and "observations" not in properties:
            raise CatalogueError(f"`{name}` returns a `coverage` of no `observations`")
    for inner in node.values():
        _refuse_without_papers(name, inner)


def _without_answer(returned: Any) -> Any:
    # A body that says no returns an `Answer`; its JSON has the shape of the other answers.
    if typing.get_origin(returned) not in (typing.Union, types.UnionType):
        return returned
    others = [part for part in typing.get_args(returned) if part is not Answer]
    return functools.reduce(operator.or_, others)
