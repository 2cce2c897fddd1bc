"""A store that fails refuses every call, tells its owner, and serves again once it heals."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from houses import World, open_desk
from limen.gate import UNRECORDED
from limen.store.audit import connection_of
from limen.store.verify import verify
from promised import promise

Heal = Callable[[], None]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with open_desk(tmp_path) as opened:
        yield opened


def set_on_the_writer(world: World, pragma: str) -> None:
    """Change the writer's own connection, which is dropped with its first failure."""

    def change(transaction: object) -> None:
        connection_of(transaction).run(pragma)  # type: ignore[arg-type]

    world.house.log.writer.work_now(change)


def full(world: World) -> Heal:
    set_on_the_writer(world, "PRAGMA max_page_count = 1")
    return lambda: None


def read_only(world: World) -> Heal:
    set_on_the_writer(world, "PRAGMA query_only = ON")
    return lambda: None


def locked(world: World) -> Heal:
    other = sqlite3.connect(world.house.store_path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    return other.close


def gone(world: World) -> Heal:
    path = world.house.store_path
    away = path.with_name("away.db")
    path.rename(away)

    def heal() -> None:
        away.rename(path)

    return heal


def corrupt(world: World) -> Heal:
    path = world.house.store_path
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    sound = path.read_bytes()
    with path.open("r+b") as file:
        file.write(b"no database at all" * 500)

    def heal() -> None:
        with path.open("r+b") as file:
            file.write(sound)

    return heal


@promise("store-heals")
@pytest.mark.parametrize(
    ("fail", "said"),
    [
        (full, "database or disk is full"),
        (read_only, "attempt to write a readonly database"),
        (locked, "database is locked"),
        (gone, "is gone"),
        (corrupt, "not a database|malformed"),
    ],
)
def test_a_store_that_fails_refuses_and_heals(
    world: World, fail: Callable[[World], Heal], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert world.said("docs_update", path="drafts/before.txt", content="x")["ok"] is True
    before = len(world.entries())
    heal = fail(world)
    with caplog.at_level(logging.ERROR):
        assert world.ask("docs_update", path="drafts/lost.txt", content="x" * 16_000) == UNRECORDED
    assert world.ask("docs_read", path="public/handbook.txt") == UNRECORDED or fail in (
        full,
        read_only,
    )
    heal()
    assert any(
        word in record.getMessage() for word in said.split("|") for record in caplog.records
    ), caplog.text
    assert "\n" not in caplog.records[0].getMessage()
    assert world.said("docs_update", path="drafts/after.txt", content="x")["ok"] is True
    assert world.house.tables().read_document("drafts/lost.txt") is None
    lost = [entry for entry in world.entries()[before:] if entry["tool"] == "docs_update"]
    assert len(lost) == 1
    report = verify(world.house.store_path, expected_vkey=world.house.signer.vkey)
    assert report.finding is None
