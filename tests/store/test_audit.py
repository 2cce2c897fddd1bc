from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from houses import NOW, run
from limen.errors import AuditError
from limen.store.audit import KEEP_EVERY, AuditReader, body_of, connection_of
from limen.store.database import Database
from limen.store.note import open_checkpoint
from limen.store.writer import MAX_BATCH
from limen.words import AuditRow
from trails import Trail, open_trail, row


@pytest.fixture
def trail(tmp_path: Path) -> Iterator[Trail]:
    with open_trail(tmp_path) as opened:
        yield opened


def write(trail: Trail, *rows: AuditRow) -> None:
    assert set(run(trail.in_one_batch(*(lambda r=r: trail.log.write(r) for r in rows)))) == {None}


def sizes(trail: Trail) -> list[int]:
    """Return the sizes of the kept checkpoints."""
    return [size for (size,) in trail.look("SELECT size FROM audit_checkpoint ORDER BY size")]


def test_the_body_of_a_row_is_canonical_and_holds_all_of_it_and_nothing_else() -> None:
    full = row(
        "c1",
        at=datetime(2026, 5, 4, 14, 0, 0, 7, timezone(timedelta(hours=2))),
        state="started",
        private="ü\n",
        arguments_digest="sha-256:aa",
        result_digest="sha-256:bb",
        policies=("b", "a"),
        approval="ap-1",
        duration_us=12,
        kept={"path": "public/a.txt", "a": 1},
    )
    body = body_of(full, 7)
    said = json.loads(body)
    spelled = json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert body == spelled.encode()
    expected = dataclasses.asdict(full)
    expected |= {"seq": 7, "at": "2026-05-04T12:00:00.000007+00:00", "policies": ["b", "a"]}
    assert said == expected
    assert set(said) == {field.name for field in dataclasses.fields(AuditRow)} | {"seq"}


def test_a_row_that_keeps_no_arguments_has_no_place_for_them() -> None:
    for kept in (None, {}):
        said = json.loads(body_of(row("c1", kept=kept), 0))
        assert not {"kept", "arguments"} & set(said)


def test_a_time_without_a_zone_is_no_time() -> None:
    with pytest.raises(ValueError, match="has no zone"):
        body_of(row("c1", at=datetime(2026, 5, 4, 12, 0)), 0)


def test_the_head_is_signed_and_covers_all_rows_after_each_commit(trail: Trail) -> None:
    reader = AuditReader(trail.database)
    assert (reader.size(), reader.head()) == (0, None)
    for number in range(1, 5):
        write(trail, row(f"c{number}"))
        note = reader.head()
        assert note is not None
        checkpoint = open_checkpoint(note, trail.signer.vkey)
        assert (checkpoint.size, reader.size()) == (number, number)
        trail.assert_sound(number)


