"""The checks: what each does, what it expects, and why that matters.

A check returns what came, and whether the promise held. An answer of 500 is never a refusal.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from limen.errors import LimenError
from limen.prove.target import MODERN, Reply, Target

State = Literal["held", "broken", "not asked"]

HUGE = 16 * 1024 * 1024
"""Bytes that no message of MCP needs; sent in pieces, so that a server can stop us."""

PIECE = 64 * 1024

PAIRS = 60
"""Pairs of timed refusals where no budget is in the way, and with one."""

PAIRS_WITH_BUDGET = 6

SIGNIFICANT = 4.5
"""Standard errors from which on a difference in time is one: by chance once in 100,000 runs."""

LEAST_SHIFT_S = 200e-6
"""Seconds. Less cannot be told from noise with all pairs, and with fewer no less than as many
times more: a few numbers can agree by chance."""

MOST_CALLS = 500
"""Refusals after which a budget that has not refused is none."""

LEAKS = re.compile(
    r'Traceback|File "|site-packages|/home/|/usr/lib/|\b[A-Z][A-Za-z]*(?:Error|Exception)\b'
)
"""What only the inside of a program says: traces, its paths, names of classes."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What came of a check: `not asked` says in `came` what was missing."""

    state: State
    came: str


@dataclass(frozen=True, slots=True)
class Check:
    """One promise: `run` asks for it."""

    name: str
    did: str
    expected: str
    why: str
    run: Callable[[Target], Seen]


def held(came: str) -> Seen:
    """Say that the promise held."""
    return Seen("held", came)


def broken(came: str) -> Seen:
    """Say that it did not."""
    return Seen("broken", came)


def missing(what: str) -> Seen:
    """Say what was missing to ask."""
    return Seen("not asked", what)


def _is_challenge(reply: Reply) -> bool:
    return reply.headers.get("www-authenticate", "").lower().startswith("bearer")


def _good_token(target: Target) -> Seen:
    for caller, token in target.manifest.good.items():
        reply = target.ask(token, "tools/list", {})
        if "result" not in reply.message():
            return broken(f"token of {caller}: {reply.in_short()}")
    return held(f"{len(target.manifest.good)} tokens are answered with 200")


def _no_token(target: Target) -> Seen:
    reply = target.ask(None, "tools/list", {})
    said = reply.headers.get("www-authenticate", "")
    if reply.status != 401 or not _is_challenge(reply):
        return broken(reply.in_short())
    if "error=" in said:
        return broken(f"the challenge names an error where nothing was presented: {said}")
    if "resource_metadata=" not in said:
        return broken(f"the challenge does not say where the metadata is: {said}")
    return held(f"401, {said}")


def _metadata(target: Target) -> Seen:
    said = target.ask(None, "tools/list", {}).headers.get("www-authenticate", "")
    _, found, rest = said.partition('resource_metadata="')
    if not found:
        return broken("no challenge says where it is")
    where = urlsplit(rest.partition('"')[0])
    asked = urlsplit(target.manifest.url)
    if (where.scheme, where.netloc) != (asked.scheme, asked.netloc):
        return broken(f"it is said to be at another host: {where.geturl()}")
    reply = target.send(b"", [("Accept", "application/json")], "GET", url=where.geturl())
    if str(reply.message().get("resource", "")).rstrip("/") != target.manifest.url.rstrip("/"):
        return broken(reply.in_short())
    return held(f"resource is {target.manifest.url}")


def _bad_tokens(target: Target) -> Seen:
    if not target.manifest.bad:
        return missing("the manifest has no token that must be refused")
    texts = set()
    for kind, token in target.manifest.bad.items():
        reply = target.ask(token, "tools/list", {})
        if reply.status != 401 or not _is_challenge(reply):
            return broken(f"token `{kind}`: {reply.in_short()}")
        texts.add(reply.body)
    if len(texts) > 1:
        return broken("the body tells one kind of bad token from another")
    return held(f"{len(target.manifest.bad)} kinds, each 401 with a challenge, all with one body")


