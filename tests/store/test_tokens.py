"""Opaque tokens at rest: digests only, and what revoking, listing and purging do to them."""

from __future__ import annotations

import dataclasses
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from houses import NOW, StillClock, run
from limen.errors import StoreError, TakenError
from limen.store.database import Connection, Database, Reader
from limen.store.tokens import TokenTable
from limen.tokens.opaque import OpaqueReader, StoredToken, digest_of, new_token
from limen.tokens.reader import BearerTokens, Token, Unreadable

RESOURCE = "https://h/mcp"
CREDENTIAL = new_token(bytes)
TOKEN = StoredToken(
    digest=digest_of(CREDENTIAL),
    caller="agent-alpha",
    scopes=frozenset({"desk:write", "desk:read"}),
    roles=frozenset({"staff", "night shift"}),
    resource=RESOURCE,
    label="laptop ü",
    created_at=NOW,
    expires_at=NOW + timedelta(hours=1),
)


def numbered(number: int, **changed: Any) -> StoredToken:
    return dataclasses.replace(TOKEN, digest=digest_of(str(number)), **changed)


@pytest.fixture
def database(tmp_path: Path) -> Database:
    made = Database(tmp_path / "limen.db")
    made.create()
    return made


def add(database: Database, *tokens: StoredToken) -> None:
    with database.writing() as connection:
        for token in tokens:
            TokenTable(connection).add(token)


def find(database: Database, digest: str) -> StoredToken | None:
    with database.reading() as connection:
        return TokenTable(connection).find(digest)


def test_a_token_is_found_as_it_was_added(database: Database) -> None:
    revoked = numbered(1, revoked_at=NOW, scopes=frozenset(), roles=frozenset())
    add(database, TOKEN, revoked)
    assert find(database, TOKEN.digest) == TOKEN
    assert find(database, revoked.digest) == revoked
    assert find(database, digest_of("another")) is None


def test_the_file_holds_the_digest_and_never_the_token(database: Database) -> None:
    with database.writing() as connection, pytest.raises(ValueError, match="SHA-256") as raised:
        TokenTable(connection).add(dataclasses.replace(TOKEN, digest=CREDENTIAL))
    assert CREDENTIAL not in str(raised.value)
    add(database, TOKEN)
    kept = b"".join(path.read_bytes() for path in database.path.parent.iterdir())
    assert TOKEN.digest.encode() in kept
    assert CREDENTIAL.encode() not in kept


def test_a_digest_is_there_once(database: Database) -> None:
    add(database, TOKEN)
    with pytest.raises(TakenError):
        add(database, dataclasses.replace(TOKEN, caller="thief"))
    assert find(database, TOKEN.digest) == TOKEN


def test_tokens_are_listed_newest_first_and_by_caller(database: Database) -> None:
    tokens = [
        numbered(number, created_at=NOW + timedelta(minutes=number), caller=caller)
        for number, caller in enumerate(["a", "b", "a"])
    ]
    add(database, *tokens)
    with database.reading() as connection:
        table = TokenTable(connection)
        assert table.list(9) == tokens[::-1]
        assert table.list(2) == tokens[:0:-1]
        assert table.list(9, "a") == [tokens[2], tokens[0]]
        assert table.list(9, "nobody") == []


def test_a_token_is_revoked_once(database: Database) -> None:
    add(database, TOKEN, numbered(1))
    with database.writing() as connection:
        table = TokenTable(connection)
        assert table.revoke(TOKEN.digest, NOW)
        assert not table.revoke(TOKEN.digest, NOW + timedelta(minutes=1))
        assert not table.revoke(digest_of("another"), NOW)
    assert find(database, TOKEN.digest) == dataclasses.replace(TOKEN, revoked_at=NOW)
    assert find(database, numbered(1).digest) == numbered(1)


def test_every_token_of_a_caller_is_revoked_at_once(database: Database) -> None:
    add(database, TOKEN, numbered(1), numbered(2, caller="other"), numbered(3, revoked_at=NOW))
    later = NOW + timedelta(minutes=1)
    with database.writing() as connection:
        assert TokenTable(connection).revoke_all_of("agent-alpha", later) == 2
    with database.reading() as connection:
        revoked = {token.digest: token.revoked_at for token in TokenTable(connection).list(9)}
    assert revoked == {
        TOKEN.digest: later,
        numbered(1).digest: later,
        numbered(2).digest: None,
        numbered(3).digest: NOW,
    }


def test_purging_deletes_what_has_expired_and_nothing_else(database: Database) -> None:
    add(database, TOKEN, numbered(1, expires_at=NOW), numbered(2, revoked_at=NOW))
    with database.writing() as connection:
        assert TokenTable(connection).purge_expired(NOW) == 1
    with database.reading() as connection:
        assert {token.digest for token in TokenTable(connection).list(9)} == {
            TOKEN.digest,
            numbered(2).digest,
        }


def test_a_token_is_not_written_but_by_the_writer(database: Database) -> None:
    with closing(database.connect_to_read()) as connection:
        assert isinstance(connection, Connection)
        with pytest.raises(StoreError, match="readonly"):
            TokenTable(connection).add(TOKEN)
    assert find(database, TOKEN.digest) is None


def test_a_token_revoked_elsewhere_works_here_for_a_minute_at_most_and_here_not_at_all(
    database: Database,
) -> None:
    add(database, TOKEN)
    clock, reader = StillClock(), Reader(database)

    def look_up(digest: str) -> StoredToken | None:
        return TokenTable(reader.connection()).find(digest)

    async def revoked() -> None:
        here, elsewhere = (
            BearerTokens(RESOURCE, [OpaqueReader(look_up, clock)], clock) for _ in range(2)
        )
        for tokens in (here, elsewhere):
            assert isinstance(await tokens.token_of(CREDENTIAL), Token)
        with database.writing() as connection:
            TokenTable(connection).revoke(TOKEN.digest, NOW)
        here.forget(digest=TOKEN.digest)
        assert await here.token_of(CREDENTIAL) == Unreadable("revoked")
        clock.move(seconds=59.9)
        assert isinstance(await elsewhere.token_of(CREDENTIAL), Token)
        clock.move(seconds=0.1)
        assert await elsewhere.token_of(CREDENTIAL) == Unreadable("revoked")

    run(revoked())
    reader.close()


def test_a_token_that_is_not_remembered_is_refused_when_the_store_is_gone(
    database: Database,
) -> None:
    add(database, TOKEN)
    clock, reader = StillClock(), Reader(database)

    def look_up(digest: str) -> StoredToken | None:
        return TokenTable(reader.connection()).find(digest)

    async def gone() -> None:
        tokens = BearerTokens(RESOURCE, [OpaqueReader(look_up, clock)], clock)
        assert isinstance(await tokens.token_of(CREDENTIAL), Token)
        database.path.rename(database.path.with_suffix(".moved"))
        clock.move(seconds=60)
        with pytest.raises(StoreError, match="is gone"):
            await tokens.token_of(CREDENTIAL)
        assert tokens.cached(CREDENTIAL) is None

    run(gone())
    reader.close()
