from __future__ import annotations

import asyncio
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from houses import run
from limen.errors import AuditError
from limen.ports import Transaction
from limen.store.audit import connection_of
from limen.store.database import BUSY_TIMEOUT_MS
from limen.store.verify import verify
from limen.store.writer import CLOSE_WITHIN_S, MAX_BATCH, MAX_WAITING
from trails import Hold, Trail, open_trail, row, small_disk

CHILD = Path(__file__).with_name("writing_child.py")

Heal = Callable[[], object]


@pytest.fixture
def trail(tmp_path: Path) -> Iterator[Trail]:
    with open_trail(tmp_path) as opened:
        yield opened


def adds(ticket: str, subject: str = "subject") -> Callable[[Transaction], str]:
    """Work that writes to the store beside its row."""

    def work(transaction: Transaction) -> str:
        connection_of(transaction).run(
            "INSERT INTO ticket VALUES (:id, :subject, 'open', NULL, NULL)",
            id=ticket,
            subject=subject,
        )
        return ticket

    return work


def fails(error: BaseException) -> Callable[[Transaction], Any]:
    def work(transaction: Transaction) -> None:
        adds("undone")(transaction)
        raise error

    return work


def tickets(trail: Trail) -> list[str]:
    return [found for (found,) in trail.look("SELECT id FROM ticket ORDER BY id")]


async def caught(wait: Any) -> Any:
    """Return what a wait came to. An exit that came out of a task would end the test itself."""
    try:
        return await wait
    except BaseException as error:  # noqa: BLE001 - all of them are what it came to
        return error


def write(trail: Trail, row_id: str, **fields: Any) -> None:
    async def writes() -> None:
        await trail.log.write(row(row_id, **fields))

    run(writes())


def test_writes_that_gather_are_committed_together_and_keep_their_order(trail: Trail) -> None:
    statements: list[str] = []
    trail.on_the_writer(lambda connection: connection.driver.set_trace_callback(statements.append))
    statements.clear()
    ids = [f"c{number}" for number in range(2 * MAX_BATCH + 10)]
    ended = run(trail.in_one_batch(*(lambda i=i: trail.log.write(row(i)) for i in ids)))
    trail.on_the_writer(lambda connection: connection.driver.set_trace_callback(None))
    assert set(ended) == {None}
    assert trail.ids() == ids
    # That of the work that kept the writer busy; two full batches; the ten that were left.
    assert statements.count("COMMIT") == 4
    trail.assert_sound(len(ids))


def test_a_wait_ends_only_when_its_own_row_is_durable(trail: Trail) -> None:
    seen: list[bool] = []

    async def writes(row_id: str) -> None:
        await trail.log.write(row(row_id))
        seen.append(bool(trail.look("SELECT 1 FROM audit_entry WHERE id = ?", row_id)))

    async def all_at_once() -> None:
        await asyncio.gather(*(writes(f"c{number}") for number in range(200)))

    run(all_at_once())
    assert seen == [True] * 200


def test_a_commit_of_the_writer_reaches_the_disk(trail: Trail) -> None:
    pragmas = ("PRAGMA synchronous", "PRAGMA journal_mode")
    found = trail.on_the_writer(lambda connection: [connection.one(name)[0] for name in pragmas])
    full = 2
    assert found == [full, "wal"]


def test_work_and_its_row_are_durable_together(trail: Trail) -> None:
    async def writes() -> None:
        given = await trail.log.write_with(adds("t1"), lambda made: row(f"row of {made}"))
        assert given == "t1"
        assert (tickets(trail), trail.ids()) == (["t1"], ["row of t1"])

    run(writes())
    assert trail.log.write_with_now(adds("t2"), lambda _: None) == "t2"
    assert (tickets(trail), trail.ids()) == (["t1", "t2"], ["row of t1"])


@pytest.mark.parametrize(
    "error", [LookupError("nothing there"), KeyboardInterrupt(), SystemExit(), GeneratorExit()]
)
def test_work_that_raises_leaves_nothing_and_its_neighbours_stay(
    trail: Trail, error: BaseException
) -> None:
    log = trail.log

    async def writes() -> list[Any]:
        return await trail.in_one_batch(
            lambda: log.write(row("before")),
            lambda: log.write_with(adds("t1"), lambda _: row("first")),
            lambda: caught(log.write_with(fails(error), lambda _: row("undone"))),
            lambda: log.write_with(adds("t2"), lambda _: row("second")),
            lambda: log.write(row("after")),
        )

    assert run(writes()) == [None, "t1", error, "t2", None]
    assert trail.ids() == ["before", "first", "second", "after"]
    assert tickets(trail) == ["t1", "t2"]
    trail.assert_sound(4)


