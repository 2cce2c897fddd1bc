"""MCP over Streamable HTTP, as an ASGI application: one endpoint, both protocol eras.

A body is read once, bounded while it streams, and parsed once; the gate decides. Each POST is
answered alone, with one JSON object, unless the owner switches sessions or event streams on. What
is wrong with a request beyond its message (encoding, size, speed) is a flaw like any other: its
caller is established, charged and written down before the answer leaves.

Source: MCP specification, Streamable HTTP of 2026-07-28, 2025-11-25, 2025-06-18 and 2025-03-26.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, replace
from typing import Any

from limen.decisions.d7_audit import shown
from limen.errors import LimenError
from limen.gate import Gate
from limen.ports import CallerReader, Nobody
from limen.transport.envelope import (
    LEGACY,
    LISTEN,
    MAX_CLIENT,
    MODERN,
    OLDEST,
    Envelope,
    Headers,
    Ignored,
    Message,
    Request,
    Session,
)
from limen.transport.sessions import Sessions
from limen.transport.streams import EVENT_STREAM, HEADERS, Streams, acknowledged, event
from limen.words import (
    HEADER_MISMATCH,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    OVER_BUDGET,
    PARSE_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
    Answer,
    Flaw,
    Problem,
)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
RawHeaders = list[tuple[bytes, bytes]]

HTTP_LEGACY = (*LEGACY, OLDEST)
"""The revisions with `initialize` that are spoken over HTTP, newest first."""

BODY_WITHIN_S = 10.0
"""Seconds for a whole body to arrive. The largest allowed one needs a fraction of one."""

WATCH_AFTER_S = 0.05
"""Seconds after which a call is watched for a client that has gone. Most calls end before that,
and a watcher costs as much as a small call."""

MAX_CREDENTIAL = 16 * 1024
"""Bytes of an `Authorization` header. Longer ones are no tokens of anybody's."""

JSON: RawHeaders = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]

STATUS_OF_CODE = {"missing_token": 401, "invalid_token": 401, "over_quota": 429, "unavailable": 503}
STATUS_OF_FLAW = {
    "encoded": 415,
    "not_json_type": 415,
    "not_acceptable": 406,
    "too_long": 413,
    "too_slow": 408,
    "unknown_session": 404,
}
BAD_REQUESTS = frozenset(
    {HEADER_MISMATCH, UNSUPPORTED_PROTOCOL_VERSION, PARSE_ERROR, INVALID_REQUEST}
)

TOO_MANY_STREAMS = Answer(
    problem=Problem(OVER_BUDGET, "too many streams are open", {"retry_after_s": 60}),
    code="over_quota",
)


class ClientGoneError(Exception):
    """Say that the client left before its request was whole. Nobody waits for an answer."""


@dataclass(frozen=True, slots=True)
class Switches:
    """What the owner switched on: sessions for legacy clients, and answers as event streams."""

    stateful: bool = False
    sse: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """One HTTP request: what its headers say, and the two ends of its connection."""

    headers: Headers
    credential: str | None
    receive: Receive
    send: Send

    @property
    def revision(self) -> str:
        """Return the revision that the header names; without one it is the oldest."""
        return self.headers.get("mcp-protocol-version", (OLDEST,))[0]

    def takes(self, kind: str) -> bool:
        """Tell whether the client accepts answers of a kind."""
        ranges = ",".join(self.headers.get("accept", ())).lower()
        family = kind.partition("/")[0] + "/*"
        accepted = {one.partition(";")[0].strip() for one in ranges.split(",")}
        return not accepted.isdisjoint((kind, family, "*/*"))


