"""Signed tokens (RFC 9068, RFC 8725): who issued one, whether that is true, and what it says.

Nothing in a token chooses how it is checked: the issuer's settings name the algorithms, the
issuer's keys have one each, and what a header brings along (a key, an address of keys) refuses it.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from joserfc.errors import JoseError
from joserfc.jws import JWSRegistry

from limen import strict_json
from limen.errors import LimenError
from limen.ports import Clock
from limen.strict_json import NotJsonError
from limen.tokens.keys import KeysError, KeySource
from limen.tokens.reader import LATEST, MAX_CREDENTIAL, Token, Unreadable

SIGNED_AS = {"RS256": "RS256", "ES256": "ES256", "EdDSA": "Ed25519"}
"""Every algorithm there is here, and the name of its check in joserfc (RFC 9864 for EdDSA)."""

LEEWAY_S = 30.0
"""Seconds that an issuer's clock may be ahead of ours. `exp` gets none: expired is expired."""

MAX_HEADER = 1_024
"""Bytes. Real headers have about 100."""

MAX_NAME = 255
"""Characters of a subject, a client or a role."""

ACCESS_TOKEN_TYPES = {"at+jwt", "application/at+jwt"}
"""RFC 9068 §4: so that an ID token or a logout token is no access token."""

REQUIRED = ("iss", "sub", "aud", "exp", "iat")

FORBIDDEN = ("crit", "b64", "jwk", "jku", "x5c", "x5u")
"""What would let a token bring its own key, or change what its signature means."""

_FORM = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")
"""Three parts of base64url. The last is empty in an unsigned token, which is refused by name."""

_SCOPES = re.compile(r"(?:[\x21\x23-\x5b\x5d-\x7e]+(?: [\x21\x23-\x5b\x5d-\x7e]+)*)?")
"""RFC 6749 §3.3, or nothing at all."""

_CHECKS = JWSRegistry(algorithms=list(SIGNED_AS.values()))


class IssuerError(LimenError):
    """Say why an issuer cannot be trusted as its settings ask."""


@dataclass(frozen=True, slots=True)
class TrustedIssuer:
    """An issuer whose tokens the owner accepts, and how.

    `issuer` is compared with `iss` character by character. `lists_allowed` is for issuers that
    always send a list: then a list of one value passes. `any_typ` is for those that do not mark
    access tokens as such; then any token of theirs passes that is made out for us.
    `roles_claim` names the claim with a list of roles, None when roles do not come from tokens.
    Its callers are `name/sub`, so that two issuers' people are never one; plain `sub` without it.
    """

    issuer: str
    keys: KeySource
    algorithms: frozenset[str] = frozenset(SIGNED_AS)
    lists_allowed: bool = False
    any_typ: bool = False
    roles_claim: str | None = None
    name: str = ""

    def __post_init__(self) -> None:
        if not self.issuer.startswith(("https://", "http://")):
            raise IssuerError(f"issuer is no address: `{self.issuer}`")
        if not self.algorithms or not self.algorithms <= SIGNED_AS.keys():
            raise IssuerError(
                f"issuer `{self.issuer}` has algorithms `{' '.join(sorted(self.algorithms))}`;"
                f" choose from `{' '.join(SIGNED_AS)}`"
            )


@dataclass(frozen=True, slots=True)
class _Unverified:
    """What a token says of itself, before anybody vouches for it."""

    header: Mapping[str, Any]
    claims: Mapping[str, Any]
    signed: bytes
    signature: bytes


class JwtReader:
    """Read the signed tokens of the issuers that the owner trusts."""

    def __init__(
        self, issuers: Iterable[TrustedIssuer], clock: Clock, leeway_s: float = LEEWAY_S
    ) -> None:
        """Make it for some issuers.

        Raises:
            IssuerError: an issuer is named twice.
        """
        self._issuers: dict[str, TrustedIssuer] = {}
        for trusted in issuers:
            if trusted.issuer in self._issuers:
                raise IssuerError(f"issuer is named twice: `{trusted.issuer}`")
            self._issuers[trusted.issuer] = trusted
        self._clock = clock
        self._leeway_s = leeway_s

    def fits(self, credential: str) -> bool:
        """Tell whether it is three parts of base64url with dots between."""
        return _FORM.fullmatch(credential) is not None

    async def read(self, credential: str) -> Token | Unreadable:
        """Return what a token says, or why it cannot be used. Whom it is for is not looked at."""
        unverified = _parse(credential)
        if isinstance(unverified, Unreadable):
            return unverified
        claims, name = unverified.claims, unverified.claims.get("iss")
        if name is None:
            return Unreadable("claim `iss` is missing")
        trusted = self._issuers.get(name) if isinstance(name, str) else None
        if trusted is None:
            return Unreadable(f"issuer `{name}` is not trusted")
        flaw = (
            _flaw_of_header(unverified.header, trusted)
            or await _flaw_of_signature(unverified, trusted)
            # From here on: the issuer said so.
            or self._flaw_of_times(claims)
            or _flaw_of_names(claims, trusted)
        )
        return _token(claims, trusted) if flaw is None else Unreadable(flaw)

    def _flaw_of_times(self, claims: Mapping[str, Any]) -> str | None:
        missing = next((name for name in REQUIRED if name not in claims), None)
        if missing is not None:
            return f"claim `{missing}` is missing"
        for name in ("exp", "iat", "nbf"):
            if name in claims and not _is_time(claims[name]):
                return f"claim `{name}` is no time"
        now = self._clock.now().timestamp()
        if claims["exp"] <= now:
            return "expired"
        if claims["iat"] > now + self._leeway_s:
            return "issued in the future"
        if claims.get("nbf", now) > now + self._leeway_s:
            return "not valid yet"
        return None


