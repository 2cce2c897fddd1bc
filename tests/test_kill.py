"""SIGKILL at 50 random points of a mixed load: the store verifies and nothing answered is lost."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from houses import open_desk
from limen.app import build_desk, open_house
from limen.canonical import digest
from limen.settings import Settings, load
from limen.store.verify import verify
from promised import promise
from wire import Child, serving

KILLS = 50
LANES = 2
"""Stores with a server each, killed side by side: starting one takes a second of one core."""
AT_MOST_S = 0.35
"""Seconds of load before the kill, at most. A call takes about a millisecond."""


def mixed_load(child: Child, kill: int, answered: list[dict[str, Any]]) -> None:
    """Keep calls in flight, of all kinds, until the process is gone."""
    sent: dict[int, dict[str, Any]] = {}
    for number in range(100_000):
        mark = f"k{kill}-n{number}"
        tool, arguments = (
            ("docs_read", {"path": f"public/{mark}.txt"}),
            ("docs_update", {"path": f"drafts/{mark}.txt", "content": mark}),
            ("tickets_add_note", {"ticket_id": "T-1001", "note": mark}),
            ("docs_read", {"path": f"private/{mark}.txt"}),
            ("export", {"path": "public/handbook.txt", "destination": "partner", "x": mark}),
        )[number % 5]
        try:
            sent[child.request("tools/call", {"name": tool, "arguments": arguments})] = arguments
            if number >= 16:
                response = child.receive(5)
                if response is None:
                    return
                answered.append(sent[response["id"]])
        except (OSError, ValueError):
            return


def put_in_the_outbox(data: Path, kill: int) -> None:
    """Let a person approve an export, and leave its delivery to the process that is killed."""
    with open_desk(data) as world:
        assert world.desk is not None
        path = f"public/send-{kill}.txt"
        world.ask("docs_update", path=path, content=f"send {kill}")
        held = world.said("export", path=path, destination="partner")
        world.desk.review.approve(str(held["approval"]), by="boss")


def killed_again_and_again(data: Path, kills: int, chance: random.Random) -> None:
    """Kill one server after the other on one store, and look at what is left each time."""
    answered: list[dict[str, Any]] = []
    for kill in range(kills):
        if kill % 5 == 0:
            put_in_the_outbox(data, kill)
        with serving(data, LIMEN_BUDGET__CAPACITY="1000000") as child:
            child.ask("tools/list")
            loading = threading.Thread(target=mixed_load, args=(child, kill, answered))
            loading.start()
            time.sleep(chance.uniform(0, AT_MOST_S))
            child.process.kill()
            loading.join(20)
            assert not loading.is_alive()
        vkey = (data / "audit.key.pub").read_text().strip()
        report = verify(data / "limen.db", expected_vkey=vkey)
        assert report.finding is None, (kill, report.finding)
    assert len(answered) > kills
    with open_house(data, load(data / "limen.toml")) as house:
        # What the last kill left is sent now: what was approved arrives, once.
        build_desk(house).drain()
    compare(data, answered, sends=kills // 5)


@promise("kill")
def test_a_kill_at_any_point_leaves_a_store_that_verifies_and_what_was_answered(
    tmp_path: Path,
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    settings = '[desk.destinations.partner]\nkind = "folder"\npath = "outgoing"\n'
    lanes = []
    with ThreadPoolExecutor(LANES) as pool:
        for number in range(LANES):
            data = tmp_path / f"lane-{number}"
            data.mkdir()
            (data / "limen.toml").write_text(settings + 'groups = ["partners"]\n')
            chance = random.Random(seed + number)
            lanes.append(pool.submit(killed_again_and_again, data, KILLS // LANES, chance))
    for lane in lanes:
        lane.result()


def compare(data: Path, answered: list[dict[str, Any]], sends: int) -> None:
    with open_house(data, Settings()) as house:
        entries = house.audit_reader.newest(1_000_000)
        rows = Counter(
            entry["arguments_digest"] for entry in entries if entry["method"] == "tools/call"
        )
        for arguments in answered:
            assert rows[digest(arguments)] == 1, arguments
        ended = Counter((entry["id"], entry["state"]) for entry in entries)
        assert set(ended.values()) == {1}
        # What was written has its row, and what has its row was written.
        documents = [
            document.path for document in house.tables().list_documents("", 1_000_000, "drafts/k")
        ]
        for path in documents:
            mark = path.removeprefix("drafts/").removesuffix(".txt")
            assert rows[digest({"path": path, "content": mark})] == 1
        updates = [
            entry
            for entry in entries
            if entry["tool"] == "docs_update"
            and entry["caller"] == "local"
            and entry["method"] == "tools/call"
            and entry["reason"] == "allowed"
        ]
        assert len(documents) == len(updates) - sends
        # What left the house had its durable intent before.
        ticket = house.tables().get_ticket("T-1001")
        assert ticket is not None
        notes = [note for note in ticket.notes if note.note.startswith("k")]
        for note in notes:
            assert rows[digest({"ticket_id": "T-1001", "note": note.note})] == 1
        started = {
            entry["approval"]
            for entry in entries
            if entry["method"] == "outbox/deliver" and entry["state"] == "started"
        }
        files = list((data / "outgoing").iterdir())
        whole = [file for file in files if not file.name.startswith(".")]
        assert len(whole) == sends
        for file in whole:
            assert any(file.name.startswith(approval) for approval in started), file.name
            assert file.read_text().startswith("send ")