def _garbage_token(target: Target) -> Seen:
    for token in ("garbage", "a.b.c", "eyJhbGciOiJub25lIn0..", "x" * 20_000):
        reply = target.ask(token, "initialize", {"protocolVersion": "2025-06-18"})
        if reply.status not in (400, 401, 413, 431):
            return broken(f"token `{token[:20]}`: {reply.in_short()}")
        if "mcp-session-id" in reply.headers:
            return broken(f"token `{token[:20]}` was given a session")
    return held("4 kinds of garbage, none opened anything")


def _query_token(target: Target) -> Seen:
    headers = target.headers_of(None, "tools/list")
    body = json.dumps(target.request("tools/list", {})).encode()
    reply = target.send(body, headers, url=f"{target.manifest.url}?access_token={target.asker}")
    if reply.status != 401:
        return broken(reply.in_short())
    return held("401")


def _no_scope(target: Target) -> Seen:
    token = target.manifest.no_scope
    if token is None:
        return missing("the manifest has no token without a scope")
    reply = target.ask(token, "tools/list", {})
    if reply.status >= 500:
        return broken(reply.in_short())
    names = target.names(token)
    if names:
        return broken(f"it lists {len(names)} tools")
    return held("it sees no tool")


def _hidden(target: Target) -> tuple[str, str] | None:
    """Return a token and a tool that is there for another caller but not for it."""
    for token, name in target.manifest.declared():
        return token, name
    more = target.names(target.witness)
    for fewer in (target.asker, target.manifest.no_scope):
        if fewer is None:
            continue
        seen = set(target.names(fewer))
        for name in more:
            if name not in seen:
                return fewer, name
    return None


def _list(target: Target) -> Seen:
    declared = list(target.manifest.declared())
    for token, name in declared:
        if name in target.names(token):
            return broken(f"`{name}` is shown to a caller that may not call it")
    if declared:
        return held(f"{len(declared)} tools that the manifest says are hidden are not shown")
    found = _hidden(target)
    if found is None:
        return missing("the manifest says of no tool that it is hidden, and every caller sees all")
    return held(f"`{found[1]}` exists for one caller alone")


def _comparable(reply: Reply) -> tuple[int, dict[str, str], bytes]:
    headers = {name: text for name, text in reply.headers.items() if name != "date"}
    return reply.status, headers, reply.body


def _refusal_bytes(target: Target) -> Seen:
    found = _hidden(target)
    if found is None:
        return missing("no tool is hidden from a caller")
    token, hidden = found
    made_up = target.made_up(hidden)
    one, other = target.call(token, hidden, {}), target.call(token, made_up, {})
    if one.status >= 500 or other.status >= 500:
        return broken(f"{one.in_short()}; {other.in_short()}")
    if _comparable(one) != _comparable(other):
        return broken(f"hidden: {one.in_short()}; made up: {other.in_short()}")
    for reply, name in ((one, hidden), (other, made_up)):
        if name.encode() in reply.body:
            return broken(f"the answer repeats the name: {reply.in_short()}")
    if one.is_yes():
        return broken(f"the hidden tool answered: {one.in_short()}")
    return held("status, headers and body are the same, and name nothing")