def test_work_that_raises_stop_iteration_is_heard_of(trail: Trail) -> None:
    async def writes() -> list[Any]:
        return await trail.in_one_batch(
            lambda: trail.log.write_with(lambda _: next(iter(())), lambda _: row("undone")),
            lambda: trail.log.write(row("after")),
        )

    error, after = run(writes())
    assert isinstance(error, RuntimeError)
    assert "StopIteration" in str(error)
    assert after is None
    assert trail.ids() == ["after"]


def test_work_whose_row_cannot_be_made_leaves_nothing(trail: Trail) -> None:
    def no_row(_: object) -> Any:
        raise LookupError("no row")

    async def writes() -> None:
        await trail.log.write_with(adds("undone"), no_row)

    with pytest.raises(LookupError, match="no row"):
        run(writes())
    assert (tickets(trail), trail.ids()) == ([], [])


def test_rows_that_work_added_itself_are_undone_with_it(trail: Trail) -> None:
    def work(transaction: Any) -> None:
        transaction.append(row("undone"))
        raise LookupError("nothing there")

    async def writes() -> list[Any]:
        return await trail.in_one_batch(
            lambda: trail.log.write_with(work, lambda _: row("undone too")),
            lambda: trail.log.write(row("after")),
        )

    assert [type(ended) for ended in run(writes())] == [LookupError, type(None)]
    assert trail.ids() == ["after"]
    trail.assert_sound(1)


@pytest.mark.parametrize(
    "fields", [{"client": "half \ud800"}, {"duration_us": 2**70}, {"kept": {"of": object()}}]
)
def test_a_row_that_cannot_be_spelled_fails_alone(trail: Trail, fields: dict[str, Any]) -> None:
    async def writes() -> list[Any]:
        return await trail.in_one_batch(
            lambda: trail.log.write(row("before")),
            lambda: trail.log.write(row("undone", **fields)),
            lambda: trail.log.write_with(adds("undone"), lambda _: row("undone", **fields)),
            lambda: trail.log.write(row("after")),
        )

    before, alone, with_work, after = run(writes())
    assert (before, after) == (None, None)
    for error in (alone, with_work):
        assert isinstance(error, AuditError)
        assert "row has no JSON form: " in str(error)
        assert "\n" not in str(error)
    assert (tickets(trail), trail.ids()) == ([], ["before", "after"])
    write(trail, "later")
    trail.assert_sound(3)


def test_what_is_rehearsed_is_undone_and_the_rest_of_the_work_stays(trail: Trail) -> None:
    def work(transaction: Any) -> str:
        adds("t1")(transaction)

        def rehearsed() -> str:
            transaction.append(row("undone"))
            return adds("undone")(transaction)

        said = transaction.rehearse(rehearsed)
        with pytest.raises(LookupError, match="nothing there"):
            transaction.rehearse(lambda: fails(LookupError("nothing there"))(transaction))
        adds("t2")(transaction)
        return str(said)

    assert trail.log.write_with_now(work, lambda _: row("c1")) == "undone"
    assert (tickets(trail), trail.ids()) == (["t1", "t2"], ["c1"])
    trail.assert_sound(1)


# What a store can suffer while it runs. Each returns what heals it.


def full_by_pages(trail: Trail) -> Heal:
    trail.on_the_writer(lambda connection: connection.run("PRAGMA max_page_count = 1"))
    return lambda: None  # The connection is dropped with its first failure.


