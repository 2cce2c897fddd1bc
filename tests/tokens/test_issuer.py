"""The issuer for trying out: its good tokens are good, and each bad one is bad for its reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from houses import NOW, StillClock, run
from limen.tokens.issuer import OTHER_RESOURCE, DemoIssuer
from limen.tokens.jwt import JwtReader, TrustedIssuer
from limen.tokens.reader import BearerTokens, Token, Unreadable

RESOURCE = "http://127.0.0.1:8931/ecb/mcp"


@dataclass
class World:
    clock: StillClock = field(default_factory=StillClock)

    def __post_init__(self) -> None:
        self.issuer = DemoIssuer(self.clock)

    def said(
        self, credential: str, *, resource: str = RESOURCE, lists_allowed: bool = False
    ) -> Token | Unreadable:
        trusted = TrustedIssuer(
            self.issuer.issuer,
            self.issuer.public_keys(),
            lists_allowed=lists_allowed,
            roles_claim="roles",
        )
        tokens = BearerTokens(resource, [JwtReader([trusted], self.clock)], self.clock)
        return run(tokens.token_of(credential))


def test_a_minted_token_opens_its_own_resource_until_it_expires() -> None:
    world = World()
    token = world.issuer.mint("agent-alpha", RESOURCE, ["ecb:read", "a:b"], roles=["staff"])
    assert world.said(token) == Token(
        subject="agent-alpha",
        scopes=frozenset({"a:b", "ecb:read"}),
        roles=frozenset({"staff"}),
        audience=(RESOURCE,),
        is_list=False,
        issuer="https://issuer.limen.invalid",
        expires_at=NOW.timestamp() + 3_600,
        client="agent-alpha",
        lists_allowed=False,
    )
    assert isinstance(world.said(token, resource=RESOURCE.replace("ecb", "pse")), Unreadable)
    world.clock.move(seconds=3_600)
    assert world.said(token) == Unreadable("expired")


REASONS = {
    "other_resource": f"audience is another resource: `{OTHER_RESOURCE}`",
    "two_resources": "audience is a list",
    "list_of_one": "audience is a list",
    "no_audience": "claim `aud` is missing",
    "expired": "expired",
    "wrong_issuer": "issuer `https://other-issuer.limen.invalid` is not trusted",
    "unsigned": "algorithm `none` is not allowed",
}


def test_each_token_that_must_be_refused_is_refused_for_its_own_reason() -> None:
    world = World()
    refused = world.issuer.mint_refused("agent-alpha", RESOURCE, ["ecb:read"])
    assert {name: world.said(token) for name, token in refused.items()} == {
        name: Unreadable(reason) for name, reason in REASONS.items()
    }


def test_only_a_list_of_one_passes_when_the_owner_allows_lists() -> None:
    world = World()
    refused = world.issuer.mint_refused("agent-alpha", RESOURCE, [])
    said = {name: world.said(token, lists_allowed=True) for name, token in refused.items()}
    assert [name for name, what in said.items() if isinstance(what, Token)] == ["list_of_one"]
    assert said["two_resources"] == Unreadable("audience has 2 values, not one")


@pytest.mark.parametrize("resource", [RESOURCE, [RESOURCE]])
def test_the_tokens_of_another_issuer_of_the_same_name_are_refused(
    resource: str | Sequence[str],
) -> None:
    world, other = World(), World()
    said = world.said(other.issuer.mint("agent-alpha", resource, []))
    assert isinstance(said, Unreadable)
    assert said.reason.startswith("no key of its issuer fits: `ES256` with id `")


def test_what_is_published_is_the_public_half() -> None:
    world = World()
    kid = world.issuer._key.kid
    key = run(world.issuer.public_keys().key(kid, "ES256"))
    assert key is not None
    assert not key.is_private


def test_two_tokens_are_never_the_same() -> None:
    world = World()
    minted = {world.issuer.mint("agent-alpha", RESOURCE, []) for _ in range(10)}
    assert len(minted) == 10