def _parse(credential: str) -> _Unverified | Unreadable:
    if len(credential) > MAX_CREDENTIAL or not _FORM.fullmatch(credential):
        return Unreadable("token is not three parts of base64url")
    signed, _, last = credential.rpartition(".")
    first, _, middle = signed.partition(".")
    header, claims, signature = (_decoded(part) for part in (first, middle, last))
    if header is None or claims is None or signature is None:
        return Unreadable("token is not base64url as it is written")
    if len(header) > MAX_HEADER:
        return Unreadable(f"header has more than {MAX_HEADER} bytes")
    objects: list[Mapping[str, Any]] = []
    for what, text in (("header", header), ("payload", claims)):
        try:
            parsed = strict_json.read(text)
        except NotJsonError:
            return Unreadable(f"{what} is not JSON")
        if not isinstance(parsed.value, dict):
            return Unreadable(f"{what} is not a JSON object")
        if parsed.duplicates:
            return Unreadable(f"{what} has a key twice")
        objects.append(parsed.value)
    return _Unverified(objects[0], objects[1], signed.encode(), signature)


def _decoded(part: str) -> bytes | None:
    try:
        found = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except binascii.Error:
        return None
    # Several spellings of one token would be several tokens to whoever counts or revokes them.
    return found if base64.urlsafe_b64encode(found).rstrip(b"=") == part.encode() else None


def _flaw_of_header(header: Mapping[str, Any], trusted: TrustedIssuer) -> str | None:
    alg, kid, typ = header.get("alg"), header.get("kid"), header.get("typ")
    if not isinstance(alg, str) or alg not in trusted.algorithms:
        return f"algorithm `{alg}` is not allowed"
    forbidden = next((name for name in FORBIDDEN if name in header), None)
    if forbidden is not None:
        return f"header has `{forbidden}`"
    if "kid" in header and not isinstance(kid, str):
        return "header has a `kid` that is no text"
    # RFC 8725 §3.11: explicit typing.
    if not trusted.any_typ and str(typ).lower() not in ACCESS_TOKEN_TYPES:
        return f"type `{typ}` is not an access token's"
    return None


async def _flaw_of_signature(unverified: _Unverified, trusted: TrustedIssuer) -> str | None:
    alg, kid = unverified.header["alg"], unverified.header.get("kid")
    try:
        key = await trusted.keys.key(kid, alg)
    except KeysError as error:
        # Fails closed: without keys nobody can say.
        return str(error)
    if key is None:
        return f"no key of its issuer fits: `{alg}` with id `{kid}`"
    check = _CHECKS.get_alg(SIGNED_AS[alg])
    try:
        check.check_key(key)
        is_genuine = check.verify(unverified.signed, unverified.signature, key)
    except JoseError:
        # The key source handed out a key of another kind.
        is_genuine = False
    return None if is_genuine else "signature does not verify"


def _flaw_of_names(claims: Mapping[str, Any], trusted: TrustedIssuer) -> str | None:
    if not _is_name(claims["sub"]):
        return f"claim `sub` is not 1 to {MAX_NAME} printable characters"
    if not _is_name(claims.get("client_id", claims["sub"])):
        return f"claim `client_id` is not 1 to {MAX_NAME} printable characters"
    audience = claims["aud"]
    if not (isinstance(audience, str) or _is_list_of(audience, str)):
        return "claim `aud` is neither text nor a list of texts"
    scope = claims.get("scope", "")
    if not isinstance(scope, str) or not _SCOPES.fullmatch(scope):
        return "claim `scope` is not words with a space between"
    roles = claims.get(trusted.roles_claim, []) if trusted.roles_claim else []
    if not _is_list_of(roles, str) or not all(_is_name(role) for role in roles):
        return f"claim `{trusted.roles_claim}` is not a list of names"
    return None


def _token(claims: Mapping[str, Any], trusted: TrustedIssuer) -> Token:
    audience = claims["aud"]
    is_list = isinstance(audience, list)
    return Token(
        subject=f"{trusted.name}/{claims['sub']}" if trusted.name else claims["sub"],
        scopes=frozenset(claims.get("scope", "").split()),
        roles=frozenset(claims.get(trusted.roles_claim, ()) if trusted.roles_claim else ()),
        audience=tuple(audience) if is_list else (audience,),
        is_list=is_list,
        issuer=trusted.issuer,
        expires_at=float(claims["exp"]),
        client=claims.get("client_id", claims["sub"]),
        lists_allowed=trusted.lists_allowed,
    )


def _is_time(value: object) -> bool:
    # A boolean is an integer to Python, and not to us.
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -LATEST <= value <= LATEST


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= MAX_NAME and value.isprintable()


def _is_list_of(value: object, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(one, kind) for one in value)