def _refusal_time(target: Target) -> Seen:
    found = _hidden(target)
    if found is None:
        return missing("no tool is hidden from a caller")
    token, hidden = found
    pairs = PAIRS if target.manifest.budget is None else PAIRS_WITH_BUDGET
    shifts = []
    for number in range(pairs):
        made_up = target.made_up(hidden)
        took = {}
        for name in (hidden, made_up) if number % 2 else (made_up, hidden):
            reply = target.call(token, name, {})
            if reply.is_over_budget():
                return missing(f"the budget was spent after {number} pairs")
            took[name] = reply.took_s
        shifts.append(took[hidden] - took[made_up])
    middle = statistics.median(shifts)
    spread = statistics.median([abs(shift - middle) for shift in shifts])
    # The standard error of a median, from the median absolute deviation of normal noise.
    error = 1.2533 * 1.4826 * spread / len(shifts) ** 0.5
    noticed = max(SIGNIFICANT * error, LEAST_SHIFT_S * PAIRS / pairs)
    said = f"{middle * 1e6:+.0f} µs over {pairs} pairs; {noticed * 1e6:.0f} µs would be noticed"
    return broken(said) if abs(middle) > noticed else held(said)


def _extra_arguments(target: Target) -> Seen:
    if target.manifest.example is None:
        return missing("the manifest has no `example` call of the server")
    tool, arguments = target.manifest.example
    plain = target.call(target.asker, tool, arguments)
    if not plain.is_yes():
        return missing(f"the example call is not answered: {plain.in_short()}")
    extra = target.call(target.asker, tool, {**arguments, "limen_prove_extra": 1})
    if extra.status >= 500 or extra.is_yes():
        return broken(extra.in_short())
    return held(extra.in_short())


def _duplicate_keys(target: Target) -> Seen:
    if target.manifest.example is None:
        return missing("the manifest has no `example` call of the server")
    tool, arguments = target.manifest.example
    request = target.request("tools/call", {"name": tool, "arguments": dict(arguments)})
    plain = json.dumps(request)
    name = json.dumps(tool)
    doubled = {
        "the method": plain.replace('"method":', '"method": "tools/list", "method":', 1),
        "the tool's name": plain.replace(f'"name": {name}', f'"name": "other", "name": {name}', 1),
    }
    if arguments:
        key, value = next(iter(arguments.items()))
        pair = f"{json.dumps(key)}: {json.dumps(value)}"
        doubled["an argument"] = plain.replace(pair, f"{json.dumps(key)}: null, {pair}", 1)
    for what, body in doubled.items():
        reply = target.send(body.encode(), target.headers_of(target.asker, "tools/call", tool))
        if reply.status >= 500 or reply.is_yes():
            return broken(f"{what} twice: {reply.in_short()}")
    return held(f"{', '.join(doubled)}: each refused")


def _header_mismatch(target: Target) -> Seen:
    if target.revision != MODERN:
        return missing("the server does not speak 2026-07-28")
    names = target.names(target.asker)
    if not names:
        return missing("the caller that asks sees no tool")
    request = target.request("tools/call", {"name": names[0], "arguments": {}})
    body = json.dumps(request).encode()
    wrong = {
        "another method": target.headers_of(target.asker, "tools/list", names[0]),
        "another name": target.headers_of(target.asker, "tools/call", target.made_up(names[0])),
        "no method": [
            pair
            for pair in target.headers_of(target.asker, "tools/call", names[0])
            if pair[0] != "Mcp-Method"
        ],
        "two names": [
            *target.headers_of(target.asker, "tools/call", names[0]),
            ("Mcp-Name", target.made_up(names[0])),
        ],
    }
    for what, headers in wrong.items():
        reply = target.send(body, headers)
        if reply.status != 400:
            return broken(f"{what} in the headers: {reply.in_short()}")
    return held(f"{', '.join(wrong)}: each 400")


def _body_limit(target: Target) -> Seen:
    sent = 0

    def pieces() -> Iterator[bytes]:
        nonlocal sent
        yield b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"x":"'
        while sent < HUGE:
            sent += PIECE
            yield b"a" * PIECE
        yield b'"}}'

    try:
        reply = target.send(pieces(), target.headers_of(target.asker, "tools/list"))
    except LimenError as error:
        # A server that has answered may hang up on what it does not want.
        if sent < HUGE:
            return held(f"hung up after {sent // 1024} KiB")
        return broken(str(error))
    if reply.status == 413:
        return held(f"413 after {sent // 1024} KiB")
    return broken(f"took {sent // 1024} KiB: {reply.in_short()}")


