"""The work of a server whose tools are entries of our own catalogue.

A body gets the view of its server and its arguments, nothing else. Results have the shape that
the MCP specification gives to each method; what a protocol revision adds is the transport's part.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from limen.catalogue import Catalogue, Entry
from limen.ports import May, Page, Policy, Transaction
from limen.walk import Walk
from limen.words import INVALID_PARAMS, Answer, Caller, Problem, as_problem

BAD_CURSOR = Answer(problem=Problem(INVALID_PARAMS, "cursor is not one that this server gave"))


class ViewOf(Protocol):
    """Make the view of a server, valid for one call and already narrowed to its caller."""

    def __call__(self, transaction: Transaction | None, caller: str, key: str) -> Any:
        """Return a view that writes in `transaction`, or one that only reads."""


@dataclass(frozen=True, slots=True)
class Native:
    """Run the entries of a catalogue. `list_resources` is what `resources/list` shows."""

    catalogue: Catalogue
    policy: Policy
    view_of: ViewOf
    list_resources: Callable[[Any, May, str | None], Page | Answer] | None = None

    async def run(self, walk: Walk) -> Answer:
        """Do the work of a call that writes nothing."""
        method = walk.call.method
        if method == "tools/call":
            return await self._call(walk)
        if method == "prompts/get":
            return await self._get_prompt(walk)
        if method == "resources/read":
            return await self._read_resource(walk)
        if method == "completion/complete":
            return self._complete(walk)
        if method == "resources/list":
            return self._resources(walk)
        if method.endswith("/list"):
            return self._list(walk)
        if method in ("initialize", "server/discover"):
            return Answer(result=self._about())
        return Answer(result={})

    def act(self, walk: Walk, transaction: Transaction, key: str) -> Answer:
        """Do the work of a tool inside the transaction that writes its row."""
        view = self.view_of(transaction, walk.caller.id, key)
        return _answer(walk.entered().body(view, **walk.arguments))

    async def _call(self, walk: Walk) -> Answer:
        return _answer(await self._returned(walk))

    async def _get_prompt(self, walk: Walk) -> Answer:
        text = await self._returned(walk)
        if isinstance(text, Answer):
            return as_problem(text)
        message = {"role": "user", "content": {"type": "text", "text": text}}
        return Answer(result={"description": walk.entered().description, "messages": [message]})

    async def _read_resource(self, walk: Walk) -> Answer:
        text = await self._returned(walk)
        if isinstance(text, Answer):
            return as_problem(text)
        content = {"uri": walk.call.target, "mimeType": "text/plain", "text": text}
        return Answer(result={"contents": [content]})

    async def _returned(self, walk: Walk) -> Any:
        returned = walk.entered().body(self._view(walk), **walk.arguments)
        return await returned if inspect.isawaitable(returned) else returned

    def _complete(self, walk: Walk) -> Answer:
        complete = walk.entered().complete.get(walk.arguments["name"])
        values: list[str] = []
        if complete is not None:
            view = self._view(walk)
            values = list(complete(view, self._may(walk.caller), walk.arguments["value"]))
        return Answer(result={"completion": {"values": values[:100], "hasMore": len(values) > 100}})

    def _resources(self, walk: Walk) -> Answer:
        if self.list_resources is None:
            return self._list(walk)
        cursor = walk.call.params.get("cursor")
        page = self.list_resources(self._view(walk), self._may(walk.caller), cursor)
        if isinstance(page, Answer):
            return page
        more = {} if page.next_cursor is None else {"nextCursor": page.next_cursor}
        return Answer(result={"resources": [*page.items], **more})

    def _list(self, walk: Walk) -> Answer:
        """List what exists for this caller, in one page."""
        if walk.call.params.get("cursor") is not None:
            return BAD_CURSOR
        shelves: Mapping[str, tuple[str, Mapping[str, Entry], Callable[[Entry], Any]]] = {
            "tools/list": ("tools", self.catalogue.tools, described_tool),
            "prompts/list": ("prompts", self.catalogue.prompts, described_prompt),
            "resources/list": ("resources", {}, described_template),
            "resources/templates/list": (
                "resourceTemplates",
                self.catalogue.resources,
                described_template,
            ),
        }
        key, shelf, described = shelves[walk.call.method]
        listed = [described(entry) for entry in shelf.values() if entry.visible_to(walk.caller)]
        return Answer(result={key: listed})

    def _about(self) -> dict[str, Any]:
        kinds = {
            "tools": self.catalogue.tools,
            "prompts": self.catalogue.prompts,
            "resources": self.catalogue.resources,
        }
        capabilities: dict[str, Any] = {kind: {} for kind, shelf in kinds.items() if shelf}
        if any(entry.complete for shelf in kinds.values() for entry in shelf.values()):
            capabilities["completions"] = {}
        return {"capabilities": capabilities, "instructions": self.catalogue.instructions}

    def _view(self, walk: Walk) -> Any:
        return self.view_of(None, walk.caller.id, "")

    def _may(self, caller: Caller) -> May:
        return lambda action, resource: self.policy.decide(caller, action, resource).allowed


def described_tool(entry: Entry) -> dict[str, Any]:
    """Return a tool as `tools/list` shows it."""
    described = {
        "name": entry.name,
        "title": entry.title,
        "description": entry.description,
        "inputSchema": entry.input_schema,
        "annotations": {
            "title": entry.title,
            "readOnlyHint": entry.effect == "read",
            "destructiveHint": entry.destructive,
            "idempotentHint": entry.idempotent,
            "openWorldHint": entry.open_world,
        },
    }
    if entry.output_schema is not None:
        described["outputSchema"] = entry.output_schema
    return described


def described_prompt(entry: Entry) -> dict[str, Any]:
    """Return a prompt as `prompts/list` shows it."""
    required = entry.input_schema.get("required", [])
    return {
        "name": entry.name,
        "title": entry.title,
        "description": entry.description,
        "arguments": [
            {"name": name, "description": schema["description"], "required": name in required}
            for name, schema in entry.input_schema["properties"].items()
        ],
    }


def described_template(entry: Entry) -> dict[str, Any]:
    """Return a resource template as `resources/templates/list` shows it."""
    return {
        "uriTemplate": entry.name,
        "name": entry.body.__name__,
        "title": entry.title,
        "description": entry.description,
        "mimeType": "text/plain",
    }


def _answer(returned: Any) -> Answer:
    return returned if isinstance(returned, Answer) else Answer(result=returned)
