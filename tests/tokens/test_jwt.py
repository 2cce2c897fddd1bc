"""Signed tokens: every way in which one can be wrong, and the few in which one is right."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

from houses import NOW, StillClock, run
from limen.tokens.jwt import IssuerError, JwtReader, TrustedIssuer
from limen.tokens.keys import FixedKeys, KeysError
from limen.tokens.reader import LATEST, MAX_CREDENTIAL, Token, Unreadable

ISSUER = "https://issuer.example"
RESOURCE = "https://h/mcp"
NOW_S = int(NOW.timestamp())

RSA = RSAKey.generate_key(2048, {"kid": "rsa"})
EC = ECKey.generate_key("P-256", {"kid": "ec"})
ED = OKPKey.generate_key("Ed25519", {"kid": "ed"})
OTHER_EC = ECKey.generate_key("P-256", {"kid": "ec"})
KEYS: dict[str, Key] = {"RS256": RSA, "ES256": EC, "EdDSA": ED}
JWKS = {"keys": [key.as_dict(private=False) for key in KEYS.values()]}
SIGNS = JWSRegistry(algorithms=["RS256", "ES256", "Ed25519"])

HEADER = {"alg": "ES256", "typ": "at+jwt", "kid": "ec"}
CLAIMS: dict[str, Any] = {
    "iss": ISSUER,
    "sub": "agent-alpha",
    "aud": RESOURCE,
    "exp": NOW_S + 600,
    "iat": NOW_S,
    "scope": "ecb:read desk:read",
    "client_id": "client-1",
    "groups": ["staff", "night shift"],
}
GONE = object()
"""As a value: the claim or header is left out."""


def b64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def signed_raw(header: bytes, payload: bytes, key: Key = EC, alg: str = "ES256") -> str:
    text = f"{b64(header)}.{b64(payload)}"
    model = SIGNS.get_alg({"EdDSA": "Ed25519"}.get(alg, alg))
    return f"{text}.{b64(model.sign(text.encode(), key))}"


def changed(what: dict[str, Any], changes: dict[str, Any]) -> bytes:
    made = {name: value for name, value in {**what, **changes}.items() if value is not GONE}
    return json.dumps(made).encode()


def signed(key: Key = EC, header: dict[str, Any] | None = None, **claims: Any) -> str:
    header = header or {}
    alg = str(header.get("alg", "ES256"))
    return signed_raw(changed(HEADER, header), changed(CLAIMS, claims), key, alg)


def reader(**trust: Any) -> JwtReader:
    trust = {"keys": FixedKeys(JWKS), "roles_claim": "groups", **trust}
    return JwtReader([TrustedIssuer(ISSUER, **trust)], StillClock())


def read(credential: str, **trust: Any) -> Token | Unreadable:
    found = reader(**trust)
    assert found.fits(credential)
    return run(found.read(credential))


def reason(credential: str, **trust: Any) -> str:
    said = read(credential, **trust)
    assert isinstance(said, Unreadable)
    assert credential not in said.reason
    return said.reason


GOOD = Token(
    subject="agent-alpha",
    scopes=frozenset({"ecb:read", "desk:read"}),
    roles=frozenset({"staff", "night shift"}),
    audience=(RESOURCE,),
    is_list=False,
    issuer=ISSUER,
    expires_at=NOW_S + 600.0,
    client="client-1",
    lists_allowed=False,
)


@pytest.mark.parametrize("alg", KEYS)
def test_a_token_of_a_trusted_issuer_says_what_it_says(alg: str) -> None:
    key = KEYS[alg]
    assert read(signed(key, {"alg": alg, "kid": key.kid})) == GOOD
    assert read(signed(key, {"alg": alg, "kid": GONE})) == GOOD


def test_what_a_token_need_not_say_has_a_plain_default() -> None:
    said = read(signed(scope=GONE, client_id=GONE, groups=GONE))
    assert isinstance(said, Token)
    assert (said.scopes, said.client, said.roles) == (frozenset(), "agent-alpha", frozenset())


def test_roles_come_from_a_token_only_if_the_owner_names_the_claim() -> None:
    said = read(signed(), roles_claim=None)
    assert isinstance(said, Token)
    assert said.roles == frozenset()


@pytest.mark.parametrize("claim", ["iss", "sub", "aud", "exp", "iat"])
def test_a_token_without_one_of_the_five_claims_is_refused(claim: str) -> None:
    assert reason(signed(**{claim: GONE})) == f"claim `{claim}` is missing"
    assert isinstance(read(signed(**{claim: None})), Unreadable)


@pytest.mark.parametrize(
    ("claims", "because"),
    [
        # Times: numbers only, and zero is a time like another.
        ({"exp": NOW_S}, "expired"),
        ({"exp": NOW_S - 1}, "expired"),
        ({"exp": 0}, "expired"),
        ({"exp": -1}, "expired"),
        ({"exp": 0.0}, "expired"),
        ({"exp": str(NOW_S + 600)}, "claim `exp` is no time"),
        ({"exp": True}, "claim `exp` is no time"),
        ({"exp": [NOW_S + 600]}, "claim `exp` is no time"),
        ({"exp": LATEST + 1}, "claim `exp` is no time"),
        ({"exp": 10**30}, "claim `exp` is no time"),
        ({"exp": 10**400}, "payload is not JSON"),
        ({"exp": 1e300}, "claim `exp` is no time"),
        ({"iat": str(NOW_S)}, "claim `iat` is no time"),
        ({"iat": False}, "claim `iat` is no time"),
        ({"iat": NOW_S + 31}, "issued in the future"),
        ({"nbf": NOW_S + 31}, "not valid yet"),
        ({"nbf": str(NOW_S)}, "claim `nbf` is no time"),
        ({"nbf": None}, "claim `nbf` is no time"),
        # Names.
        ({"sub": ""}, "claim `sub` is not"),
        ({"sub": "x" * 256}, "claim `sub` is not"),
        ({"sub": "a\nb"}, "claim `sub` is not"),
        ({"sub": "a\u202eb"}, "claim `sub` is not"),
        ({"sub": 7}, "claim `sub` is not"),
        ({"client_id": ["client-1"]}, "claim `client_id` is not"),
        ({"aud": 7}, "claim `aud` is neither"),
        ({"aud": {"0": RESOURCE}}, "claim `aud` is neither"),
        ({"aud": [RESOURCE, 7]}, "claim `aud` is neither"),
        ({"scope": ["ecb:read"]}, "claim `scope` is not"),
        ({"scope": "ecb:read\tdesk:read"}, "claim `scope` is not"),
        ({"scope": 'ecb:"read"'}, "claim `scope` is not"),
        ({"groups": "staff"}, "claim `groups` is not"),
        ({"groups": ["staff", 7]}, "claim `groups` is not"),
        ({"groups": [""]}, "claim `groups` is not"),
        # Issuer, character by character.
        ({"iss": "https://other.example"}, "issuer `https://other.example` is not trusted"),
        ({"iss": ISSUER + "/"}, "is not trusted"),
        ({"iss": ISSUER.upper()}, "is not trusted"),
        ({"iss": [ISSUER]}, "is not trusted"),
        ({"iss": "x\n" * 400}, "issuer `x?x?"),
    ],
)
def test_a_token_with_a_wrong_claim_is_refused(claims: dict[str, Any], because: str) -> None:
    said = reason(signed(**claims))
    assert because in said
    assert said.isprintable()
    assert len(said) <= 200


def test_a_clock_that_is_ahead_of_ours_gets_thirty_seconds_and_expiry_gets_none() -> None:
    assert read(signed(iat=NOW_S + 30, nbf=NOW_S + 30)) == GOOD
    just = read(signed(exp=NOW_S + 0.5))
    assert isinstance(just, Token)
    assert just.expires_at == NOW_S + 0.5


@pytest.mark.parametrize(
    ("audience", "is_list"),
    [
        (RESOURCE, False),
        ([RESOURCE], True),
        ([RESOURCE, "https://other/mcp"], True),
        ([], True),
    ],
)
def test_the_audience_is_reported_as_it_stands(audience: Any, is_list: bool) -> None:
    said = read(signed(aud=audience), lists_allowed=True)
    assert isinstance(said, Token)
    assert said.audience == (tuple(audience) if is_list else (audience,))
    assert (said.is_list, said.lists_allowed) == (is_list, True)


@pytest.mark.parametrize(
    ("header", "because"),
    [
        ({"alg": "none"}, "algorithm `none` is not allowed"),
        ({"alg": "None"}, "algorithm `None` is not allowed"),
        ({"alg": "HS256"}, "algorithm `HS256` is not allowed"),
        ({"alg": "PS256"}, "algorithm `PS256` is not allowed"),
        ({"alg": "Ed25519"}, "algorithm `Ed25519` is not allowed"),
        ({"alg": ["ES256"]}, "is not allowed"),
        ({"alg": None}, "is not allowed"),
        ({"alg": GONE}, "is not allowed"),
        ({"jwk": OTHER_EC.as_dict(private=False)}, "header has `jwk`"),
        ({"jku": "https://evil.example/keys"}, "header has `jku`"),
        ({"x5u": "https://evil.example/certificate"}, "header has `x5u`"),
        ({"x5c": ["MIIB"]}, "header has `x5c`"),
        ({"crit": ["exp"], "exp": 1}, "header has `crit`"),
        ({"crit": []}, "header has `crit`"),
        ({"b64": False}, "header has `b64`"),
        ({"kid": 7}, "header has a `kid` that is no text"),
        ({"kid": None}, "header has a `kid` that is no text"),
        ({"kid": "unheard-of"}, "no key of its issuer fits: `ES256` with id `unheard-of`"),
        ({"kid": "rsa"}, "no key of its issuer fits: `ES256` with id `rsa`"),
        ({"kid": "../../dev/null"}, "no key of its issuer fits"),
        ({"typ": "JWT"}, "type `JWT` is not an access token's"),
        ({"typ": "logout+jwt"}, "type `logout+jwt` is not"),
        ({"typ": GONE}, "type `None` is not"),
        ({"typ": ["at+jwt"]}, "is not an access token's"),
    ],
)
def test_a_token_with_a_wrong_header_is_refused(header: dict[str, Any], because: str) -> None:
    text = f"{b64(changed(HEADER, header))}.{b64(changed(CLAIMS, {}))}"
    signature = SIGNS.get_alg("ES256").sign(text.encode(), EC)
    assert because in reason(f"{text}.{b64(signature)}")


@pytest.mark.parametrize("typ", ["at+jwt", "AT+JWT", "application/at+jwt"])
def test_an_access_token_is_marked_as_one(typ: str) -> None:
    assert read(signed(header={"typ": typ})) == GOOD


def test_the_owner_can_let_an_issuer_leave_the_mark_out() -> None:
    for header in ({"typ": "JWT"}, {"typ": GONE}):
        assert read(signed(header=header), any_typ=True) == GOOD


def test_an_unsigned_token_is_refused_whatever_stands_for_its_signature() -> None:
    for alg in ("none", "NONE", ""):
        text = f"{b64(changed(HEADER, {'alg': alg}))}.{b64(changed(CLAIMS, {}))}"
        for signature in ("", b64(b"x")):
            assert "is not allowed" in reason(f"{text}.{signature}")
    unsigned = signed().rpartition(".")[0] + "."
    assert reason(unsigned) == "signature does not verify"


def test_the_public_key_is_no_secret_to_sign_with() -> None:
    public = RSA.public_key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    text = f"{b64(changed(HEADER, {'alg': 'HS256', 'kid': 'rsa'}))}.{b64(changed(CLAIMS, {}))}"
    forged = hmac.new(public, text.encode(), hashlib.sha256).digest()
    assert reason(f"{text}.{b64(forged)}") == "algorithm `HS256` is not allowed"


def test_a_token_signed_with_another_key_is_refused() -> None:
    assert reason(signed(OTHER_EC)) == "signature does not verify"
    assert reason(signed(OTHER_EC, {"kid": GONE})) == "signature does not verify"


def test_a_token_of_one_issuer_is_not_checked_with_the_keys_of_another() -> None:
    other = "https://other.example"
    two = JwtReader(
        [
            TrustedIssuer(ISSUER, FixedKeys(JWKS)),
            TrustedIssuer(other, FixedKeys({"keys": [OTHER_EC.as_dict(private=False)]})),
        ],
        StillClock(),
    )
    assert isinstance(run(two.read(signed(OTHER_EC, iss=other))), Token)
    for token in (signed(OTHER_EC), signed(EC, iss=other)):
        assert run(two.read(token)) == Unreadable("signature does not verify")


def test_an_issuer_has_only_the_algorithms_that_the_owner_gave_it() -> None:
    token = signed(RSA, {"alg": "RS256", "kid": "rsa"})
    assert reason(token, algorithms=frozenset({"ES256"})) == "algorithm `RS256` is not allowed"


def test_what_was_signed_cannot_be_changed_afterwards() -> None:
    header, payload, signature = signed().split(".")
    richer = b64(changed(CLAIMS, {"scope": "everything"}))
    assert reason(f"{header}.{richer}.{signature}") == "signature does not verify"
    for number in range(0, 85, 17):
        letter = "B" if signature[number] == "A" else "A"
        broken = signature[:number] + letter + signature[number + 1 :]
        assert reason(f"{header}.{payload}.{broken}") == "signature does not verify"


def test_a_token_has_one_spelling_only() -> None:
    # The last character of 64 bytes carries two bits that mean nothing; they must be zero.
    token = signed()
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    place = alphabet.index(token[-1])
    same_bytes = token[:-1] + alphabet[place | 1]
    assert reason(same_bytes) == "token is not base64url as it is written"


@pytest.mark.parametrize(
    ("header", "payload", "because"),
    [
        (b"{", changed(CLAIMS, {}), "header is not JSON"),
        (b"[]", changed(CLAIMS, {}), "header is not a JSON object"),
        (b'"ES256"', changed(CLAIMS, {}), "header is not a JSON object"),
        (b'{"alg":"none","alg":"ES256"}', changed(CLAIMS, {}), "header has a key twice"),
        (changed(HEADER, {"x": "x" * 1024}), changed(CLAIMS, {}), "header has more than 1024"),
        (changed(HEADER, {}), b"\xff", "payload is not JSON"),
        (changed(HEADER, {}), b"null", "payload is not a JSON object"),
        (changed(HEADER, {}), b'{"exp":NaN}', "payload is not JSON"),
        (changed(HEADER, {}), b'{"a":' * 99 + b"1" + b"}" * 99, "payload is not JSON"),
        (
            changed(HEADER, {}),
            changed(CLAIMS, {})[:-1] + b',"sub":"owner"}',
            "payload has a key twice",
        ),
        (
            changed(HEADER, {}),
            changed(CLAIMS, {})[:-1] + b',"a":{"b":1,"b":2}}',
            "payload has a key twice",
        ),
    ],
)
def test_what_two_parsers_could_read_in_two_ways_is_refused(
    header: bytes, payload: bytes, because: str
) -> None:
    assert because in reason(signed_raw(header, payload))


def test_a_token_has_at_most_eight_kibibytes() -> None:
    long = signed(pad="x" * MAX_CREDENTIAL)
    assert reason(long) == "token is not three parts of base64url"


@dataclass(frozen=True)
class NoKeys:
    async def key(self, kid: str | None, alg: str) -> Key | None:
        raise KeysError("keys cannot be had: no answer within 5 s")


@dataclass(frozen=True)
class WrongKeys:
    async def key(self, kid: str | None, alg: str) -> Key | None:
        return RSA


def test_without_keys_no_token_is_good() -> None:
    assert reason(signed(), keys=NoKeys()) == "keys cannot be had: no answer within 5 s"


def test_a_key_of_another_kind_proves_nothing() -> None:
    assert reason(signed(), keys=WrongKeys()) == "signature does not verify"


@pytest.mark.parametrize(
    ("issuer", "trust", "because"),
    [
        (ISSUER, {"algorithms": frozenset({"HS256"})}, "has algorithms `HS256`"),
        (ISSUER, {"algorithms": frozenset({"ES256", "none"})}, "has algorithms `ES256 none`"),
        (ISSUER, {"algorithms": frozenset()}, "has algorithms ``"),
        ("limen", {}, "issuer is no address: `limen`"),
    ],
)
def test_an_issuer_that_cannot_be_trusted_safely_is_an_error(
    issuer: str, trust: dict[str, Any], because: str
) -> None:
    with pytest.raises(IssuerError, match=because):
        TrustedIssuer(issuer, FixedKeys(JWKS), **trust)


def test_an_issuer_is_named_once() -> None:
    trusted = TrustedIssuer(ISSUER, FixedKeys(JWKS))
    with pytest.raises(IssuerError, match="named twice"):
        JwtReader([trusted, trusted], StillClock())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=4,
)
PARTS = st.one_of(
    st.binary(max_size=60).map(b64),
    JSON.map(lambda value: b64(json.dumps(value).encode())),
    st.text(max_size=20),
)


@settings(deadline=None, max_examples=300)
@given(st.lists(PARTS, min_size=1, max_size=5).map(".".join) | st.binary().map(bytes.hex))
def test_no_text_makes_the_reader_raise(credential: str) -> None:
    assert isinstance(run(reader().read(credential)), Unreadable)


@settings(deadline=None, max_examples=300)
@given(
    st.dictionaries(st.sampled_from(sorted(HEADER)), JSON),
    st.dictionaries(st.sampled_from([*sorted(CLAIMS), "nbf"]), JSON),
)
def test_no_header_and_no_claim_of_a_trusted_issuer_makes_the_reader_raise(
    header: dict[str, Any], claims: dict[str, Any]
) -> None:
    token = signed_raw(changed(HEADER, header), changed(CLAIMS, claims))
    assert isinstance(run(reader().read(token)), Token | Unreadable)
