"""The nouns: what a call is, who makes it, and what the seven decisions can say.

Values only: nothing here reads a clock, a store or the wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

NO_SUCH_TOOL = "no tool by that name is available to this caller"
"""The one refusal: the same for a name that is hidden, disabled, down or made up."""

NO_SUCH_PROMPT = "no prompt by that name is available to this caller"
NO_SUCH_RESOURCE = "no resource by that address is available to this caller"

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
HEADER_MISMATCH = -32020
UNSUPPORTED_PROTOCOL_VERSION = -32022
UNAUTHENTICATED = 40100
"""JSON-RPC code outside the reserved range: nobody vouches for the caller, as in HTTP 401."""

OVER_BUDGET = 42900
"""JSON-RPC code outside the reserved range: what a method other than `tools/call` answers when
the caller's budget is spent. It reminds of HTTP 429."""

Decision = Literal["allow", "deny", "hold"]
State = Literal["started", "done"]


class Effect(StrEnum):
    """What a tool does to the world, which decides how its row is written."""

    READ = "read"
    """Changes nothing: one row, after the answer is known."""
    STORE = "store"
    """Writes to our own store: the write and its row are one transaction."""
    OUTSIDE = "outside"
    """Acts where no transaction of ours reaches: a durable `started` row comes first."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is calling, as the boundary established it; never as the wire claimed it."""

    id: str
    roles: frozenset[str]
    scopes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Problem:
    """A JSON-RPC error: code, one line, and optional data."""

    code: int
    message: str
    data: Any = None


@dataclass(frozen=True, slots=True)
class Flaw:
    """What is wrong with a message before any name in it matters."""

    reason: str
    problem: Problem


@dataclass(frozen=True, slots=True)
class Call:
    """One request, as it came: identity is not in it.

    `id` is ours and names the audit row; the JSON-RPC id stays with the transport.
    `target` is the tool's or prompt's name or the resource's address, None where the method has
    none. `arguments` is any JSON value, exactly as parsed; `duplicates` are the keys that came
    twice inside it, as dotted paths. `received_at` is aware UTC. `credential` is the bearer token,
    and `mirrored` the `Mcp-Param-*` headers by lower-case name with all their values, None where
    the transport or the revision has none. `wire` belongs to the transport and to a backend that
    speaks it too; no decision looks at it.
    """

    id: str
    received_at: datetime
    transport: str
    revision: str
    client: str
    method: str
    target: str | None = None
    arguments: Any = None
    size: int = 0
    duplicates: tuple[str, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    flaw: Flaw | None = None
    credential: str | None = field(default=None, repr=False)
    mirrored: Mapping[str, tuple[str, ...]] | None = None
    wire: Any = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the caller gets: a result or a problem, never both.

    `code` is what the row says of it when it is not simply fine: a business error such as
    `not_found`, or None. `content` are MCP content blocks of a tool's answer besides its result,
    such as a picture of it. `wire` is the transport's, as in `Call`.
    """

    result: Mapping[str, Any] | None = None
    problem: Problem | None = None
    code: str | None = None
    content: tuple[Mapping[str, Any], ...] = ()
    wire: Any = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Passed:
    """The step has no objection."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The step says no.

    `public` tells the caller what they can do; `private` tells the owner what happened and never
    leaves the audit row. `reason` is the short code that both the row and the metrics carry.
    """

    step: str
    reason: str
    public: Answer
    private: str = ""


@dataclass(frozen=True, slots=True)
class Held:
    """A person must say yes first: `request` is what they will be asked.

    The approval itself is made in the transaction that writes the row.
    """

    step: str
    request: ApprovalRequest


Verdict = Passed | Refused | Held


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call ended: what its row says, and what the caller gets once that is durable."""

    decision: Decision
    step: str
    reason: str
    answer: Answer
    private: str = ""
    approval: str = ""


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """Exactly what a person is asked to say yes to. All digests are `sha-256:` and hex."""

    caller: str
    server: str
    tool: str
    tool_digest: str
    arguments: Mapping[str, Any]
    arguments_digest: str
    resource: str
    resource_digest: str
    policy_version: str
    asked_at: datetime
    expires_at: datetime
    setup: str = ""
    """Where it leads as that is set up, such as a destination; empty where it leads nowhere."""
    transport: str = ""
    """How it came, which says who vouched: the owner's settings over stdio, a token over HTTP."""
    roles: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    """What the caller held when they asked, sorted: nobody can ask an outside issuer later."""


@dataclass(frozen=True, slots=True)
class Approval:
    """A request with what has become of it.

    `state` is `pending`; `rejected`, `expired` or `conflict` (what was asked for is no longer
    what it was); `approved`; and, once what it queued was sent, `delivered`, `failed` or
    `unconfirmed`. `outcome` is the tool's own answer from `approved` on.
    """

    id: str
    request: ApprovalRequest
    state: str
    decided_by: str | None = None
    decided_at: datetime | None = None
    decision_reason: str | None = None
    outcome: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class AuditRow:
    """What is written down of one request. Never the arguments, unless the owner lists fields.

    `duration_us` is whole microseconds. `kept` holds the argument fields that the owner chose.
    """

    id: str
    at: datetime
    state: State
    server: str
    transport: str
    revision: str
    caller: str
    client: str
    method: str
    tool: str
    decision: Decision
    step: str
    reason: str
    private: str = ""
    arguments_digest: str = ""
    result_digest: str = ""
    policies: tuple[str, ...] = ()
    approval: str = ""
    duration_us: int = 0
    kept: Mapping[str, Any] | None = None


def business(code: str, message: str, **more: Any) -> Answer:
    """Return a tool result that says no: `{"ok": false, "error": code, …}`.

    The connection worked; the business decision was no. So it is a result, not an error.
    """
    return Answer(result={"ok": False, "error": code, "message": message, **more}, code=code)


def as_problem(answer: Answer) -> Answer:
    """Return a business answer as the error that methods without business answers give."""
    if answer.result is None or answer.code is None:
        return answer
    problem = Problem(INVALID_PARAMS, str(answer.result["message"]))
    return Answer(problem=problem, code=answer.code)