class HttpEndpoint:
    """Answer the HTTP requests of one MCP endpoint. Safe to share between connections.

    `challenge` is the `WWW-Authenticate` value without its `error`.
    """

    def __init__(
        self,
        gate: Gate,
        envelope: Envelope,
        callers: CallerReader,
        *,
        max_message: int,
        challenge: str,
        switches: Switches | None = None,
    ) -> None:
        self._gate = gate
        self._envelope = replace(envelope, legacy=HTTP_LEGACY, listens=True)
        self._callers = callers
        self._max_message = max_message
        self._challenge = challenge
        self._switches = switches or Switches()
        self.sessions = Sessions(envelope.clock)
        self._streams = Streams()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        headers = headers_of(scope)
        asked = Asked(headers, credential_of(headers), receive, send)
        stateful = self._switches.stateful
        if scope["method"] == "POST":
            await self._post(asked)
        elif scope["method"] == "GET" and stateful and self._switches.sse:
            await self._get(asked)
        elif scope["method"] == "DELETE" and stateful:
            await self._delete(asked)
        else:
            await respond(send, 405, [(b"allow", b"POST, GET, DELETE" if stateful else b"POST")])

    def close(self) -> None:
        """End the streams that are open, each with its result."""
        self._streams.close()

    async def _post(self, asked: Asked) -> None:
        session = Session(asked.revision, _client_of(asked.headers))
        message: Message | list[Message] | None = self._refused_by_headers(asked)
        if message is None and self._switches.stateful and "mcp-session-id" in asked.headers:
            found = await self._session_of(asked)
            session = found or session
            if found is None:
                message = self._flawed(
                    asked, "unknown_session", "there is no such session of yours"
                )
        if message is None:
            try:
                body = await self._body(asked)
            except ClientGoneError:
                return
            message = body if isinstance(body, Request) else self._read(body, session, asked)
        if isinstance(message, list):
            await self._answer_batch(message, asked)
        elif isinstance(message, Request):
            await self._answer(message, asked, session)
        elif isinstance(message, Ignored) and message.kind != "notification":
            await self._answer_stray(message, asked)
        else:
            await self._take_note(asked)

    def _read(self, body: bytes, session: Session, asked: Asked) -> Message | list[Message]:
        if asked.revision not in (MODERN, *HTTP_LEGACY):
            said = shown(asked.revision, MAX_CLIENT)
            data = {"supported": [MODERN, *HTTP_LEGACY], "requested": said}
            text = "this protocol version is not supported"
            problem = Problem(UNSUPPORTED_PROTOCOL_VERSION, text, data)
            return self._envelope.flawed(
                Flaw("unsupported_version", problem), len(body), asked.credential
            )
        if asked.revision == MODERN:
            # Nothing came before a modern request: it describes itself, or it is flawed.
            session.revision = ""
        return self._envelope.read_all(body, session, asked.headers, asked.credential)

    async def _answer(self, request: Request, asked: Asked, session: Session) -> None:
        answer = await self._answer_of(request, asked)
        if answer is None:
            return
        status = status_of(request, answer)
        if request.call.method == LISTEN and status == 200 and answer.problem is None:
            await self._listen(request, answer, asked)
            return
        more = self._headers_of(answer, status)
        if self._switches.stateful and request.call.method == "initialize" and status == 200:
            caller = await self._caller_of(asked)
            if caller and answer.problem is None:
                opened = self.sessions.open(caller, session)
                more = [*more, (b"mcp-session-id", opened.encode())]
        await self._respond(asked, status, more, self._envelope.write(request, answer))

    async def _answer_of(self, request: Request, asked: Asked) -> Answer | None:
        """Return the gate's answer, or None when the client left meanwhile."""
        with Watch(asked.receive) as watch:
            try:
                return await self._gate.answer(request.call)
            except asyncio.CancelledError:
                if watch.client_is_gone:
                    return None
                raise

    async def _respond(self, asked: Asked, status: int, more: RawHeaders, body: bytes) -> None:
        if status == 200 and self._switches.sse and asked.takes(EVENT_STREAM):
            await respond(asked.send, 200, [*HEADERS, *more], event(body))
        else:
            await respond(asked.send, status, [*JSON, *more], body)

    async def _answer_batch(self, messages: list[Message], asked: Asked) -> None:
        """Answer the requests of a batch one after the other, each with a row of its own."""
        answers: list[bytes] = []
        for message in messages:
            if not isinstance(message, Request):
                continue
            answer = await self._answer_of(message, asked)
            if answer is None:
                return
            body = self._envelope.write(message, answer)
            status = status_of(message, answer)
            if answer.code in STATUS_OF_CODE:
                # It holds for all that would follow: it is the caller's or ours, not the message's.
                await self._respond(asked, status, self._headers_of(answer, status), body)
                return
            answers.append(body)
        if answers:
            await self._respond(asked, 200, [], b"[" + b",".join(answers) + b"]")
        else:
            await self._take_note(asked)

    async def _answer_stray(self, ignored: Ignored, asked: Asked) -> None:
        """Take a response that nobody asked for as a legacy client may send it; refuse the rest."""
        if ignored.kind == "response" and asked.revision != MODERN:
            await self._take_note(asked)
            return
        await self._answer(
            self._flawed(
                asked, "invalid_request", "message is neither a request nor a notification"
            ),
            asked,
            Session(),
        )

    async def _take_note(self, asked: Asked) -> None:
        """Accept what asks for nothing, from whoever may ask at all."""
        if await self._may_ask(asked):
            await respond(asked.send, 202)

    async def _may_ask(self, asked: Asked) -> bool:
        """Let the gate look at who is there; where it is nobody, answer so."""
        request = self._envelope.notification(asked.revision, asked.credential)
        answer = await self._answer_of(request, asked)
        if answer is None:
            return False
        status = status_of(request, answer)
        if status != 200:
            body = self._envelope.write(request, answer)
            await respond(asked.send, status, [*JSON, *self._headers_of(answer, status)], body)
        return status == 200

    async def _listen(self, request: Request, answer: Answer, asked: Asked) -> None:
        caller = await self._caller_of(asked)
        if not self._streams.has_room(caller):
            body = self._envelope.write(request, TOO_MANY_STREAMS)
            await self._respond(asked, 429, self._headers_of(TOO_MANY_STREAMS, 429), body)
            return
        first = event(acknowledged(request.id))
        last = event(self._envelope.write(request, answer))
        await self._streams.keep_open(caller, first, last, asked.receive, asked.send)

    async def _get(self, asked: Asked) -> None:
        """Open the stream of a legacy session, on which nothing but keep-alives is sent yet."""
        if not await self._may_ask(asked):
            return
        caller = await self._caller_of(asked)
        if "mcp-session-id" not in asked.headers or await self._session_of(asked) is None:
            await respond(asked.send, 404)
        elif not asked.takes(EVENT_STREAM):
            await respond(asked.send, 406)
        elif not self._streams.has_room(caller):
            await respond(asked.send, 429, [(b"retry-after", b"60")])
        else:
            await self._streams.keep_open(caller, b":\n\n", b"", asked.receive, asked.send)

    async def _delete(self, asked: Asked) -> None:
        if not await self._may_ask(asked):
            return
        session_id = asked.headers.get("mcp-session-id", ("",))[0]
        ended = self.sessions.end(session_id, await self._caller_of(asked))
        await respond(asked.send, 204 if ended else 404)

    async def _session_of(self, asked: Asked) -> Session | None:
        session_id = asked.headers["mcp-session-id"][0]
        return self.sessions.find(session_id, await self._caller_of(asked))

    async def _caller_of(self, asked: Asked) -> str:
        """Return who is there, or nobody's name: that opens no session and owns none."""
        request = self._envelope.notification(asked.revision, asked.credential)
        try:
            caller = await self._callers.caller_of(request.call)
        except LimenError:
            # Fails closed: nobody's session; the gate asks again, and says and writes what failed.
            return ""
        return "" if isinstance(caller, Nobody) else caller.id

    def _headers_of(self, answer: Answer, status: int) -> RawHeaders:
        if status == 401:
            error = ', error="invalid_token"' if answer.code == "invalid_token" else ""
            return [(b"www-authenticate", f"{self._challenge}{error}".encode())]
        if status in (429, 503):
            data = answer.problem.data if answer.problem is not None else None
            wait_s = data["retry_after_s"] if data else 1
            return [(b"retry-after", str(wait_s).encode())]
        return []

    def _refused_by_headers(self, asked: Asked) -> Request | None:
        headers = asked.headers
        if headers.get("content-encoding", ("identity",))[0].lower() != "identity":
            return self._flawed(asked, "encoded", "body is compressed: send it as it is")
        kind = headers.get("content-type", ("",))[0].partition(";")[0].strip().lower()
        if kind != "application/json":
            return self._flawed(asked, "not_json_type", "`content-type` must be `application/json`")
        is_modern = asked.revision == MODERN
        if not asked.takes("application/json") or (is_modern and not asked.takes(EVENT_STREAM)):
            text = "`accept` must list `application/json` and `text/event-stream`"
            return self._flawed(asked, "not_acceptable", text)
        length = headers.get("content-length", ("0",))[0]
        if length.isdecimal() and len(length) < 20 and int(length) > self._max_message:
            return self._envelope.too_long(int(length), self._max_message, asked.credential)
        return None

    def _flawed(self, asked: Asked, reason: str, text: str) -> Request:
        flaw = Flaw(reason, Problem(INVALID_REQUEST, text))
        return self._envelope.flawed(flaw, 0, asked.credential)

    async def _body(self, asked: Asked) -> bytes | Request:
        """Return the whole body, or the flawed request that one is which is too long or slow.

        Raises:
            ClientGoneError: the client left first.
        """
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(BODY_WITHIN_S):
                while True:
                    message = await asked.receive()
                    if message["type"] == "http.disconnect":
                        raise ClientGoneError
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > self._max_message:
                        return self._envelope.too_long(size, self._max_message, asked.credential)
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            return self._flawed(asked, "too_slow", f"body took longer than {BODY_WITHIN_S:.0f} s")