def _hosts(target: Target) -> Seen:
    body = json.dumps(target.request("tools/list", {})).encode()
    plain = target.headers_of(target.asker, "tools/list")
    for name, value in (
        ("Host", "attacker.example"),
        ("Origin", "https://attacker.example"),
        ("Origin", "null"),
    ):
        reply = target.send(body, [*plain, (name, value)])
        if reply.status not in (400, 403, 404, 421):
            return broken(f"{name}: {value}: {reply.in_short()}")
    return held("a foreign Host and two foreign Origins are refused")


def _leaks(target: Target) -> Seen:
    deep = b"[" * 5_000 + b"]" * 5_000
    bodies: Mapping[str, bytes] = {
        "no JSON": b"{",
        "not UTF-8": b'{"jsonrpc":"2.0","id":1,"method":"\xff\xfe"}',
        "a number": b"1e999",
        "deep nesting": b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":' + deep + b"}",
        "params that are a list": b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[1]}',
        "a name that is a number": b'{"jsonrpc":"2.0","id":1,"method":"tools/call",'
        b'"params":{"name":7,"arguments":{}}}',
        "arguments that are text": b'{"jsonrpc":"2.0","id":1,"method":"tools/call",'
        b'"params":{"name":"x","arguments":"y"}}',
        "an id that is an object": b'{"jsonrpc":"2.0","id":{},"method":"tools/list"}',
        "an unknown method": b'{"jsonrpc":"2.0","id":1,"method":"no/such"}',
    }
    for what, body in bodies.items():
        reply = target.send(body, target.headers_of(target.asker, "tools/call", "x"))
        text = reply.body.decode("utf-8", "replace")
        if reply.status >= 500 or LEAKS.search(text):
            return broken(f"{what}: {reply.in_short()}")
    for method in ("GET", "DELETE", "PUT", "PATCH"):
        reply = target.send(b"", [("Accept", "application/json")], method)
        if reply.status >= 500 or reply.status == 200:
            return broken(f"{method} without a token: {reply.in_short()}")
    return held(f"{len(bodies)} malformed bodies and 4 methods: no 5xx, nothing of the inside")


def _list_caching(target: Target) -> Seen:
    reply = target.ask(target.asker, "tools/list", {})
    result = reply.message().get("result")
    if not isinstance(result, dict):
        return missing("the list is not answered")
    said = reply.headers.get("cache-control", "").lower()
    if "public" in said or "s-maxage" in said:
        return broken(f"Cache-Control: {said}")
    scope = result.get("cacheScope")
    if target.revision == MODERN and scope != "private":
        return broken(f"cacheScope is `{scope}`")
    return held(f"cacheScope is `{scope}`, Cache-Control is `{said}`")


def _drain(target: Target, token: str) -> int | None:
    """Return how many refusals a caller gets before it is over budget, None if it never is."""
    for spent in range(MOST_CALLS):
        if target.call_once(token, target.made_up("no_such_tool")).is_over_budget():
            return spent
    return None


def _charge(target: Target) -> Seen:
    budget = target.manifest.budget
    if budget is None:
        return missing("the manifest names no budget")
    callers = [target.manifest.good[name] for name in budget.callers]
    if len(callers) < 2:
        return missing("the budget names one caller alone")
    if _drain(target, callers[0]) is None:
        return broken(f"{MOST_CALLS} refused calls cost nothing")
    # Lists may be free or not; what the second caller has asked for itself is its own doing.
    least = int(budget.reserve()) - target.asked[callers[1]]
    left = _drain(target, callers[1])
    said = (
        f"after the first caller was drained, the second had {left} calls left"
        f" of a reserve of {budget.reserve():g}"
    )
    if left is None or left < least:
        return broken(said)
    # With a running clock it refills meanwhile, and that is its own too.
    return broken(said) if budget.is_frozen and left > budget.reserve() else held(said)


