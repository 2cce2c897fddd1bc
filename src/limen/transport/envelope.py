"""MCP messages, in and out: what came becomes a `Call`, an `Answer` becomes what goes out.

Both protocol eras. A modern request (2026-07-28) describes itself in `params._meta`; a legacy one
relies on the `initialize` of its session. Nothing here decides: what is wrong with a message is
carried along as a `Flaw`, so that it is charged and written down like every other call.

Source: MCP specification, revisions 2026-07-28 to 2025-03-26; JSON-RPC 2.0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from limen.decisions.d7_audit import shown
from limen.mirror import PREFIX, decoded
from limen.ports import Clock
from limen.strict_json import NotJsonError, read
from limen.words import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
    Answer,
    Call,
    Flaw,
    Problem,
)

MODERN = "2026-07-28"
LEGACY = ("2025-11-25", "2025-06-18")
"""Revisions that begin with `initialize`, newest first."""

SUPPORTED = (MODERN, *LEGACY)

OLDEST = "2025-03-26"
"""Legacy too, over HTTP alone: a request that names no revision is taken for one of it. It has
batches, and no structured results."""

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CLIENT_KEY = "io.modelcontextprotocol/clientInfo"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
SERVER_KEY = "io.modelcontextprotocol/serverInfo"

LISTEN = "subscriptions/listen"
NAMED = frozenset({"tools/call", "prompts/get", "resources/read"})
"""Methods whose `Mcp-Name` header repeats the name or the address."""

MODERN_ONLY = frozenset({"server/discover", LISTEN})
LEGACY_ONLY = frozenset({"initialize", "ping"})

CACHED_MS = {
    "server/discover": 60_000,
    "tools/list": 60_000,
    "prompts/list": 60_000,
    "resources/templates/list": 60_000,
    "resources/list": 0,
    "resources/read": 0,
}
"""Milliseconds for which a modern client may keep a result. Always its own: what is listed
depends on who asks."""

MAX_CLIENT = 128
"""Characters of what a client says of itself."""

MAX_ID = 2**63
"""Beyond it no JSON library of ours spells an integer id back exactly."""

MAX_BATCH = 50
"""Messages in one batch of the revision that has batches."""

RequestId = str | int
Headers = Mapping[str, Sequence[str]]
"""Of an HTTP request: all values of each, by lower-case name."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request that wants an answer. `id` is None when it could not be read."""

    id: RequestId | None
    call: Call


@dataclass(frozen=True, slots=True)
class Cancel:
    """The client does not want the answer to one of its requests any more."""

    id: RequestId


@dataclass(slots=True)
class Session:
    """What `initialize` has settled for the legacy requests after it, once it is `opened`.

    Over HTTP a request that belongs to no session brings its revision itself.
    """

    revision: str = ""
    client: str = ""
    opened: bool = False


@dataclass(frozen=True, slots=True)
class Ignored:
    """What the specification says to ignore: a notification, a response, or one that is neither."""

    kind: Literal["notification", "response", "malformed"]


Message = Request | Cancel | Ignored


