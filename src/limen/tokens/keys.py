"""The public keys of an issuer: given once, or fetched and fetched anew when they change.

Of a key set (RFC 7517) only what can check a signature of ours is kept: RSA for RS256, P-256 for
ES256, Ed25519 for EdDSA. So a key has exactly one algorithm, and no token can choose another.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Protocol
from urllib.parse import urlsplit

from joserfc.errors import JoseError
from joserfc.jwk import Key, import_key

from limen import strict_json
from limen.errors import LimenError
from limen.ports import Clock
from limen.tokens.reader import one_line
from limen.tokens.resource import ResourceError, normalised

MIN_RSA_BITS = 2_048
"""RFC 7518 §3.3."""

MAX_RSA_BITS = 8_192
"""A check with 16,384 bits takes several ms, and anybody can ask for one."""

MAX_EXPONENT = 6
"""Characters of base64url, 32 bits: 65,537 has 4, and a large exponent is slow."""

MAX_KEY_SET = 64 * 1024
"""Bytes of a fetched key set. Real ones with certificate chains have about 15 KiB."""

COOL_DOWN_S = 10.0
"""Seconds between two fetches, so that made-up key ids cannot make us a burden to an issuer."""

MAX_AGE_S = 3_600.0
"""Seconds after which known keys are fetched anew, for a key that was withdrawn."""

STALE_S = 86_400.0
"""Seconds that known keys serve while fetching fails. Then nothing of this issuer is believed."""

FETCH_S = 5.0
"""Seconds that a fetch may take."""


class KeysError(LimenError):
    """Say why the keys of an issuer cannot be had."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """One key with its one algorithm: `RS256`, `ES256` or `EdDSA`."""

    kid: str | None
    algorithm: str
    key: Key


class KeySource(Protocol):
    """Find the keys of one issuer."""

    async def key(self, kid: str | None, alg: str) -> Key | None:
        """Return the one key with this id for this algorithm, or None.

        Without an id, the only key for the algorithm; None if there are several.

        Raises:
            KeysError: the keys cannot be had, so nobody can say.
        """


class FixedKeys:
    """Find keys in a key set that the owner gave."""

    def __init__(self, jwks: Mapping[str, Any]) -> None:
        """Take a JSON Web Key Set, as parsed.

        Raises:
            KeysError: it is none, or has no key that is of use here.
        """
        self._keys = keys_of(jwks)
        if not self._keys:
            raise KeysError("key set has no key that is of use: RSA from 2048 bits, P-256, Ed25519")

    async def key(self, kid: str | None, alg: str) -> Key | None:
        """Return the one key with this id for this algorithm, or None."""
        return find_key(self._keys, kid, alg)


class FetchedKeys:
    """Find keys in a key set that is fetched when it is first asked for, and kept.

    An id that is not known fetches it anew, at most once in a cool-down; all who wait share the
    fetch. While fetching fails, known keys serve on until they are `stale_s` old.
    Belongs to one event loop.

    `fetch` returns the body of an address; it follows no redirect and stops reading after
    `MAX_KEY_SET` bytes. What it raises is an `OSError` or a `LimenError`.
    `fetches` and `failures` count.
    """

    def __init__(
        self,
        url: str,
        fetch: Callable[[str], Awaitable[bytes]],
        clock: Clock,
        *,
        cool_down_s: float = COOL_DOWN_S,
        max_age_s: float = MAX_AGE_S,
        stale_s: float = STALE_S,
    ) -> None:
        """Make it for one address. Fetches nothing yet.

        Raises:
            KeysError: the address is neither https nor http on this machine.
        """
        self.url = _safe_address(url)
        self._fetch = fetch
        self._clock = clock
        self._cool_down_s = cool_down_s
        self._max_age_s = max_age_s
        self._stale_s = stale_s
        self._keys: tuple[PublicKey, ...] = ()
        self._fetched_at: float | None = None
        self._tried_at: float | None = None
        self._flight: asyncio.Task[None] | None = None
        self.fetches = 0
        self.failures = 0
        self.last_failure = "not fetched yet"

    async def key(self, kid: str | None, alg: str) -> Key | None:
        """Return the one key with this id for this algorithm, or None.

        Raises:
            KeysError: fetching fails, and there are no keys or they are too old.
        """
        if self._is_older_than(self._stale_s) or find_key(self._keys, kid, alg) is None:
            flight = self._refresh()
            if flight is not None:
                # Whoever is cancelled while waiting leaves the fetch to the others.
                await asyncio.shield(flight)
        elif self._is_older_than(self._max_age_s):
            # Known keys serve while newer ones are on their way: nobody waits for a slow issuer.
            self._refresh()
        # Fails closed: keys that nobody could confirm for a day may have been stolen since.
        if self._is_older_than(self._stale_s):
            raise KeysError(f"keys cannot be had: {self.last_failure}: `{self.url}`")
        return find_key(self._keys, kid, alg)

    def _is_older_than(self, age_s: float) -> bool:
        return self._fetched_at is None or self._clock.monotonic() - self._fetched_at >= age_s

    def _refresh(self) -> asyncio.Task[None] | None:
        """Return the fetch that is under way, begun now if it may; None in the cool-down."""
        if self._flight is not None and not self._flight.done():
            return self._flight
        now = self._clock.monotonic()
        if self._tried_at is not None and now - self._tried_at < self._cool_down_s:
            return None
        self._tried_at = now
        self._flight = asyncio.create_task(self._fetch_keys(now))
        return self._flight

    async def _fetch_keys(self, begun_at: float) -> None:
        self.fetches += 1
        try:
            async with asyncio.timeout(FETCH_S):
                body = await self._fetch(self.url)
            keys = _read_key_set(body)
        except TimeoutError:
            self._note_failure(f"no answer within {FETCH_S:g} s")
        except (OSError, LimenError) as error:
            self._note_failure(str(error) or type(error).__name__)
        else:
            self._keys, self._fetched_at = keys, begun_at

    def _note_failure(self, cause: str) -> None:
        self.failures += 1
        self.last_failure = one_line(cause)


def find_key(keys: Iterable[PublicKey], kid: str | None, alg: str) -> Key | None:
    """Return the one key with this id for this algorithm; None when there is none, or a choice."""
    fitting = [
        known.key for known in keys if known.algorithm == alg and (kid is None or known.kid == kid)
    ]
    return fitting[0] if len(fitting) == 1 else None


def keys_of(jwks: object) -> tuple[PublicKey, ...]:
    """Return the keys of a parsed key set that are of use here; the others are passed over.

    Raises:
        KeysError: it is no key set.
    """
    entries = jwks.get("keys") if isinstance(jwks, Mapping) else None
    if not isinstance(entries, list):
        raise KeysError("key set has no list of keys")
    found = (_public_key(entry) for entry in entries if isinstance(entry, Mapping))
    return tuple(key for key in found if key is not None)


_FORMS = {
    "RSA": (None, ("RS256",), ("n", "e")),
    "EC": ("P-256", ("ES256",), ("crv", "x", "y")),
    "OKP": ("Ed25519", ("EdDSA", "Ed25519"), ("crv", "x")),
}
"""Of each type of key: its curve, the names of its algorithm (ours first), its public members."""


def _public_key(entry: Mapping[str, Any]) -> PublicKey | None:
    kty, kid = entry.get("kty"), entry.get("kid")
    form = _FORMS.get(kty) if isinstance(kty, str) else None
    if form is None or not (kid is None or isinstance(kid, str)):
        return None
    curve, algorithms, names = form
    if entry.get("crv") != curve or entry.get("alg", algorithms[0]) not in algorithms:
        return None
    operations = entry.get("key_ops", ["verify"])
    if entry.get("use", "sig") != "sig" or not isinstance(operations, list):
        return None
    # Public members only: if an issuer shows a private key, it has no business in our memory.
    members = {name: text for name in names if isinstance(text := entry.get(name), str)}
    if "verify" not in operations or len(members) != len(names):
        return None
    if kty == "RSA" and not _is_rsa_of_good_size(members["n"], members["e"]):
        return None
    try:
        return PublicKey(kid, algorithms[0], import_key({"kty": str(kty), **members}))
    except (JoseError, ValueError):
        # A point beside its curve, an even exponent, text that is no base64url.
        return None


def _is_rsa_of_good_size(modulus: str, exponent: str) -> bool:
    try:
        bits = int.from_bytes(base64.urlsafe_b64decode(modulus + "==")).bit_length()
    except (binascii.Error, ValueError):
        return False
    return MIN_RSA_BITS <= bits <= MAX_RSA_BITS and len(exponent) <= MAX_EXPONENT


def _read_key_set(body: bytes) -> tuple[PublicKey, ...]:
    if len(body) > MAX_KEY_SET:
        raise KeysError(f"key set has more than {MAX_KEY_SET} bytes")
    parsed = strict_json.read(body)
    if parsed.duplicates:
        raise KeysError("key set has a key twice in one object")
    # An empty set is an answer: this issuer has withdrawn all its keys.
    return keys_of(parsed.value)


def _safe_address(url: str) -> str:
    try:
        address = normalised(url)
    except ResourceError as error:
        raise KeysError(f"key set has a wrong address: {error}") from error
    host = urlsplit(address).hostname or ""
    if not address.startswith("https:") and not _is_this_machine(host):
        raise KeysError(f"key set is not fetched without https: `{address}`")
    return address


def _is_this_machine(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