CHECKS: tuple[Check, ...] = (
    Check(
        "good-token",
        "listed the tools with each caller's token",
        "200 and a list",
        "a boundary that refuses everyone proves nothing",
        _good_token,
    ),
    Check(
        "no-token",
        "listed the tools without a token",
        "401 with a Bearer challenge that says where the metadata is, and names no error",
        "clients find the authorization server from this one header",
        _no_token,
    ),
    Check(
        "metadata",
        "fetched the document that the challenge names",
        "it names exactly this resource, at this host",
        "a client that trusts another name gets tokens for somebody else",
        _metadata,
    ),
    Check(
        "audience",
        "listed the tools with each token that is not for this server, or not good",
        "exactly 401 with a challenge, and one body for all",
        "a token that is good elsewhere can be presented here by whoever has seen it there",
        _bad_tokens,
    ),
    Check(
        "garbage-token",
        "opened a session with tokens that are none",
        "401, and no session",
        "whoever is nobody must not fill the memory either",
        _garbage_token,
    ),
    Check(
        "query-token",
        "sent a good token in the address",
        "401",
        "addresses end up in logs",
        _query_token,
    ),
    Check(
        "scope",
        "listed the tools with a token that grants nothing",
        "an empty list",
        "a good token is not yet a right",
        _no_scope,
    ),
    Check(
        "list",
        "listed the tools as two callers",
        "each sees what it may call and nothing else",
        "a description is already an answer about a tool that is not theirs",
        _list,
    ),
    Check(
        "refusal-bytes",
        "called a tool that is hidden, and one that does not exist",
        "whole responses are the same, and repeat no name",
        "a difference tells a stranger what exists",
        _refusal_bytes,
    ),
    Check(
        "refusal-time",
        "timed both refusals in pairs",
        "no difference that could be noticed",
        "what bytes do not tell, a clock can",
        _refusal_time,
    ),
    Check(
        "extra-arguments",
        "made a good call with one argument too many",
        "an error",
        "a misspelled argument that is dropped runs the tool with its default",
        _extra_arguments,
    ),
    Check(
        "duplicate-keys",
        "sent a key twice: the method, the name, an argument",
        "an error",
        "two readers of one message must not see two messages",
        _duplicate_keys,
    ),
    Check(
        "header-mismatch",
        "sent headers that say another call than the body",
        "400",
        "what is routed or rated by headers must be what is carried out",
        _header_mismatch,
    ),
    Check(
        "body-limit",
        f"streamed a body of {HUGE // 1024 // 1024} MiB",
        "413, or the line is cut",
        "one request must not fill the memory",
        _body_limit,
    ),
    Check(
        "hosts",
        "asked under a foreign host name, and from foreign origins",
        "a refusal",
        "a web page that rebinds its name could call a server at home",
        _hosts,
    ),
    Check(
        "leaks",
        "sent what is malformed in many ways",
        "4xx or a JSON-RPC error, without traces, paths or class names",
        "an error that explains the inside helps the next attack",
        _leaks,
    ),
    Check(
        "list-caching",
        "looked at how the list may be cached",
        "private",
        "a list that differs by caller must not be served to another",
        _list_caching,
    ),
    Check(
        "charge",
        "drained one caller with refused calls, then counted another's",
        "refusals cost, and the other has exactly its reserve",
        "free refusals are free guesses; a shared bucket is somebody else's flood",
        _charge,
    ),
)
"""In the order in which they are made: the last one spends what is left."""


def run_all(target: Target) -> Iterator[tuple[Check, Seen]]:
    """Make every check, and yield what came of each.

    Raises:
        LimenError: the server cannot be reached.
    """
    target.settle()
    for check in CHECKS:
        try:
            seen = check.run(target)
        except LimenError as error:
            seen = broken(str(error))
        yield check, seen
