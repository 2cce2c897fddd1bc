"""Serve MCP tools to callers you did not write: seven questions at every call, in one order.

The map, from the top down; a room imports only what is below it:

    cli                                     one file a command group
    app                                     composition: who keeps each port
    transport  prove                        MCP on the wire, both eras; a prober from outside
    gate  review                            the row of seven; a person's decision
    decisions  backends  servers  store     the seven; what does the work; what is served; tables
    walk                                    what one request gathers on its way
    catalogue                               what a tool is, and how one is entered
    answers  tokens  upstream               papers; bearer tokens; fetching politely
    ports  mirror                           what the rooms need of the world; mirrored headers
    words  errors  settings  canonical  strict_json  version

Start reading at `gate.py`; `docs/tour.md` follows one request through all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from limen.catalogue import Catalogue, prompt, resource_template, tool
    from limen.ports import Entity, PolicyResource
    from limen.words import Answer, Caller, Effect, business

__all__ = [
    "Answer",
    "Caller",
    "Catalogue",
    "Effect",
    "Entity",
    "PolicyResource",
    "business",
    "prompt",
    "resource_template",
    "tool",
]

_ROOMS = {
    **dict.fromkeys(("Catalogue", "prompt", "resource_template", "tool"), "catalogue"),
    **dict.fromkeys(("Entity", "PolicyResource"), "ports"),
    **dict.fromkeys(("Answer", "Caller", "Effect", "business"), "words"),
}


def __getattr__(name: str) -> Any:
    # Late, because `limen.cli` starts faster without them, and needs them only when it serves.
    if name in _ROOMS:
        import importlib

        return getattr(importlib.import_module(f"limen.{_ROOMS[name]}"), name)
    raise AttributeError(f"module `limen` has no attribute `{name}`")
