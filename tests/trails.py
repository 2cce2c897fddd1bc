"""A store with its writer and its trail, and rows to write: what the tests of `store` stand on."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from houses import NOW, StillClock
from limen.store.audit import AuditLog, MerkleTrail, connection_of
from limen.store.database import Database
from limen.store.note import NoteSigner
from limen.store.verify import verify
from limen.store.writer import Writer
from limen.words import AuditRow

ORIGIN = "limen.example/audit"


def row(row_id: str, **fields: Any) -> AuditRow:
    known: dict[str, Any] = {
        "id": row_id,
        "at": NOW,
        "state": "done",
        "server": "desk",
        "transport": "stdio",
        "revision": "2026-07-28",
        "caller": "local",
        "client": "test/1",
        "method": "tools/call",
        "tool": "docs_read",
        "decision": "allow",
        "step": "d7_audit",
        "reason": "allowed",
    }
    return AuditRow(**{**known, **fields})


@dataclass
class Hold:
    """Keep the writer busy, so that what is handed over meanwhile becomes one batch."""

    begun: threading.Event = field(default_factory=threading.Event)
    let_go: threading.Event = field(default_factory=threading.Event)

    def __call__(self, _: object) -> None:
        self.begun.set()
        assert self.let_go.wait(20)


@dataclass
class Trail:
    path: Path
    database: Database
    signer: NoteSigner
    log: AuditLog
    clock: StillClock

    def ids(self) -> list[str]:
        """Return the ids of the durable rows, as another process sees them now."""
        return [found for (found,) in self.look("SELECT id FROM audit_entry ORDER BY seq")]

    def look(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(f"{self.path.as_uri()}?mode=ro", uri=True)) as connection:
            return connection.execute(query, values).fetchall()

    def assert_sound(self, rows: int) -> None:
        report = verify(self.path, expected_vkey=self.signer.vkey)
        assert report.finding is None
        assert (report.rows, report.size) == (rows, rows)

    def on_the_writer(self, change: Callable[[Any], Any]) -> Any:
        """Do something with the writer's own connection."""
        return self.log.writer.work_now(lambda transaction: change(connection_of(transaction)))

    async def in_one_batch(self, *handed_over: Callable[[], Any]) -> list[Any]:
        """Hand over while the writer is busy; return what each came to, exceptions too."""
        hold = Hold()
        held = self.log.writer.work(hold)
        await asyncio.to_thread(hold.begun.wait, 20)
        waits = [hand_over() for hand_over in handed_over]
        hold.let_go.set()
        ended = await asyncio.wait_for(asyncio.gather(*waits, return_exceptions=True), 20)
        await held
        return ended


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Callable[[str], None]]:
    """Put a disk of its own under a folder. Hands out what changes it: `ro`, `rw`, `size=1m`."""
    mount = ["mount", "-t", "tmpfs", "-o"]
    folder.mkdir()
    if (
        shutil.which("mount") is None
        or subprocess.run([*mount, f"size={size}", "none", folder], check=False).returncode
    ):
        pytest.skip("no small disk can be mounted here: run as root with Debian's `mount`")

    def change(option: str) -> None:
        subprocess.run([*mount, f"remount,{option}", folder], check=True)

    try:
        yield change
    finally:
        subprocess.run(["umount", folder], check=True)


@contextmanager
def open_trail(folder: Path) -> Iterator[Trail]:
    path = folder / "limen.db"
    database = Database(path)
    database.create()
    signer = NoteSigner.load_or_create(folder / "audit.key", ORIGIN)
    clock = StillClock()
    trail = MerkleTrail(signer, clock)
    log = AuditLog(Writer(database, trail), trail)
    try:
        yield Trail(path, database, signer, log, clock)
    finally:
        log.close()
