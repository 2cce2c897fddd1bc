"""Opaque tokens: random text that says nothing, looked up by its digest."""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from limen.ports import Clock
from limen.tokens.reader import NO_FORM, Token, Unreadable, digest_of

__all__ = ["OWN_ISSUER", "PREFIX", "OpaqueReader", "StoredToken", "digest_of", "new_token"]

PREFIX = "limen_"
"""So that those who scan files for secrets can tell one."""

RANDOM_BYTES = 32
"""256 bits: no guess ever hits."""

OWN_ISSUER = "limen"
"""What issued an opaque token: this house. No address, so no outside issuer has this name."""

_FORM = re.compile(PREFIX + r"[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True)
class StoredToken:
    """What is kept of an opaque token. `digest` is its SHA-256 in hex; times are aware UTC."""

    digest: str
    caller: str
    scopes: frozenset[str]
    roles: frozenset[str]
    resource: str
    label: str
    created_at: datetime
    expires_at: datetime
    revoked_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class OpaqueReader:
    """Look tokens up. `find` takes a digest and returns what is stored under it, or None."""

    find: Callable[[str], StoredToken | None]
    clock: Clock

    def fits(self, credential: str) -> bool:
        """Tell whether it begins as our tokens do."""
        return credential.startswith(PREFIX)

    async def read(self, credential: str) -> Token | Unreadable:
        """Return what is stored of a token, or why it cannot be used.

        Raises:
            StoreError: the store failed, so nobody can say whether it was revoked.
        """
        if not _FORM.fullmatch(credential):
            return Unreadable(NO_FORM)
        digest = digest_of(credential)
        # Fails closed: when the store fails, so does the call; no older answer stands in.
        stored = self.find(digest)
        # Compare digests, not tokens: the table must be useless to whoever steals it.
        if stored is None or not hmac.compare_digest(stored.digest, digest):
            return Unreadable("token is not known")
        if stored.revoked_at is not None:
            return Unreadable("revoked")
        if stored.expires_at <= self.clock.now():
            return Unreadable("expired")
        return Token(
            subject=stored.caller,
            scopes=stored.scopes,
            roles=stored.roles,
            audience=(stored.resource,),
            is_list=False,
            issuer=OWN_ISSUER,
            expires_at=stored.expires_at.timestamp(),
            client=stored.caller,
            lists_allowed=False,
        )


def new_token(random_bytes: Callable[[int], bytes]) -> str:
    """Return a new token of 256 random bits, to be shown once and never kept.

    Raises:
        ValueError: `random_bytes` returned fewer or more than it was asked for.
    """
    random = random_bytes(RANDOM_BYTES)
    if len(random) != RANDOM_BYTES:
        raise ValueError(f"randomness has {len(random)} bytes, not {RANDOM_BYTES}")
    return PREFIX + base64.urlsafe_b64encode(random).rstrip(b"=").decode()
