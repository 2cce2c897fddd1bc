"""Opaque tokens, by digest. The tokens themselves are nowhere: a stolen table opens nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import orjson

from limen.canonical import canonical
from limen.store.database import Connection, Row
from limen.store.schema import utc_text
from limen.tokens.opaque import StoredToken

_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class TokenTable:
    """Read and write tokens on one connection. Commits nothing by itself."""

    connection: Connection

    def add(self, token: StoredToken) -> None:
        """Add a token.

        Raises:
            TakenError: it is there already.
            ValueError: its digest is none.
        """
        # INVARIANT: only digests are stored. Whoever hands over the token itself is stopped here,
        # and the message does not repeat it.
        if not _DIGEST.fullmatch(token.digest):
            raise ValueError("token digest is not a SHA-256 in hex")
        self.connection.run(
            "INSERT INTO token (digest, caller, scopes, roles, resource, label, created_at,"
            " expires_at, revoked_at) VALUES (:digest, :caller, :scopes, :roles, :resource,"
            " :label, :created_at, :expires_at, :revoked_at)",
            digest=token.digest,
            caller=token.caller,
            scopes=_names(token.scopes),
            roles=_names(token.roles),
            resource=token.resource,
            label=token.label,
            created_at=utc_text(token.created_at),
            expires_at=utc_text(token.expires_at),
            revoked_at=None if token.revoked_at is None else utc_text(token.revoked_at),
        )

    def find(self, digest: str) -> StoredToken | None:
        """Return a token, whatever has become of it, or None."""
        row = self.connection.one("SELECT * FROM token WHERE digest = :digest", digest=digest)
        return None if row is None else _token(row)

    def list(self, limit: int, caller: str | None = None) -> Sequence[StoredToken]:
        """Return up to `limit` tokens, those made last before the others."""
        rows = self.connection.all(
            "SELECT * FROM token WHERE :caller IS NULL OR caller = :caller"
            " ORDER BY created_at DESC, digest LIMIT :limit",
            caller=caller,
            limit=limit,
        )
        return [_token(row) for row in rows]

    def revoke(self, digest: str, at: datetime) -> bool:
        """Revoke a token. False when there is none, or it was revoked before.

        Once that is durable, `BearerTokens.forget` makes it hold in a process at once.
        """
        changed = self.connection.run(
            "UPDATE token SET revoked_at = :at WHERE digest = :digest AND revoked_at IS NULL",
            digest=digest,
            at=utc_text(at),
        )
        return changed == 1

    def revoke_all_of(self, caller: str, at: datetime) -> int:
        """Revoke every token of a caller, and return how many had not been revoked before."""
        return self.connection.run(
            "UPDATE token SET revoked_at = :at WHERE caller = :caller AND revoked_at IS NULL",
            caller=caller,
            at=utc_text(at),
        )

    def purge_expired(self, at: datetime) -> int:
        """Delete the tokens that had expired by then, and return how many they were."""
        return self.connection.run("DELETE FROM token WHERE expires_at <= :at", at=utc_text(at))


def _names(names: frozenset[str]) -> str:
    return canonical(sorted(names)).decode()


def _token(row: Row) -> StoredToken:
    revoked_at = row["revoked_at"]
    return StoredToken(
        digest=row["digest"],
        caller=row["caller"],
        scopes=frozenset(orjson.loads(row["scopes"])),
        roles=frozenset(orjson.loads(row["roles"])),
        resource=row["resource"],
        label=row["label"],
        created_at=datetime.fromisoformat(row["created_at"]),
        expires_at=datetime.fromisoformat(row["expires_at"]),
        revoked_at=None if revoked_at is None else datetime.fromisoformat(revoked_at),
    )
