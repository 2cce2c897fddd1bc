"""Keys of an issuer: which are taken, when they are fetched, and what holds while that fails."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey

from houses import StillClock, run
from limen.errors import LimenError
from limen.tokens import keys as keys_module
from limen.tokens.keys import MAX_KEY_SET, FetchedKeys, FixedKeys, KeysError, keys_of

URL = "https://issuer.example/keys"


def public(key: RSAKey | ECKey | OKPKey, **more: Any) -> dict[str, Any]:
    return {**key.as_dict(private=False), **more}


RSA = RSAKey.generate_key(2048)
EC = ECKey.generate_key("P-256")
ED = OKPKey.generate_key("Ed25519")
FIRST = public(EC, kid="first")
SECOND = public(ECKey.generate_key("P-256"), kid="second")


def set_of(*entries: dict[str, Any]) -> bytes:
    return json.dumps({"keys": entries}).encode()


def found(entry: Any) -> list[tuple[str | None, str]]:
    return [(key.kid, key.algorithm) for key in keys_of({"keys": [entry]})]


@pytest.mark.parametrize(
    ("entry", "algorithm"),
    [
        (public(RSA), "RS256"),
        (public(RSA, use="sig", alg="RS256", key_ops=["verify"]), "RS256"),
        (public(EC), "ES256"),
        (public(EC, alg="ES256", x5t="x", unknown=[1]), "ES256"),
        (public(ED), "EdDSA"),
        (public(ED, alg="EdDSA"), "EdDSA"),
        (public(ED, alg="Ed25519"), "EdDSA"),
    ],
)
def test_a_key_that_can_check_a_signature_is_taken_for_its_one_algorithm(
    entry: dict[str, Any], algorithm: str
) -> None:
    assert found({**entry, "kid": "k"}) == [("k", algorithm)]
    assert found(entry) == [(None, algorithm)]


@pytest.mark.parametrize(
    "entry",
    [
        OctKey.generate_key(256).as_dict(),
        public(RSA, use="enc"),
        public(RSA, use=None),
        public(RSA, key_ops=["encrypt"]),
        public(RSA, key_ops=[]),
        public(RSA, key_ops="verify"),
        public(RSA, alg="PS256"),
        public(RSA, alg="HS256"),
        public(RSA, alg=["RS256"]),
        public(RSA, crv="P-256"),
        public(RSA, kid=7),
        public(RSA, n=7),
        public(RSA, n="not base64 é"),
        public(RSA, n=public(RSA)["n"][:170]),
        public(RSA, n="_" * 1500),
        public(RSA, e=""),
        public(RSA, e="AQAA"),
        public(RSA, e="AQAAAAAAAAAB"),
        public(EC, alg="RS256"),
        public(EC, y=public(EC)["x"]),
        public(EC, x=""),
        {name: value for name, value in public(EC).items() if name != "y"},
        public(ECKey.generate_key("P-384")),
        public(OKPKey.generate_key("X25519")),
        public(ED, x="AAAA"),
        {**public(EC), "kty": ["EC"]},
        {**public(EC), "crv": {}},
        {},
        None,
        "key",
        7,
    ],
)
def test_any_other_key_is_passed_over(entry: Any) -> None:
    assert found(entry) == []
    assert len(keys_of({"keys": [entry, FIRST]})) == 1


def test_rsa_below_2048_bits_is_passed_over() -> None:
    with pytest.warns(UserWarning, match="2048"):
        weak = RSAKey.generate_key(1024)
    assert found(public(weak)) == []


def test_a_private_key_in_a_set_is_kept_as_its_public_half() -> None:
    [kept] = keys_of({"keys": [EC.as_dict(private=True)]})
    assert not kept.key.is_private


@pytest.mark.parametrize("jwks", [None, [], {}, {"keys": None}, {"keys": {}}, "keys"])
def test_what_is_no_key_set_is_an_error(jwks: Any) -> None:
    with pytest.raises(KeysError, match="no list of keys"):
        keys_of(jwks)


def test_a_fixed_set_must_have_a_key_of_use() -> None:
    with pytest.raises(KeysError, match="no key that is of use"):
        FixedKeys({"keys": [OctKey.generate_key(256).as_dict()]})


def test_a_key_is_found_by_id_and_algorithm_and_never_guessed() -> None:
    keys = FixedKeys({"keys": [FIRST, SECOND, public(RSA, kid="first"), public(ED)]})

    async def kids(*asked: tuple[str | None, str]) -> list[str | None]:
        answers = [await keys.key(kid, alg) for kid, alg in asked]
        return [None if key is None else key.key_type for key in answers]

    assert run(kids(("first", "ES256"), ("second", "ES256"), ("first", "RS256"))) == [
        "EC",
        "EC",
        "RSA",
    ]
    # Without an id there must be no choice; an id is not matched by a key without one.
    assert run(kids((None, "EdDSA"), (None, "RS256"), (None, "ES256"))) == ["OKP", "RSA", None]
    assert run(kids(("second", "RS256"), ("x", "EdDSA"), ("", "EdDSA"))) == [None] * 3
    twice = FixedKeys({"keys": [FIRST, {**SECOND, "kid": "first"}]})
    assert run(twice.key("first", "ES256")) is None


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["kty", "crv", "n", "e", "x", "y", "use", "key_ops", "alg", "kid"]),
                inner
                | st.sampled_from(["RSA", "EC", "OKP", "P-256", "Ed25519", "AQAB", "x" * 342]),
            )
        ),
    )
)
def test_no_entry_makes_the_reading_of_a_set_fail(entry: Any) -> None:
    assert len(keys_of({"keys": [entry, FIRST]})) >= 1


@dataclass
class Endpoint:
    """An address that answers with a body, or fails, and counts who asked."""

    body: bytes = set_of(FIRST)
    error: Exception | None = None
    asked: list[str] = field(default_factory=list)
    gate: asyncio.Event | None = None

    async def fetch(self, url: str) -> bytes:
        self.asked.append(url)
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        return self.body


@dataclass
class World:
    """An endpoint and who reads its keys, on one event loop."""

    endpoint: Endpoint = field(default_factory=Endpoint)
    clock: StillClock = field(default_factory=StillClock)

    def __post_init__(self) -> None:
        self.keys = FetchedKeys(URL, self.endpoint.fetch, self.clock)

    async def has(self, kid: str) -> bool:
        return await self.keys.key(kid, "ES256") is not None

    @property
    def fetches(self) -> int:
        assert self.keys.fetches == len(self.endpoint.asked)
        return self.keys.fetches


def in_a_world(play: Callable[[World], Awaitable[None]]) -> None:
    async def played() -> None:
        await play(World())

    run(played())


def test_keys_are_fetched_when_they_are_first_asked_for_and_kept() -> None:
    async def play(world: World) -> None:
        assert world.fetches == 0
        assert await world.has("first")
        world.clock.move(minutes=59)
        assert await world.has("first")
        assert (world.fetches, world.endpoint.asked) == (1, [URL])

    in_a_world(play)


def test_a_new_key_is_fetched_once_when_its_id_is_first_seen() -> None:
    async def play(world: World) -> None:
        assert await world.has("first")
        world.clock.move(minutes=5)
        world.endpoint.body = set_of(FIRST, SECOND)
        assert await world.has("second")
        assert await world.has("second")
        assert await world.has("first")
        assert world.fetches == 2

    in_a_world(play)


def test_made_up_ids_cause_one_fetch_in_a_cool_down() -> None:
    async def play(world: World) -> None:
        assert await world.has("first")
        for number in range(1000):
            assert not await world.has(f"made-up-{number}")
        assert world.fetches == 1
        world.clock.move(seconds=9.9)
        world.endpoint.body = set_of(SECOND)
        assert not await world.has("second")
        world.clock.move(seconds=0.1)
        assert await world.has("second")
        assert not await world.has("first")
        assert world.fetches == 2

    in_a_world(play)


def test_all_who_wait_share_one_fetch_and_a_cancelled_one_leaves_it_to_the_others() -> None:
    async def play(world: World) -> None:
        world.endpoint.gate = asyncio.Event()
        waiting = [asyncio.create_task(world.has("first")) for _ in range(50)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.sleep(0)
        world.endpoint.gate.set()
        assert await asyncio.gather(*waiting[1:]) == [True] * 49
        assert waiting[0].cancelled()
        assert world.fetches == 1

    in_a_world(play)


@pytest.mark.parametrize(
    ("body", "error", "because"),
    [
        (b"", OSError("connection refused"), "connection refused"),
        (b"", LimenError("status 500"), "status 500"),
        (b"", TimeoutError(), "no answer within 5 s"),
        (b"<html>", None, "message is not JSON"),
        (b"[]", None, "key set has no list of keys"),
        (b'{"keys":[],"keys":[]}', None, "key set has a key twice in one object"),
        (set_of(FIRST) + b" " * MAX_KEY_SET, None, "key set has more than 65536 bytes"),
    ],
)
def test_known_keys_serve_for_a_day_while_fetching_fails_and_then_nothing_does(
    body: bytes, error: Exception | None, because: str
) -> None:
    async def play(world: World) -> None:
        assert await world.has("first")
        world.endpoint.body, world.endpoint.error = body, error
        world.clock.move(hours=23, minutes=59)
        assert await world.has("first")
        await asyncio.sleep(0)
        world.clock.move(seconds=10)
        assert not await world.has("unheard-of")
        assert world.keys.failures == 2
        assert because in world.keys.last_failure
        world.clock.move(minutes=1)
        with pytest.raises(KeysError, match=f"keys cannot be had: .*{because}"):
            await world.has("first")
        assert (world.fetches, world.keys.failures) == (4, 4 - 1)
        world.endpoint.body, world.endpoint.error = set_of(FIRST), None
        world.clock.move(seconds=10)
        assert await world.has("first")

    in_a_world(play)


def test_keys_that_never_came_are_an_error_and_are_not_asked_for_again_and_again() -> None:
    async def play(world: World) -> None:
        world.endpoint.error = OSError("connection refused")
        for _ in range(100):
            with pytest.raises(KeysError, match="connection refused"):
                await world.has("first")
        assert (world.fetches, world.keys.failures) == (1, 1)
        world.endpoint.error = None
        world.clock.move(seconds=10)
        assert await world.has("first")

    in_a_world(play)


def test_known_keys_serve_while_newer_ones_are_on_their_way() -> None:
    async def play(world: World) -> None:
        assert await world.has("first")
        world.endpoint.gate = asyncio.Event()
        world.endpoint.body = set_of(SECOND)
        world.clock.move(hours=1)
        assert await world.has("first")
        await asyncio.sleep(0)
        assert world.fetches == 2
        assert await world.has("first")
        world.endpoint.gate.set()
        assert await world.has("second")
        assert not await world.has("first")
        assert world.fetches == 2

    in_a_world(play)


def test_an_issuer_that_withdraws_all_its_keys_is_believed() -> None:
    async def play(world: World) -> None:
        assert await world.has("first")
        world.endpoint.body = set_of()
        world.clock.move(seconds=10)
        assert not await world.has("other")
        assert not await world.has("first")
        assert world.keys.failures == 0

    in_a_world(play)


def test_a_fetch_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(world: World) -> None:
        monkeypatch.setattr(keys_module, "FETCH_S", 0.01)
        world.endpoint.gate = asyncio.Event()
        with pytest.raises(KeysError, match=r"no answer within 0\.01 s"):
            await world.has("first")

    in_a_world(play)


@pytest.mark.parametrize(
    "url",
    [
        "http://issuer.example/keys",
        "http://127.0.0.1.evil.example/keys",
        "http://0.0.0.0/keys",
        "http://10.0.0.1/keys",
        "ftp://issuer.example/keys",
        "https://user:secret@issuer.example/keys",
        "file:///etc/passwd",
        "keys",
    ],
)
def test_keys_are_not_fetched_where_somebody_could_change_them(url: str) -> None:
    with pytest.raises(KeysError) as raised:
        FetchedKeys(url, Endpoint().fetch, StillClock())
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "[::1]"])
def test_this_machine_needs_no_https(host: str) -> None:
    assert FetchedKeys(f"http://{host}:8931/keys", Endpoint().fetch, StillClock()).url == (
        f"http://{host}:8931/keys"
    )
