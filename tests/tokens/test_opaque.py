from __future__ import annotations

import dataclasses
import hashlib
import re
import secrets
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from houses import NOW, StillClock, run
from limen.errors import StoreError
from limen.tokens.opaque import OpaqueReader, StoredToken, digest_of, new_token
from limen.tokens.reader import Token, Unreadable

TOKEN = "limen_" + "A" * 43
STORED = StoredToken(
    digest=hashlib.sha256(TOKEN.encode()).hexdigest(),
    caller="agent-alpha",
    scopes=frozenset({"desk:read"}),
    roles=frozenset({"staff"}),
    resource="https://h/mcp",
    label="laptop",
    created_at=NOW,
    expires_at=NOW + timedelta(hours=1),
)


def reader_of(*stored: StoredToken, clock: StillClock | None = None) -> OpaqueReader:
    return OpaqueReader({token.digest: token for token in stored}.get, clock or StillClock())


def test_a_token_that_is_stored_says_what_is_stored_of_it() -> None:
    assert run(reader_of(STORED).read(TOKEN)) == Token(
        subject="agent-alpha",
        scopes=frozenset({"desk:read"}),
        roles=frozenset({"staff"}),
        audience=("https://h/mcp",),
        is_list=False,
        issuer="limen",
        expires_at=(NOW + timedelta(hours=1)).timestamp(),
        client="agent-alpha",
        lists_allowed=False,
    )


def test_a_token_is_looked_up_by_its_digest_and_never_by_itself() -> None:
    asked: list[str] = []
    run(OpaqueReader(asked.append, StillClock()).read(TOKEN))  # type: ignore[arg-type]
    assert asked == [STORED.digest] == [digest_of(TOKEN)]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"revoked_at": NOW}, "revoked"),
        ({"revoked_at": NOW + timedelta(hours=1)}, "revoked"),
        ({"expires_at": NOW}, "expired"),
        ({"expires_at": NOW - timedelta(days=1)}, "expired"),
    ],
)
def test_a_token_that_was_revoked_or_has_expired_cannot_be_used(
    changed: dict[str, object], reason: str
) -> None:
    stored = dataclasses.replace(STORED, **changed)
    assert run(reader_of(stored).read(TOKEN)) == Unreadable(reason)


def test_an_unknown_token_is_unreadable_even_if_the_store_returns_another() -> None:
    other = TOKEN[:-1] + "B"
    assert run(reader_of(STORED).read(other)) == Unreadable("token is not known")
    confused = OpaqueReader(lambda digest: STORED, StillClock())
    assert run(confused.read(other)) == Unreadable("token is not known")


@pytest.mark.parametrize("credential", ["limen_", TOKEN[:-1], TOKEN + "A", TOKEN[:-1] + "é"])
def test_text_that_is_no_token_of_ours_is_never_looked_up(credential: str) -> None:
    asked: list[str] = []
    reader = OpaqueReader(asked.append, StillClock())  # type: ignore[arg-type]
    assert isinstance(run(reader.read(credential)), Unreadable)
    assert asked == []


def test_when_the_store_fails_nobody_says_that_a_token_is_good() -> None:
    def fails(digest: str) -> StoredToken | None:
        raise StoreError("the disk is gone")

    with pytest.raises(StoreError, match="the disk is gone"):
        run(OpaqueReader(fails, StillClock()).read(TOKEN))


def test_a_new_token_has_256_random_bits_and_a_prefix() -> None:
    assert new_token(bytes) == TOKEN
    made = {new_token(secrets.token_bytes) for _ in range(100)}
    assert len(made) == 100
    assert all(re.fullmatch(r"limen_[A-Za-z0-9_-]{43}", token) for token in made)
    with pytest.raises(ValueError, match="has 3 bytes, not 32"):
        new_token(lambda count: b"abc")


@given(st.text())
def test_any_text_has_a_digest_and_is_read_without_an_error(credential: str) -> None:
    assert re.fullmatch(r"[0-9a-f]{64}", digest_of(credential))
    assert isinstance(run(reader_of(STORED).read("limen_" + credential)), Unreadable)