class _FlawedError(Exception):
    def __init__(self, reason: str, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.flaw = Flaw(reason, Problem(code, message, data))


@dataclass(slots=True)
class _Draft:
    """What is known of a call so far, so that a flawed one is written down as far as it goes."""

    id: RequestId | None = None
    revision: str = ""
    client: str = ""
    method: str = ""
    target: str | None = None
    arguments: Any = None
    duplicates: tuple[str, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    credential: str | None = None
    mirrored: Mapping[str, tuple[str, ...]] | None = None


@dataclass(frozen=True, slots=True)
class _Origin:
    """Where a message came from: its session, and the HTTP request around it if there is one."""

    session: Session
    headers: Headers | None
    credential: str | None


@dataclass(frozen=True, slots=True)
class Envelope:
    """Read messages and write answers for one server. `transport` is what the rows say.

    `legacy` are the revisions with `initialize` that it speaks, newest first; `listens` says
    whether it can keep a stream of notices open.
    """

    server: str
    title: str
    version: str
    transport: str
    clock: Clock
    new_id: Callable[[], str]
    legacy: tuple[str, ...] = LEGACY
    listens: bool = False

    def read(self, raw: bytes, session: Session) -> Message:
        """Return what a message is. Never raises: a message that is none is a flawed request."""
        message = self.read_all(raw, session)
        return self._batch(len(raw), None) if isinstance(message, list) else message

    def read_all(
        self,
        raw: bytes,
        session: Session,
        headers: Headers | None = None,
        credential: str | None = None,
    ) -> Message | list[Message]:
        """Return a message, or the messages of a batch where the revision of the session has them.

        `headers` are those of the HTTP request that it came in: what they repeat has to agree. The
        messages of a batch count the bytes of all of it.
        """
        origin = _Origin(session, headers, credential)
        try:
            parsed = read(raw)
        except NotJsonError as error:
            flaw = Flaw("not_json", Problem(PARSE_ERROR, str(error)))
            return self.flawed(flaw, len(raw), credential)
        if not isinstance(parsed.value, list):
            return self._one(parsed.value, parsed.duplicates, len(raw), origin)
        if session.revision != OLDEST or not 0 < len(parsed.value) <= MAX_BATCH:
            return self._batch(len(raw), credential)
        return [
            self._one(value, _under(number, parsed.duplicates), len(raw), origin)
            for number, value in enumerate(parsed.value)
        ]

    def _batch(self, size: int, credential: str | None) -> Request:
        flaw = _invalid("message is a batch: send one JSON object").flaw
        return self.flawed(flaw, size, credential)

    def _one(self, value: Any, duplicates: Sequence[str], size: int, origin: _Origin) -> Message:
        draft = _Draft(credential=origin.credential)
        try:
            message = _message(value, duplicates, draft)
            if isinstance(message, Ignored):
                return message
            if "id" not in message:
                return _notice(message)
            _fill(draft, message, origin, self)
        except _FlawedError as error:
            return Request(draft.id, self._call(draft, size, error.flaw))
        return Request(draft.id, self._call(draft, size, None))

    def flawed(self, flaw: Flaw, size: int, credential: str | None = None) -> Request:
        """Return the request that a message is which cannot be read at all."""
        return Request(None, self._call(_Draft(credential=credential), size, flaw))

    def too_long(self, size: int, limit: int, credential: str | None = None) -> Request:
        """Return the flawed request that a message beyond the limit is, its text unread."""
        text = f"message has more than {limit} bytes"
        return self.flawed(Flaw("too_long", Problem(INVALID_REQUEST, text)), size, credential)

    def notification(self, revision: str, credential: str | None) -> Request:
        """Return what a message that wants no answer is to the gate: only its caller matters."""
        draft = _Draft(revision=revision, method="notification", credential=credential)
        return Request(None, self._call(draft, 0, None))

    def refuse(self, request: Request, reason: str, message: str) -> Request:
        """Return the request with a flaw that a reader of one message cannot know of.

        It has no id any more: an answer under that id would be taken for another's.
        """
        flaw = Flaw(reason, Problem(INVALID_REQUEST, message))
        call = request.call
        draft = _Draft(None, call.revision, call.client, call.method, call.target)
        return Request(None, self._call(draft, call.size, flaw))

    def write(self, request: Request, answer: Answer) -> bytes:
        """Return the JSON of the response, in one line and without its end."""
        body: dict[str, Any] = {"jsonrpc": "2.0", "id": request.id}
        problem = answer.problem
        if problem is None:
            body["result"] = self._result(request.call, answer)
        else:
            error = {"code": problem.code, "message": problem.message}
            body["error"] = error if problem.data is None else {**error, "data": problem.data}
        return orjson.dumps(body)

    def _call(self, draft: _Draft, size: int, flaw: Flaw | None) -> Call:
        return Call(
            id=self.new_id(),
            received_at=self.clock.now(),
            transport=self.transport,
            revision=draft.revision,
            client=draft.client,
            method=draft.method,
            target=draft.target,
            arguments=draft.arguments,
            size=size,
            duplicates=draft.duplicates,
            params=draft.params,
            flaw=flaw,
            credential=draft.credential,
            mirrored=draft.mirrored,
        )

    def _result(self, call: Call, answer: Answer) -> dict[str, Any]:
        result = dict(answer.result or {})
        if call.method == "tools/call":
            result = _tool_result(answer, structured=call.revision != OLDEST)
        elif call.method == "initialize":
            result = {"protocolVersion": call.revision, "serverInfo": self._about(), **result}
        elif call.method == "server/discover":
            result = {"supportedVersions": (MODERN, *self.legacy), **result}
        elif call.method == "tools/list" and call.revision == OLDEST:
            result = _without_output_schemas(result)
        if call.revision == MODERN:
            result["resultType"] = "complete"
            result["_meta"] = {SERVER_KEY: self._about()}
            cached_ms = CACHED_MS.get(call.method)
            if cached_ms is not None:
                result["ttlMs"] = cached_ms
                result["cacheScope"] = "private"
        return result

    def _about(self) -> dict[str, str]:
        return {"name": f"limen-{self.server}", "title": self.title, "version": self.version}


def _tool_result(answer: Answer, *, structured: bool) -> dict[str, Any]:
    spelled = orjson.dumps(answer.result)
    text = {"type": "text", "text": spelled.decode()}
    result: dict[str, Any] = {"content": [text, *answer.content]}
    if structured:
        result["structuredContent"] = orjson.Fragment(spelled)
    # A business no is an ordinary result; this one asks the model to come back later.
    result["isError"] = answer.code == "over_budget"
    return result


def _without_output_schemas(result: Mapping[str, Any]) -> dict[str, Any]:
    tools = [
        {key: value for key, value in tool.items() if key != "outputSchema"}
        for tool in result.get("tools", ())
    ]
    return {**result, "tools": tools}


def _under(number: int, duplicates: Sequence[str]) -> list[str]:
    """Return the places of keys that came twice in one message of a batch, from there on."""
    prefix = f"{number}."
    return [place[len(prefix) :] for place in duplicates if place.startswith(prefix)]


def _message(message: Any, duplicates: Sequence[str], draft: _Draft) -> dict[str, Any] | Ignored:
    """Return a request or a notification, or what is to be ignored. Sets `draft.id`."""
    if not isinstance(message, dict):
        raise _invalid("message is not an object: send one JSON object")
    is_response = "method" not in message and ("result" in message or "error" in message)
    is_notification = isinstance(message.get("method"), str) and "id" not in message
    outside = [path for path in duplicates if not path.startswith(_ARGUMENTS)]
    is_well_formed = message.get("jsonrpc") == "2.0" and not outside
    if is_response:
        return Ignored("response")
    if is_notification and not is_well_formed:
        return Ignored("malformed")
    if "id" in message and "id" not in outside:
        draft.id = _id(message["id"])
    if outside:
        raise _FlawedError("duplicate_keys", INVALID_REQUEST, "message has the same key twice")
    if not is_well_formed:
        raise _invalid('message is not JSON-RPC: `jsonrpc` must be "2.0"')
    if not isinstance(message.get("method"), str):
        raise _invalid("message has no `method` that is a string")
    draft.method = message["method"]
    draft.duplicates = tuple(path[len(_ARGUMENTS) :] for path in duplicates)
    return message


_ARGUMENTS = "params.arguments."
"""Where a key that came twice is D4's to refuse, like all else about the arguments."""


def _id(value: Any) -> RequestId:
    if isinstance(value, str) or (type(value) is int and -MAX_ID <= value < MAX_ID):
        return value
    raise _FlawedError("invalid_id", INVALID_REQUEST, "`id` must be a string or an integer")


def _notice(message: Mapping[str, Any]) -> Cancel | Ignored:
    params = message.get("params")
    if message["method"] == "notifications/cancelled" and isinstance(params, dict):
        request_id = params.get("requestId")
        if isinstance(request_id, str) or type(request_id) is int:
            return Cancel(request_id)
    return Ignored("notification")


def _fill(draft: _Draft, message: Mapping[str, Any], origin: _Origin, envelope: Envelope) -> None:
    """Read a request into its draft, and take note of an `initialize`."""
    session, headers = origin.session, origin.headers
    params = message.get("params", {})
    if not isinstance(params, dict):
        raise _params("`params` must be an object")
    draft.params = params
    meta = params.get("_meta", {})
    if not isinstance(meta, dict):
        raise _params("`_meta` must be an object")
    if VERSION_KEY in meta:
        if headers is not None:
            _refuse_other_version(headers, meta[VERSION_KEY])
        _fill_modern(draft, meta)
    elif draft.method == "initialize":
        _initialize(draft, params, session, envelope.legacy)
    elif session.revision:
        draft.revision, draft.client = session.revision, session.client
    elif draft.method != "ping":
        raise _params(f"`_meta` has no `{VERSION_KEY}`, and no `initialize` came before")
    wrong_era = LEGACY_ONLY if draft.revision == MODERN else MODERN_ONLY
    if draft.method in wrong_era or (draft.method == LISTEN and not envelope.listens):
        raise _FlawedError(
            "unknown_method", METHOD_NOT_FOUND, "this server has no such method in this revision"
        )
    shape = _SHAPES.get(draft.method)
    if shape is not None:
        shape(draft, params)
    if headers is not None and draft.revision == MODERN:
        _refuse_other_headers(headers, draft)
        draft.mirrored = {
            name: tuple(values) for name, values in headers.items() if name.startswith(PREFIX)
        }


def _refuse_other_version(headers: Headers, version: Any) -> None:
    if list(headers.get("mcp-protocol-version", ())) != [version]:
        raise _mismatch("mcp-protocol-version")


def _refuse_other_headers(headers: Headers, draft: _Draft) -> None:
    if list(headers.get("mcp-method", ())) != [draft.method]:
        raise _mismatch("mcp-method")
    if draft.method in NAMED:
        names = headers.get("mcp-name", ())
        if len(names) != 1 or decoded(names[0]) != draft.target:
            raise _mismatch("mcp-name")


def _mismatch(header: str) -> _FlawedError:
    text = f"header `{header}` is missing, came twice or does not match the body"
    return _FlawedError("header_mismatch", HEADER_MISMATCH, text)


def _fill_modern(draft: _Draft, meta: Mapping[str, Any]) -> None:
    version = meta[VERSION_KEY]
    draft.client = _client(meta.get(CLIENT_KEY))
    if not isinstance(version, str):
        raise _params(f"`{VERSION_KEY}` must be a string")
    if version != MODERN:
        raise _FlawedError(
            "unsupported_version",
            UNSUPPORTED_PROTOCOL_VERSION,
            "this protocol version is not supported",
            {"supported": [MODERN], "requested": shown(version, MAX_CLIENT)},
        )
    draft.revision = version
    if not isinstance(meta.get(CAPABILITIES_KEY), dict):
        raise _params(f"`_meta` has no `{CAPABILITIES_KEY}` that is an object")


def _initialize(
    draft: _Draft, params: Mapping[str, Any], session: Session, legacy: tuple[str, ...]
) -> None:
    asked = params.get("protocolVersion")
    if not isinstance(asked, str):
        raise _params("`protocolVersion` must be a string")
    if not isinstance(params.get("capabilities"), dict):
        raise _params("`capabilities` must be an object")
    if session.opened:
        raise _FlawedError("initialized_twice", INVALID_REQUEST, "`initialize` came before")
    session.revision = draft.revision = asked if asked in legacy else legacy[0]
    session.client = draft.client = _client(params.get("clientInfo"))
    session.opened = True


def _client(about: Any) -> str:
    if not isinstance(about, dict):
        return ""
    said = [part for part in (about.get("name"), about.get("version")) if isinstance(part, str)]
    return shown("/".join(said), MAX_CLIENT)


def _named(draft: _Draft, params: Mapping[str, Any]) -> None:
    draft.arguments = params.get("arguments")
    draft.target = _string(params, "name")


def _addressed(draft: _Draft, params: Mapping[str, Any]) -> None:
    draft.target = _string(params, "uri")


def _completed(draft: _Draft, params: Mapping[str, Any]) -> None:
    about, argument = params.get("ref"), params.get("argument")
    if not isinstance(about, dict) or not isinstance(argument, dict):
        raise _params("`ref` and `argument` must be objects")
    kind = about.get("type")
    if kind not in ("ref/prompt", "ref/resource"):
        raise _params("`ref.type` must be `ref/prompt` or `ref/resource`")
    draft.target = _string(about, "name" if kind == "ref/prompt" else "uri")
    name, value = _string(argument, "name"), _string(argument, "value")
    draft.arguments = {"name": name, "value": value}


def _listed(draft: _Draft, params: Mapping[str, Any]) -> None:
    if params.get("cursor") is not None:
        _string(params, "cursor")


_SHAPES: Mapping[str, Callable[[_Draft, Mapping[str, Any]], None]] = {
    "tools/call": _named,
    "prompts/get": _named,
    "resources/read": _addressed,
    "completion/complete": _completed,
    "tools/list": _listed,
    "prompts/list": _listed,
    "resources/list": _listed,
    "resources/templates/list": _listed,
}
"""What the parameters of each method must have before any name in them matters."""


def _string(params: Mapping[str, Any], key: str) -> str:
    value = params.get(key)
    if not isinstance(value, str):
        raise _params(f"`{key}` must be a string")
    return value


def _params(message: str) -> _FlawedError:
    return _FlawedError("invalid_params", INVALID_PARAMS, message)


def _invalid(message: str) -> _FlawedError:
    return _FlawedError("invalid_request", INVALID_REQUEST, message)