def test_a_checkpoint_is_kept_every_thousand_rows_and_at_the_end(tmp_path: Path) -> None:
    with open_trail(tmp_path) as trail:
        write(trail, *(row(f"c{number}") for number in range(2 * KEEP_EVERY + 200)))
        kept = sizes(trail)
        # Each at the end of the first batch that reached the next thousand.
        assert [size // KEEP_EVERY for size in kept] == [1, 2]
        assert all(size % KEEP_EVERY < MAX_BATCH for size in kept)
    assert sizes(trail) == [*kept, 2 * KEEP_EVERY + 200]
    with open_trail(tmp_path) as trail:
        write(trail, row("next run"))
        assert sizes(trail) == [*kept, 2 * KEEP_EVERY + 200]
    assert sizes(trail) == [*kept, 2 * KEEP_EVERY + 200, 2 * KEEP_EVERY + 201]
    trail.assert_sound(2 * KEEP_EVERY + 201)


def test_the_log_goes_on_from_the_head_in_the_file_whoever_wrote_it(
    trail: Trail, tmp_path: Path
) -> None:
    write(trail, row("c0"))
    with open_trail(tmp_path) as other:
        write(other, row("c1"), row("c2"))
    write(trail, row("c3"))
    assert trail.ids() == ["c0", "c1", "c2", "c3"]
    trail.assert_sound(4)


def test_the_log_goes_on_from_a_store_that_was_put_back_with_as_many_other_rows(
    trail: Trail, tmp_path: Path
) -> None:
    # The same file as far as the system can tell, with another history of the same size.
    aside = tmp_path / "aside"
    aside.mkdir()
    (aside / "audit.key").write_bytes((tmp_path / "audit.key").read_bytes())
    (aside / "audit.key").chmod(0o600)
    with open_trail(aside) as other:
        write(other, row("other-0"))
    write(trail, row("c0"))
    columns = other.look("SELECT seq, id, state, body, leaf FROM audit_entry")[0]
    head = other.look("SELECT size, frontier, note FROM audit_head")[0]
    with Database(trail.path).writing() as connection:
        connection.run("DELETE FROM audit_entry")
        names = ("seq", "id", "state", "body", "leaf")
        connection.run(
            "INSERT INTO audit_entry VALUES (:seq, :id, :state, :body, :leaf)",
            **dict(zip(names, columns, strict=True)),
        )
        connection.run(
            "UPDATE audit_head SET size = :size, frontier = :frontier, note = :note",
            **dict(zip(("size", "frontier", "note"), head, strict=True)),
        )
    write(trail, row("c1"))
    assert trail.ids() == ["other-0", "c1"]
    trail.assert_sound(2)


def counts(trail: Trail) -> list[tuple[Any, ...]]:
    return trail.look("SELECT day, method, caller, requests FROM audit_count ORDER BY 1, 2, 3")


def test_requests_that_were_counted_are_durable_with_the_next_row(trail: Trail) -> None:
    for caller in ("alpha", "beta", "alpha"):
        trail.log.count("tools/list", caller)
    assert counts(trail) == []
    write(trail, row("c1"))
    expected = [("2026-12-01", "tools/list", "alpha", 2), ("2026-12-01", "tools/list", "beta", 1)]
    assert counts(trail) == expected
    write(trail, row("c2"))
    assert counts(trail) == expected
    assert AuditReader(trail.database).counts()[0] == {
        "day": "2026-12-01",
        "method": "tools/list",
        "caller": "alpha",
        "requests": 2,
    }


def test_requests_that_were_counted_are_durable_at_the_end_without_any_row(tmp_path: Path) -> None:
    for requests in (1, 2):
        with open_trail(tmp_path) as trail:
            trail.log.count("ping", "local")
        assert counts(trail) == [("2026-12-01", "ping", "local", requests)]
    assert trail.ids() == []


def test_requests_are_counted_on_the_day_in_utc_on_which_they_came(trail: Trail) -> None:
    trail.clock.at = datetime(2026, 12, 2, 0, 30, tzinfo=timezone(timedelta(hours=1)))
    trail.log.count("ping", "local")
    trail.clock.at = datetime(2026, 12, 2, 0, 0, tzinfo=UTC)
    trail.log.count("ping", "local")
    write(trail, row("c1"))
    assert counts(trail) == [("2026-12-01", "ping", "local", 1), ("2026-12-02", "ping", "local", 1)]


def test_counts_survive_a_batch_that_fails_and_are_not_doubled_by_the_next(trail: Trail) -> None:
    def fail(transaction: Any) -> None:
        trail.log.count("ping", "local")
        connection_of(transaction).run("PRAGMA query_only = ON")

    async def writes() -> list[Any]:
        return await trail.in_one_batch(
            lambda: trail.log.write_with(fail, lambda _: row("lost")),
            lambda: trail.log.write(row("lost too")),
        )

    assert [type(error).__name__ for error in run(writes())] == ["AuditError", "AuditError"]
    assert counts(trail) == []
    trail.log.count("ping", "local")
    write(trail, row("c1"))
    assert counts(trail) == [("2026-12-01", "ping", "local", 2)]
    trail.log.close()
    assert counts(trail) == [("2026-12-01", "ping", "local", 2)]


def test_counts_that_are_durable_are_not_written_again_after_a_failure(trail: Trail) -> None:
    async def alone(row_id: str) -> None:
        await trail.log.write(row(row_id))

    trail.log.count("ping", "local")
    run(alone("c1"))
    away = trail.path.rename(trail.path.with_name("away.db"))
    with pytest.raises(AuditError, match="is gone"):
        run(alone("lost"))
    away.rename(trail.path)
    run(alone("c2"))
    assert counts(trail) == [("2026-12-01", "ping", "local", 1)]


def test_the_trail_can_be_looked_through_from_both_ends(trail: Trail) -> None:
    write(trail, *(row(f"c{number}", tool=f"t{number % 2}") for number in range(1_200)))
    write(trail, row("c5", reason="second"))
    reader = AuditReader(trail.database)
    assert [entry["id"] for entry in reader.newest(3)] == ["c5", "c1199", "c1198"]
    assert [entry["id"] for entry in reader.newest(2, tool="t0")] == ["c1198", "c1196"]
    assert len(reader.newest(5_000, tool="t1")) == 600
    assert [entry["reason"] for entry in reader.of_call("c5")] == ["allowed", "second"]
    assert reader.of_call("c9999") == []
    assert [json.loads(body)["seq"] for body in reader.all()] == list(range(1_201))
    assert reader.newest(1)[0]["at"] == NOW.isoformat(timespec="microseconds")