class Watch:
    """Watch a call that takes longer for a client that leaves: then its task is cancelled."""

    __slots__ = ("_receive", "_task", "_timer", "_watcher", "client_is_gone")

    def __init__(self, receive: Receive) -> None:
        self.client_is_gone = False
        self._receive = receive
        self._task = asyncio.current_task()
        self._watcher: asyncio.Task[None] | None = None

    def __enter__(self) -> Watch:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(WATCH_AFTER_S, self._begin)
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()

    def _begin(self) -> None:
        self._watcher = asyncio.get_running_loop().create_task(self._wait())

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.client_is_gone = True
        if self._task is not None:
            self._task.cancel()


async def respond(
    send: Send, status: int, headers: RawHeaders | None = None, body: bytes = b""
) -> None:
    """Send a whole response."""
    length = (b"content-length", str(len(body)).encode())
    start = {"type": "http.response.start", "status": status, "headers": [*(headers or ()), length]}
    await send(start)
    await send({"type": "http.response.body", "body": body})


def headers_of(scope: Scope) -> Headers:
    """Return all values of each header, by lower-case name."""
    found: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return found


def credential_of(headers: Headers) -> str | None:
    """Return the bearer token of the one `Authorization` header, "" when that holds none."""
    values = headers.get("authorization")
    if not values:
        return None
    scheme, _, token = values[0].partition(" ")
    if len(values) > 1 or scheme.lower() != "bearer" or len(token) > MAX_CREDENTIAL:
        return ""
    return token.strip(" ")


def status_of(request: Request, answer: Answer) -> int:
    """Return the HTTP status of an answer."""
    if answer.code in STATUS_OF_CODE:
        return STATUS_OF_CODE[answer.code]
    problem, flaw = answer.problem, request.call.flaw
    if problem is None:
        return 200
    if flaw is not None and problem is flaw.problem:
        if flaw.reason in STATUS_OF_FLAW:
            return STATUS_OF_FLAW[flaw.reason]
        if flaw.reason != "unknown_method":
            return 400
    if problem.code in BAD_REQUESTS:
        return 400
    # A legacy client takes 404 for a session that has ended.
    is_unknown = problem.code == METHOD_NOT_FOUND and request.call.revision == MODERN
    return 404 if is_unknown else 200


def _client_of(headers: Headers) -> str:
    """Return what a legacy client without a session says of itself."""
    return shown(headers.get("user-agent", ("",))[0], MAX_CLIENT)