def full_by_limit(trail: Trail) -> Heal:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = max(file.stat().st_size for file in trail.path.parent.iterdir())
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def locked(trail: Trail) -> Heal:
    other = sqlite3.connect(trail.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    return other.close


def read_only(trail: Trail) -> Heal:
    trail.on_the_writer(lambda connection: connection.run("PRAGMA query_only = ON"))
    return lambda: None


def corrupt(trail: Trail) -> Heal:
    with closing(sqlite3.connect(trail.path, isolation_level=None)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    sound = trail.path.read_bytes()
    with trail.path.open("r+b") as file:
        file.write(b"no database at all" * (len(sound) // 18))

    def heal() -> None:
        with trail.path.open("r+b") as file:
            file.write(sound)

    return heal


def moved_away(trail: Trail) -> Heal:
    away = trail.path.rename(trail.path.with_name("away.db"))
    return lambda: away.rename(trail.path)


def replaced_by_no_store(trail: Trail) -> Heal:
    away = trail.path.rename(trail.path.with_name("away.db"))
    trail.path.write_bytes(b"no database at all" * 500)
    return lambda: away.rename(trail.path)


def replaced_by_empty_file(trail: Trail) -> Heal:
    away = trail.path.rename(trail.path.with_name("away.db"))
    trail.path.touch()
    return lambda: away.rename(trail.path)


def head_lost(trail: Trail) -> Heal:
    with closing(sqlite3.connect(trail.path)) as other:
        head = other.execute("SELECT * FROM audit_head").fetchone()
        other.execute("DELETE FROM audit_head")
        other.commit()

    def heal() -> None:
        with closing(sqlite3.connect(trail.path)) as other:
            other.execute("INSERT INTO audit_head VALUES (?, ?, ?, ?)", head)
            other.commit()

    return heal


@pytest.mark.parametrize(
    ("fail", "said"),
    [
        (full_by_pages, "database or disk is full"),
        (full_by_limit, "disk I/O error"),
        (locked, "database is locked"),
        (read_only, "attempt to write a readonly database"),
        (corrupt, "file is not a database|database disk image is malformed"),
        (moved_away, "is gone: there is no such file"),
        (replaced_by_no_store, "file is not a database"),
        (replaced_by_empty_file, "no such table: audit_head"),
        (head_lost, "UNIQUE constraint failed: audit_entry.seq"),
    ],
)
def test_a_store_that_fails_fails_everyone_who_waits_and_heals_without_a_restart(
    trail: Trail, fail: Callable[[Trail], Heal], said: str
) -> None:
    for number in range(5):
        write(trail, f"before-{number}")
    log = trail.log
    heal = fail(trail)
    log.count("tools/list", "local")
    big = "x" * 200_000

    async def writes() -> list[Any]:
        waits = [log.write(row(f"lost-{number}", private=big)) for number in range(5)]
        works = [log.write_with(adds(f"lost-{n}", big), lambda _: row("lost")) for n in range(5)]
        return await asyncio.gather(*waits, *works, return_exceptions=True)

    try:
        ended = run(writes())
    finally:
        heal()
    for error in ended:
        assert isinstance(error, AuditError)
        assert str(error).startswith("cannot write the audit trail: ")
        assert any(words in str(error) for words in said.split("|")), error
        assert "\n" not in str(error)
        assert big not in str(error)
        assert error.__cause__ is not None
    assert len({id(error) for error in ended}) == len(ended)
    write(trail, "after")
    assert trail.ids() == [*(f"before-{number}" for number in range(5)), "after"]
    assert tickets(trail) == []
    assert trail.look("SELECT requests FROM audit_count") == [(1,)]
    trail.assert_sound(6)
    log.close()
    trail.assert_sound(6)
    assert trail.look("SELECT requests FROM audit_count") == [(1,)]


def test_a_disk_that_is_full_for_a_while_loses_nothing_that_was_written(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "1m"), open_trail(tmp_path / "disk") as trail:
        write(trail, "before")
        ballast = trail.path.with_name("ballast")
        with suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        with pytest.raises(AuditError, match="database or disk is full"):
            write(trail, "lost", private="x" * 100_000)
        ballast.unlink()
        write(trail, "after", private="x" * 100_000)
        assert trail.ids() == ["before", "after"]
        trail.assert_sound(2)
        trail.log.close()


def test_a_disk_that_cannot_be_written_for_a_while_is_written_to_once_it_can(
    tmp_path: Path,
) -> None:
    with small_disk(tmp_path / "disk", "1m") as change, open_trail(tmp_path / "disk") as trail:
        change("ro")
        with pytest.raises(AuditError, match="unable to open database file"):
            write(trail, "lost")
        change("rw")
        write(trail, "after")
        assert trail.ids() == ["after"]
        trail.assert_sound(1)
        trail.log.close()


def test_work_that_goes_on_after_the_store_has_failed_leaves_nothing(trail: Trail) -> None:
    def work(transaction: Transaction) -> None:
        connection = connection_of(transaction)
        connection.run("PRAGMA max_page_count = 1")
        with suppress(Exception):
            # One statement without a journal of its own: SQLite ends the transaction by itself.
            adds("lost", "x" * 500_000)(transaction)
        with suppress(Exception):
            adds("durable without a row")(transaction)

    async def writes() -> list[Any]:
        return await trail.in_one_batch(
            lambda: trail.log.write_with(work, lambda _: row("lost")),
            lambda: trail.log.write(row("neighbour")),
        )

    for error in run(writes()):
        assert isinstance(error, AuditError)
        assert "database or disk is full" in str(error)
    assert (tickets(trail), trail.ids()) == ([], [])
    write(trail, "after")
    trail.assert_sound(1)


def copy_of(trail: Trail) -> Path:
    made = trail.path.with_name("backup.db")
    with closing(sqlite3.connect(trail.path)) as connection:
        connection.execute("VACUUM INTO ?", (str(made),))
    return made


@pytest.mark.parametrize("gap", [False, True])
def test_a_backup_put_in_the_place_of_the_store_is_written_on_and_not_spoilt_by_the_old_log(
    trail: Trail, gap: bool
) -> None:
    async def many(name: str, count: int) -> None:
        await asyncio.gather(
            *(trail.log.write(row(f"{name}-{n}", private="x" * 400)) for n in range(count))
        )

    # The log has been begun anew at least once, so that it does not hold all of the store.
    run(many("kept", 4_000))
    backup = copy_of(trail)
    run(many("lost", 4_500))
    assert trail.path.with_name("limen.db-wal").stat().st_size > 0
    if gap:
        trail.path.unlink()
        with pytest.raises(AuditError, match="is gone"):
            write(trail, "lost")
    os.replace(backup, trail.path)
    write(trail, "after")
    trail.log.close()
    assert trail.ids() == [*(f"kept-{number}" for number in range(4_000)), "after"]
    trail.assert_sound(4_001)


def test_two_writers_in_one_process_leave_one_log_without_gaps(
    trail: Trail, tmp_path: Path
) -> None:
    async def many(one: Trail, name: str) -> None:
        await asyncio.gather(*(one.log.write(row(f"{name}-{number}")) for number in range(300)))

    async def both(other: Trail) -> None:
        await asyncio.gather(many(trail, "a"), many(other, "b"))

    with open_trail(tmp_path) as other:
        run(both(other))
    seqs = [seq for (seq,) in trail.look("SELECT seq FROM audit_entry ORDER BY seq")]
    assert seqs == list(range(600))
    trail.assert_sound(600)


def child(folder: Path, name: str, lanes: int, rows: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(CHILD), str(folder), name, str(lanes), str(rows)]
    tests = str(CHILD.parent.parent)
    path = os.pathsep.join([tests, *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path})


def test_two_processes_that_make_and_write_one_store_leave_one_log_without_gaps(
    tmp_path: Path,
) -> None:
    children = [child(tmp_path, name, lanes=8, rows=40) for name in ("a", "b")]
    said = [writing.communicate(timeout=20)[0].split() for writing in children]
    assert [writing.returncode for writing in children] == [0, 0]
    assert [len(ids) for ids in said] == [320, 320]
    with open_trail(tmp_path) as trail:
        assert sorted(trail.ids()) == sorted(i.decode() for ids in said for i in ids)
        seqs = [seq for (seq,) in trail.look("SELECT seq FROM audit_entry ORDER BY seq")]
        assert seqs == list(range(640))
        trail.assert_sound(640)


def test_a_kill_in_the_middle_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    acknowledged: list[str] = []
    for kill in range(5):
        writing = child(tmp_path, f"kill-{kill}", lanes=32, rows=0)
        assert writing.stdout is not None
        heard = b""
        # Not before it is in full swing, and at another point of its work each time.
        while heard.count(b"\n") < 50 + 97 * kill:
            chunk = os.read(writing.stdout.fileno(), 65_536)
            assert chunk, "it ended by itself"
            heard += chunk
        writing.send_signal(signal.SIGKILL)
        heard += writing.stdout.read()
        writing.stdout.close()
        assert writing.wait(20) == -signal.SIGKILL
        acknowledged += heard.decode().split()
        vkey = (tmp_path / "audit.key.pub").read_text().strip()
        assert verify(tmp_path / "limen.db", expected_vkey=vkey).finding is None
    with open_trail(tmp_path) as trail:
        durable = Counter(trail.ids())
    assert set(durable.values()) == {1}
    assert [row_id for row_id in acknowledged if row_id not in durable] == []
    assert len(acknowledged) >= 5 * 50


def test_a_cancelled_wait_changes_nothing(trail: Trail) -> None:
    async def writes() -> None:
        hold = Hold()
        held = trail.log.writer.work(hold)
        waits = [trail.log.write(row("c1")), trail.log.write_with(adds("t1"), lambda _: row("c2"))]
        neighbour = trail.log.write(row("c3"))
        for wait in waits:
            wait.cancel()  # type: ignore[attr-defined]
        hold.let_go.set()
        await held
        await neighbour
        assert [wait.cancelled() for wait in waits] == [True, True]  # type: ignore[attr-defined]

    run(writes())
    assert (trail.ids(), tickets(trail)) == (["c1", "c2", "c3"], ["t1"])


def test_a_loop_that_is_closed_meanwhile_does_not_end_the_writer(trail: Trail) -> None:
    hold = Hold()

    async def leaves() -> None:
        trail.log.writer.work(hold)
        trail.log.write(row("c1"))

    asyncio.run(leaves())
    hold.let_go.set()
    write(trail, "c2")
    assert trail.ids() == ["c1", "c2"]


def test_closing_commits_all_that_was_handed_over_and_takes_no_more(trail: Trail) -> None:
    async def writes() -> None:
        hold = Hold()
        trail.log.writer.work(hold)
        waits = [trail.log.write(row(f"c{number}")) for number in range(3 * MAX_BATCH)]
        closing_thread = threading.Thread(target=trail.log.close)
        closing_thread.start()
        hold.let_go.set()
        await asyncio.gather(*waits)
        await asyncio.to_thread(closing_thread.join, 20)
        with pytest.raises(AuditError, match="cannot write the audit trail: it is closed"):
            trail.log.write(row("late"))

    run(writes())
    with pytest.raises(AuditError, match="it is closed"):
        trail.log.write_with_now(adds("late"), lambda _: None)
    trail.log.close()
    assert not trail.path.with_name("limen.db-wal").exists()
    assert trail.ids() == [f"c{number}" for number in range(3 * MAX_BATCH)]
    trail.assert_sound(3 * MAX_BATCH)


def test_a_write_that_finds_too_many_waiting_is_refused(trail: Trail) -> None:
    async def writes() -> None:
        hold = Hold()
        trail.log.writer.work(hold)
        await asyncio.to_thread(hold.begun.wait, 20)
        waits = [trail.log.write(row(f"c{number}")) for number in range(MAX_WAITING)]
        with pytest.raises(AuditError, match=f"{MAX_WAITING} writes wait already"):
            trail.log.write(row("one too many"))
        hold.let_go.set()
        await asyncio.gather(*waits)
        await trail.log.write(row("after"))

    run(writes())
    assert trail.ids() == [*(f"c{number}" for number in range(MAX_WAITING)), "after"]


def test_closing_ends_in_time_when_the_store_is_locked(trail: Trail) -> None:
    write(trail, "before")
    heal = locked(trail)
    ended: list[Any] = []

    async def writes() -> None:
        waits = [trail.log.write(row(f"c{number}")) for number in range(MAX_BATCH + 1)]
        began = time.monotonic()
        await asyncio.to_thread(trail.log.close)
        ended.append(time.monotonic() - began)
        heal()
        ended.extend(await asyncio.gather(*waits, return_exceptions=True))

    run(writes())
    took, *errors = ended
    assert took < CLOSE_WITHIN_S + 1
    # Nobody is left waiting, and what was said of each row is so.
    durable = [f"c{number}" for number, error in enumerate(errors) if error is None]
    assert isinstance(errors[0], AuditError)
    assert trail.ids() == ["before", *durable]


def test_closing_ends_in_time_when_work_hangs_and_the_queue_is_full(trail: Trail) -> None:
    hold = Hold()

    async def writes() -> None:
        trail.log.writer.work(hold)
        await asyncio.to_thread(hold.begun.wait, 20)
        for number in range(MAX_WAITING):
            trail.log.write(row(f"c{number}"))

    asyncio.run(writes())
    began = time.monotonic()
    trail.log.close()
    assert time.monotonic() - began < CLOSE_WITHIN_S + 1
    hold.let_go.set()


def test_a_writer_that_wrote_nothing_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    with open_trail(tmp_path) as trail:
        write(trail, "c1")
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with closing(sqlite3.connect(trail.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        with open_trail(tmp_path):
            pass
        # It did not even wait for the other.
        assert time.monotonic() - began < BUSY_TIMEOUT_MS / 1_000
        other.execute("ROLLBACK")
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
