"""An issuer for trying out and for proofs. Its key is in memory only, and nobody else knows it."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import orjson
from joserfc import jws
from joserfc.jwk import ECKey

from limen.ports import Clock
from limen.tokens.keys import FixedKeys

ISSUER = "https://issuer.limen.invalid"
OTHER_ISSUER = "https://other-issuer.limen.invalid"
OTHER_RESOURCE = "https://other-resource.limen.invalid/mcp"
"""Hosts under `.invalid` (RFC 2606): no such party can ever exist."""

LIFETIME_S = 3_600
"""Seconds that a token of these is good for, unless it is asked otherwise."""

ROLES_CLAIM = "roles"


class DemoIssuer:
    """Mint tokens, good ones and ones that must be refused. A new one has a new key."""

    def __init__(self, clock: Clock) -> None:
        """Make a key."""
        self.issuer = ISSUER
        self._clock = clock
        # INVARIANT: this key is written nowhere, and leaves this object only as its public half.
        self._key = ECKey.generate_key("P-256", auto_kid=True)
        self._numbers = itertools.count(1)

    def public_keys(self) -> FixedKeys:
        """Return where to find the public half of the key."""
        return FixedKeys({"keys": [self._key.as_dict(private=False)]})

    def mint(
        self,
        subject: str,
        resource: str | Sequence[str] | None,
        scopes: Iterable[str],
        *,
        roles: Iterable[str] = (),
        expires_in_s: float = LIFETIME_S,
        issuer: str | None = None,
        typ: str | None = "at+jwt",
        unsigned: bool = False,
    ) -> str:
        """Return a token. Nothing that is asked for is checked.

        `resource` becomes `aud` as it is: text, a list, or left out when None.
        """
        now = int(self._clock.now().timestamp())
        claims: dict[str, Any] = {
            "iss": self.issuer if issuer is None else issuer,
            "sub": subject,
            "client_id": subject,
            "scope": " ".join(sorted(scopes)),
            ROLES_CLAIM: sorted(roles),
            "iat": now,
            "exp": now + expires_in_s,
            "jti": f"demo-{next(self._numbers)}",
        }
        if resource is not None:
            claims["aud"] = resource if isinstance(resource, str) else list(resource)
        header: dict[str, Any] = {} if typ is None else {"typ": typ}
        if unsigned:
            return f"{_encoded({**header, 'alg': 'none'})}.{_encoded(claims)}."
        header = {**header, "alg": "ES256", "kid": self._key.kid}
        return jws.serialize_compact(header, orjson.dumps(claims), self._key, ["ES256"])

    def mint_refused(self, subject: str, resource: str, scopes: Iterable[str]) -> dict[str, str]:
        """Return one token for each reason why `resource` must refuse one, by that reason."""
        words = tuple(scopes)
        return {
            "other_resource": self.mint(subject, OTHER_RESOURCE, words),
            "two_resources": self.mint(subject, [resource, OTHER_RESOURCE], words),
            "list_of_one": self.mint(subject, [resource], words),
            "no_audience": self.mint(subject, None, words),
            "expired": self.mint(subject, resource, words, expires_in_s=-1),
            "wrong_issuer": self.mint(subject, resource, words, issuer=OTHER_ISSUER),
            "unsigned": self.mint(subject, resource, words, unsigned=True),
        }


def _encoded(value: object) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(value)).rstrip(b"=").decode()
