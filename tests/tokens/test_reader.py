"""Tokens of one resource: whom they are for, what is remembered, and what ends that."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from houses import NOW, StillClock, run
from limen.errors import LimenError
from limen.tokens import reader as reader_module
from limen.tokens.issuer import DemoIssuer
from limen.tokens.jwt import JwtReader, TrustedIssuer
from limen.tokens.opaque import OpaqueReader, digest_of
from limen.tokens.reader import MAX_CREDENTIAL, BearerTokens, Token, Unreadable, is_for
from limen.tokens.resource import ResourceError

RESOURCE = "https://h/mcp"
OTHER = "https://other/mcp"
NOW_S = NOW.timestamp()
TOKEN = Token(
    subject="agent-alpha",
    scopes=frozenset({"ecb:read"}),
    roles=frozenset(),
    audience=(RESOURCE,),
    is_list=False,
    issuer="https://issuer.example",
    expires_at=NOW_S + 600,
    client="agent-alpha",
    lists_allowed=False,
)


def replaced(**fields: Any) -> Token:
    return dataclasses.replace(TOKEN, **fields)


@dataclass
class Answers:
    """A reader that says what a test tells it to, and notes what it was asked."""

    said: Token | Unreadable = TOKEN
    before: Callable[[], None] = lambda: None
    asked: list[str] = field(default_factory=list)

    def fits(self, credential: str) -> bool:
        return not credential.startswith("unfit")

    async def read(self, credential: str) -> Token | Unreadable:
        self.asked.append(credential)
        said = self.said
        self.before()
        return said


@dataclass
class World:
    answers: Answers = field(default_factory=Answers)
    clock: StillClock = field(default_factory=StillClock)
    cache_s: float = 60.0

    def __post_init__(self) -> None:
        self.tokens = BearerTokens(RESOURCE, [self.answers], self.clock, self.cache_s)

    def ask(self, credential: str = "t") -> Token | Unreadable:
        return run(self.tokens.token_of(credential))

    @property
    def reads(self) -> int:
        return len(self.answers.asked)


@pytest.mark.parametrize(
    ("audience", "is_list", "by_default", "with_lists_allowed"),
    [
        ((RESOURCE,), False, None, None),
        (("HTTPS://H:443/x/../mcp",), False, None, None),
        ((RESOURCE,), True, "audience is a list", None),
        (("HTTPS://H:443/mcp",), True, "audience is a list", None),
        ((OTHER,), False, "another resource: `https://other/mcp`", "another resource"),
        ((OTHER,), True, "audience is a list", "another resource"),
        ((RESOURCE, OTHER), True, "audience is a list", "2 values, not one"),
        ((OTHER, RESOURCE), True, "audience is a list", "2 values, not one"),
        ((RESOURCE, RESOURCE), True, "audience is a list", "2 values, not one"),
        ((), True, "audience is a list", "0 values, not one"),
        ((), False, "0 values, not one", "0 values, not one"),
        (("",), False, "another resource: ``", "another resource"),
        ((RESOURCE + "/",), False, "another resource", "another resource"),
        ((RESOURCE + "-evil",), False, "another resource", "another resource"),
        (("https://h/",), False, "another resource", "another resource"),
        (("agent-alpha",), False, "another resource", "another resource"),
        ((f"{RESOURCE} {OTHER}",), False, "another resource", "another resource"),
        (("\n" * 500,), False, "another resource: `???", "another resource"),
    ],
)
def test_a_token_is_for_exactly_one_resource(
    audience: tuple[str, ...],
    is_list: bool,
    by_default: str | None,
    with_lists_allowed: str | None,
) -> None:
    for lists_allowed, expected in ((False, by_default), (True, with_lists_allowed)):
        token = replaced(audience=audience, is_list=is_list, lists_allowed=lists_allowed)
        because = is_for(token, RESOURCE)
        world = World(Answers(token))
        if expected is None:
            assert because is None
            assert world.ask() == token
        else:
            assert because is not None
            assert expected in because
            assert because.isprintable()
            assert world.ask() == Unreadable(because)
            assert len(world.tokens) == 0


def test_a_good_token_is_read_once_in_a_minute() -> None:
    world = World()
    assert world.tokens.cached("t") is None
    assert world.ask() == TOKEN
    world.clock.move(seconds=59.9)
    assert world.tokens.cached("t") == TOKEN
    assert world.ask() == TOKEN
    assert world.reads == 1
    world.clock.move(seconds=0.1)
    assert world.tokens.cached("t") is None
    assert world.ask() == TOKEN
    assert world.reads == 2


def test_a_token_is_never_remembered_beyond_its_expiry() -> None:
    world = World(Answers(replaced(expires_at=NOW_S + 5)))
    assert isinstance(world.ask(), Token)
    world.clock.move(seconds=4.9)
    assert world.tokens.cached("t") is not None
    world.clock.move(seconds=0.1)
    assert world.tokens.cached("t") is None
    # Even if the reader still calls it good.
    assert world.ask() == Unreadable("expired")


def test_a_token_ends_when_the_time_of_day_says_so_however_little_time_has_passed() -> None:
    world = World()
    assert world.ask() == TOKEN
    world.clock.at = NOW.replace(hour=13)
    assert world.tokens.cached("t") is None
    assert world.ask() == Unreadable("expired")


def test_a_token_that_expires_while_it_is_read_is_refused() -> None:
    world = World()
    world.answers.before = lambda: world.clock.move(seconds=600)
    assert world.ask() == Unreadable("expired")
    assert len(world.tokens) == 0


def test_a_refusal_is_never_remembered() -> None:
    world = World(Answers(Unreadable("token is not known")))
    assert world.ask() == Unreadable("token is not known")
    world.answers.said = TOKEN
    assert world.ask() == TOKEN


def test_a_revocation_holds_at_once_by_digest_and_by_subject() -> None:
    for forgotten in ({"digest": digest_of("t")}, {"subject": "agent-alpha"}):
        world = World()
        assert world.ask() == TOKEN
        world.answers.said = Unreadable("revoked")
        world.tokens.forget(**forgotten)
        assert world.tokens.cached("t") is None
        assert world.ask() == Unreadable("revoked")


def test_a_revocation_ends_what_it_names_and_nothing_else() -> None:
    world = World()
    for credential, subject in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b")):
        world.answers.said = replaced(subject=subject)
        world.ask(credential)
    world.tokens.forget(digest=digest_of("a1"))
    assert [world.tokens.cached(c) is not None for c in ("a1", "a2", "b1", "b2")] == [
        False,
        True,
        True,
        True,
    ]
    world.tokens.forget(subject="b")
    world.tokens.forget(digest=digest_of("unheard-of"))
    world.tokens.forget(subject="nobody")
    assert [world.tokens.cached(c) is not None for c in ("a1", "a2", "b1", "b2")] == [
        False,
        True,
        False,
        False,
    ]


def test_what_was_read_before_a_revocation_is_not_remembered_after_it() -> None:
    async def race() -> None:
        world, may_go_on = World(), asyncio.Event()

        async def read(credential: str) -> Token | Unreadable:
            await may_go_on.wait()
            return TOKEN

        world.answers.read = read  # type: ignore[method-assign]
        asking = asyncio.create_task(world.tokens.token_of("t"))
        await asyncio.sleep(0)
        world.tokens.forget(subject="agent-alpha")
        may_go_on.set()
        await asking
        assert world.tokens.cached("t") is None

    run(race())


def test_the_longest_unused_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "MAX_CACHED", 3)
    world = World()
    for credential in ("a", "b", "c"):
        world.ask(credential)
    assert world.tokens.cached("a") is not None
    world.ask("d")
    assert [world.tokens.cached(c) is not None for c in "abcd"] == [True, False, True, True]
    assert len(world.tokens) == 3


def test_nothing_is_remembered_when_the_owner_wants_no_cache() -> None:
    world = World(cache_s=0)
    assert [world.ask(), world.ask()] == [TOKEN, TOKEN]
    assert world.reads == 2


@pytest.mark.parametrize("cache_s", [-1, 60.1, float("nan"), float("inf")])
def test_a_cache_of_more_than_a_minute_is_an_error(cache_s: float) -> None:
    with pytest.raises(ValueError, match="must be 0 to 60 s"):
        World(cache_s=cache_s)


def test_a_resource_that_is_none_is_an_error() -> None:
    with pytest.raises(ResourceError):
        BearerTokens("h/mcp", [], StillClock())


@pytest.mark.parametrize(
    ("credential", "because"),
    [
        ("", "character"),
        ("a b", "character"),
        ("a\n", "character"),
        ("é", "character"),
        ("\ud800", "character"),
        ("a=b", "character"),
        ("x" * (MAX_CREDENTIAL + 1), "more than 8192 characters"),
        ("unfit", "no form that is read here"),
    ],
)
def test_what_is_no_bearer_token_is_shown_to_no_reader(credential: str, because: str) -> None:
    world = World()
    said = world.ask(credential)
    assert isinstance(said, Unreadable)
    assert because in said.reason
    assert world.tokens.cached(credential) is None
    assert world.reads == 0


def test_a_store_that_fails_is_a_fault_and_no_answer() -> None:
    def fails() -> None:
        raise LimenError("the disk is gone")

    world = World(Answers(before=fails))
    with pytest.raises(LimenError, match="the disk is gone"):
        world.ask()
    assert len(world.tokens) == 0


def test_a_reason_is_one_printable_line_and_short() -> None:
    said = Unreadable("issuer `a\r\nSet-Cookie: \x1b[31m\u2028" + "x" * 9000 + "`")
    assert said.reason.startswith("issuer `a??Set-Cookie: ?[31m?xxx")
    assert said.reason.isprintable()
    assert len(said.reason) == 200


@dataclass
class Front:
    """Both readers behind one front, as a server has them."""

    clock: StillClock = field(default_factory=StillClock)

    def __post_init__(self) -> None:
        self.issuer = DemoIssuer(self.clock)
        trusted = TrustedIssuer(self.issuer.issuer, self.issuer.public_keys())
        looked_up: list[str] = []
        self.looked_up = looked_up

        def find(digest: str) -> None:
            looked_up.append(digest)

        readers = (OpaqueReader(find, self.clock), JwtReader([trusted], self.clock))
        self.tokens = BearerTokens(RESOURCE, readers, self.clock)


def test_the_form_of_a_token_chooses_its_reader() -> None:
    front = Front()
    said = run(front.tokens.token_of(front.issuer.mint("a", RESOURCE, [])))
    assert isinstance(said, Token)
    assert front.looked_up == []
    opaque = "limen_" + "A" * 43
    assert run(front.tokens.token_of(opaque)) == Unreadable("token is not known")
    assert front.looked_up == [digest_of(opaque)]
    for neither in ("anything", "a.b", "a.b.c.d.e", "a..c", ".b.c", "a.b.c=", "a.b~.c"):
        assert run(front.tokens.token_of(neither)) == Unreadable(
            "token has no form that is read here"
        )
    assert len(front.looked_up) == 1


def test_a_hundred_thousand_bad_tokens_leave_memory_as_it_was() -> None:
    front = Front()
    header, payload, _ = front.issuer.mint("a", OTHER, []).split(".")

    def credential(number: int) -> str:
        forms = (
            f"limen_{number:043}",
            f"{header}.{payload}.{number:085}A",
            f"garbage{number}",
            f"{number}.b.c",
        )
        # Signatures are checked, which takes longest: one in twenty.
        return forms[1] if number % 20 == 0 else forms[(0, 2, 3)[number % 3]]

    async def flood(numbers: range) -> None:
        for number in numbers:
            assert isinstance(await front.tokens.token_of(credential(number)), Unreadable)
        front.looked_up.clear()

    run(flood(range(2_000)))
    gc.collect()
    before = sys.getallocatedblocks()
    run(flood(range(2_000, 102_000)))
    gc.collect()
    assert sys.getallocatedblocks() - before < 2_000
    assert len(front.tokens) == 0


@settings(deadline=None, max_examples=300)
@given(
    st.text()
    | st.binary().map(lambda raw: raw.decode("latin-1"))
    | st.from_regex(r"(limen_)?[A-Za-z0-9_-]{1,8}(\.[A-Za-z0-9_-]{0,8}){0,4}", fullmatch=True)
)
def test_no_text_makes_the_front_raise(credential: str) -> None:
    front = Front()
    assert isinstance(run(front.tokens.token_of(credential)), Unreadable)
    assert front.tokens.cached(credential) is None
