"""Bearer tokens: what one says once it is read, whom it is meant for, and what is remembered.

A token that cannot be used is a value with its private reason. The caller is never told which.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from limen.ports import Clock
from limen.tokens.resource import normalised, same_resource

MAX_CREDENTIAL = 8 * 1024
"""Characters of a token. Real ones with many roles have about 2,000."""

MAX_CACHE_S = 60.0
"""Seconds. How long a token that was revoked elsewhere may still work here."""

MAX_CACHED = 10_000
"""Tokens that are remembered, the longest unused forgotten first: about 10 MB."""

MAX_REASON = 200
"""Characters of a reason, which may quote what a stranger wrote."""

LATEST = 253_402_300_799
"""Seconds since 1970: the end of the year 9999, the last that a time here can be."""

NO_FORM = "token has no form that is read here"

_B64TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*", re.ASCII)
"""RFC 6750 §2.1."""


@dataclass(frozen=True, slots=True)
class Token:
    """What a token says, once it is known to be genuine. Whom it is meant for is `is_for`'s.

    `expires_at` is seconds since 1970. `is_list` tells whether `aud` was a list; then
    `lists_allowed` tells whether the owner lets this issuer send lists.
    A subject is a name of its issuer: two issuers may use one name for two people.
    """

    subject: str
    scopes: frozenset[str]
    roles: frozenset[str]
    audience: tuple[str, ...]
    is_list: bool
    issuer: str
    expires_at: float
    client: str
    lists_allowed: bool


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why a token cannot be used: one private line, for the audit row alone. Quotes no token."""

    reason: str

    def __post_init__(self) -> None:
        # INVARIANT: a reason is one printable line, whatever the token says of itself.
        object.__setattr__(self, "reason", one_line(self.reason))


class TokenReader(Protocol):
    """Read tokens of one form. A reader is asked only for what it said that it fits."""

    def fits(self, credential: str) -> bool:
        """Tell from its form alone whether this reader is the one for a token."""

    async def read(self, credential: str) -> Token | Unreadable:
        """Return what a token says, or why it cannot be used.

        Raises:
            LimenError: nobody can say, for the store failed. Whoever asks must refuse.
        """


class BearerTokens:
    """Read the tokens of one resource, and remember for a short while those that are good.

    Belongs to one event loop: other threads must not call it. Nothing is remembered of a token
    that is refused, so strangers cannot fill it.
    """

    def __init__(
        self,
        resource: str,
        readers: Sequence[TokenReader],
        clock: Clock,
        cache_s: float = MAX_CACHE_S,
    ) -> None:
        """Make it for one resource.

        Raises:
            ResourceError: `resource` is not the address of one.
            ValueError: `cache_s` is not between 0 and 60 seconds.
        """
        if not 0 <= cache_s <= MAX_CACHE_S:
            raise ValueError(f"cache time is {cache_s} s; it must be 0 to {MAX_CACHE_S:g} s")
        self.resource = normalised(resource)
        self._readers = tuple(readers)
        self._clock = clock
        self._cache_s = cache_s
        self._cached: OrderedDict[str, tuple[Token, float, datetime]] = OrderedDict()
        self._forgotten = 0

    def __len__(self) -> int:
        """Return how many tokens are remembered."""
        return len(self._cached)

    def cached(self, credential: str) -> Token | None:
        """Return what a token says if it is remembered as good for this resource, and still is."""
        if len(credential) > MAX_CREDENTIAL:
            return None
        return self._find(digest_of(credential))

    async def token_of(self, credential: str) -> Token | Unreadable:
        """Return what a token for exactly this resource says, or why it cannot be used.

        Raises:
            LimenError: nobody can say, for the store failed. Whoever asks must refuse.
        """
        if len(credential) > MAX_CREDENTIAL:
            return Unreadable(f"token has more than {MAX_CREDENTIAL} characters")
        digest = digest_of(credential)
        known = self._find(digest)
        if known is not None:
            return known
        forgotten = self._forgotten
        said = await self._read(credential)
        # INVARIANT: what was read before a revocation is not remembered after it.
        if isinstance(said, Token) and self._forgotten == forgotten:
            self._keep(digest, said)
        return said

    def forget(self, *, digest: str | None = None, subject: str | None = None) -> None:
        """Forget one token, or all of a subject whoever issued them: they are read anew.

        Call it once the revocation is durable; from then on it holds in this process.
        """
        self._forgotten += 1
        for known, (token, _, _) in list(self._cached.items()):
            if known == digest or token.subject == subject:
                del self._cached[known]

    async def _read(self, credential: str) -> Token | Unreadable:
        if not _B64TOKEN.fullmatch(credential):
            return Unreadable("token has a character that no bearer token has")
        reader = next((known for known in self._readers if known.fits(credential)), None)
        if reader is None:
            return Unreadable(NO_FORM)
        said = await reader.read(credential)
        if isinstance(said, Unreadable):
            return said
        reason = is_for(said, self.resource)
        if reason is not None:
            return Unreadable(reason)
        # The reader may have waited for its keys meanwhile.
        if said.expires_at <= self._clock.now().timestamp():
            return Unreadable("expired")
        return said

    def _find(self, digest: str) -> Token | None:
        found = self._cached.get(digest)
        if found is None:
            return None
        token, until_s, expires_at = found
        if self._clock.monotonic() >= until_s or self._clock.now() >= expires_at:
            del self._cached[digest]
            return None
        self._cached.move_to_end(digest)
        return token

    def _keep(self, digest: str, token: Token) -> None:
        expires_at = datetime.fromtimestamp(min(token.expires_at, LATEST), UTC)
        self._cached[digest] = (token, self._clock.monotonic() + self._cache_s, expires_at)
        self._cached.move_to_end(digest)
        if len(self._cached) > MAX_CACHED:
            self._cached.popitem(last=False)


def is_for(token: Token, resource: str) -> str | None:
    """Return None when a token is meant for exactly this resource, else the private reason."""
    # A token that is also good somewhere else is one that somewhere else can present here.
    if token.is_list and not token.lists_allowed:
        return "audience is a list"
    if len(token.audience) != 1:
        return f"audience has {len(token.audience)} values, not one"
    if not same_resource(token.audience[0], resource):
        return one_line(f"audience is another resource: `{token.audience[0]}`")
    return None


def digest_of(credential: str) -> str:
    """Return the SHA-256 of a token in hex: all that is kept of one. Takes any text."""
    return hashlib.sha256(credential.encode("utf-8", "surrogatepass")).hexdigest()


def one_line(text: str) -> str:
    """Return a text as one printable line of at most 200 characters."""
    cut = text[:MAX_REASON]
    return cut if cut.isprintable() else "".join(c if c.isprintable() else "?" for c in cut)
