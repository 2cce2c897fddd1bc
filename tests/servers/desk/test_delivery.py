import fcntl
import os
import threading
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from limen.errors import DeliveryError, StoreError
from limen.servers.desk.delivery import deliver
from limen.servers.desk.destinations import Arrival, Destination, FolderDestination, Item
from limen.store.database import Database
from limen.store.outbox import OutboxReader, OutboxTable

NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)


class Killed(BaseException):
    """The process ends here."""


@dataclass
class Post:
    """An HTTP-like destination: counts what arrives and can never look again."""

    fails: DeliveryError | None = None
    dies: bool = False
    got: list[str] = field(default_factory=list)

    def send(self, item: Item) -> str:
        if self.fails is not None:
            raise self.fails
        self.got.append(item.key)
        if self.dies:
            raise Killed
        return "status 200"

    def confirm(self, item: Item) -> Arrival:
        return Arrival.UNKNOWN


@dataclass
class House:
    """The application's part: state changes, each committed with the row that says so."""

    database: Database
    lock_path: Path
    rows: list[tuple[str, str, str, str]] = field(default_factory=list)
    kill_before: int = -1
    kill_after: int = -1
    calls: int = 0

    def queue(self, key: str, destination: str = "archive", content: str = "text") -> None:
        with self.database.writing() as connection:
            OutboxTable(connection).queue(
                key, destination=destination, name="public/a.txt", content=content, at=NOON
            )

    def change(self, key: str, from_state: str, to_state: str, detail: str) -> bool:
        self.calls += 1
        if self.calls == self.kill_before:
            raise Killed
        with self.database.writing() as connection:
            moved = OutboxTable(connection).mark(key, from_state, to_state, detail, NOON)
        if moved:
            self.rows.append((key, from_state, to_state, detail))
        if self.calls == self.kill_after:
            raise Killed
        return moved

    def deliver(self, **destinations: Destination) -> Counter[str]:
        return deliver(OutboxReader(self.database), destinations, self.lock_path, self.change)

    def state(self, key: str) -> str:
        item = OutboxReader(self.database).find(key)
        return item.state if item is not None else "gone"


@pytest.fixture
def house(tmp_path: Path) -> House:
    database = Database(tmp_path / "limen.db")
    database.create()
    return House(database, tmp_path / "outbox.lock")


def test_each_item_is_sent_once_with_two_rows_and_in_order(house: House) -> None:
    house.queue("k2")
    house.queue("k1")
    post = Post()
    assert house.deliver(archive=post) == {"delivered": 2}
    assert house.deliver(archive=post) == {}
    assert post.got == ["k1", "k2"]
    assert house.rows == [
        ("k1", "queued", "sending", ""),
        ("k1", "sending", "delivered", "status 200"),
        ("k2", "queued", "sending", ""),
        ("k2", "sending", "delivered", "status 200"),
    ]


def test_what_is_queued_while_others_are_sent_goes_too(house: House) -> None:
    class Busy(Post):
        def send(self, item: Item) -> str:
            if item.key == "k1":
                house.queue("k0")
            return super().send(item)

    house.queue("k1")
    busy = Busy()
    assert house.deliver(archive=busy) == {"delivered": 2}
    assert busy.got == ["k1", "k0"]


def test_sending_is_durable_before_anything_leaves(house: House) -> None:
    states: list[str] = []

    class Looking(Post):
        def send(self, item: Item) -> str:
            states.append(house.state(item.key))
            return super().send(item)

    house.queue("k1")
    house.deliver(archive=Looking())
    assert states == ["sending"]


@pytest.mark.parametrize(("confirmed", "state"), [(True, "failed"), (False, "unconfirmed")])
def test_a_delivery_that_failed_is_never_tried_again_by_itself(
    house: House, confirmed: bool, state: str
) -> None:
    house.queue("k1")
    post = Post(fails=DeliveryError("answer never came", confirmed=confirmed))
    assert house.deliver(archive=post) == {state: 1}
    post.fails = None
    assert house.deliver(archive=post) == {}
    assert post.got == []
    assert house.rows[-1] == ("k1", "sending", state, "answer never came")


@pytest.mark.parametrize("moment", ["kill_before", "kill_after"])
@pytest.mark.parametrize("call", [1, 2, 3, 4])
def test_a_folder_has_each_file_once_whenever_the_sender_is_killed(
    house: House, tmp_path: Path, moment: str, call: int
) -> None:
    (tmp_path / "out").mkdir()
    folder = FolderDestination(tmp_path / "out")
    house.queue("k1")
    house.queue("k2")
    setattr(house, moment, call)
    with pytest.raises(Killed):
        house.deliver(archive=folder)
    house.deliver(archive=folder)
    assert sorted(os.listdir(tmp_path / "out")) == ["k1-a.txt", "k2-a.txt"]
    assert [house.state("k1"), house.state("k2")] == ["delivered", "delivered"]
    assert [row[:3] for row in house.rows] == [
        ("k1", "queued", "sending"),
        ("k1", "sending", "delivered"),
        ("k2", "queued", "sending"),
        ("k2", "sending", "delivered"),
    ]


@pytest.mark.parametrize(
    ("moment", "call", "state", "posts"),
    [
        ("kill_before", 1, "delivered", 1),
        ("kill_after", 1, "unconfirmed", 0),
        ("kill_before", 2, "unconfirmed", 1),
        ("kill_after", 2, "delivered", 1),
    ],
)
def test_a_post_is_made_at_most_once_whenever_the_sender_is_killed(
    house: House, moment: str, call: int, state: str, posts: int
) -> None:
    post = Post()
    house.queue("k1")
    setattr(house, moment, call)
    with pytest.raises(Killed):
        house.deliver(archive=post)
    house.deliver(archive=post)
    house.deliver(archive=post)
    assert house.state("k1") == state
    assert len(post.got) == posts


def test_a_post_whose_sender_died_in_the_middle_is_unconfirmed(house: House) -> None:
    house.queue("k1")
    post = Post(dies=True)
    with pytest.raises(Killed):
        house.deliver(archive=post)
    assert house.state("k1") == "sending"
    assert house.deliver(archive=post) == {"unconfirmed": 1}
    assert post.got == ["k1"]


def test_an_item_for_a_destination_that_is_not_set_up_fails(house: House) -> None:
    house.queue("k1", destination="gone")
    house.queue("k2")
    assert house.deliver(archive=Post()) == {"failed": 1, "delivered": 1}
    assert ("k1", "sending", "failed", "no destination by that name is set up") in house.rows


def test_an_abandoned_item_of_a_destination_that_is_not_set_up_is_unconfirmed(house: House) -> None:
    house.queue("k1")
    house.kill_after = 1
    with pytest.raises(Killed):
        house.deliver(archive=Post())
    assert house.deliver() == {"unconfirmed": 1}


def test_content_that_was_changed_in_the_store_does_not_leave(house: House) -> None:
    house.queue("k1")
    with house.database.writing() as connection:
        connection.run("UPDATE outbox SET content = 'other text'")
    post = Post()
    assert house.deliver(archive=post) == {"failed": 1}
    assert post.got == []


def test_an_item_that_somebody_else_took_is_left_alone(house: House) -> None:
    house.queue("k1")
    post = Post()
    outcome = deliver(
        OutboxReader(house.database), {"archive": post}, house.lock_path, lambda *_: False
    )
    assert outcome == {}
    assert post.got == []


def test_an_outcome_that_cannot_be_written_is_a_fault(house: House) -> None:
    house.queue("k1")

    def change(key: str, from_state: str, to_state: str, detail: str) -> bool:
        return to_state == "sending"

    with pytest.raises(StoreError, match="no longer `sending`"):
        deliver(OutboxReader(house.database), {"archive": Post()}, house.lock_path, change)


def test_the_lock_is_held_while_anything_is_sent_and_free_afterwards(house: House) -> None:
    def is_free() -> bool:
        with house.lock_path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

    free: list[bool] = []

    class Trying(Post):
        def send(self, item: Item) -> str:
            free.append(is_free())
            return super().send(item)

    house.queue("k1")
    house.deliver(archive=Trying())
    assert free == [False]
    assert is_free()


def test_two_drains_at_once_send_each_item_once(house: House) -> None:
    inside = threading.Event()
    leave = threading.Event()

    class Slow(Post):
        def send(self, item: Item) -> str:
            inside.set()
            leave.wait(10)
            return super().send(item)

    house.queue("k1")
    slow = Slow()
    outcomes: list[Counter[str]] = []
    threads = [
        threading.Thread(target=lambda: outcomes.append(house.deliver(archive=slow)))
        for _ in range(2)
    ]
    threads[0].start()
    assert inside.wait(10)
    threads[1].start()
    leave.set()
    for thread in threads:
        thread.join(10)
    assert slow.got == ["k1"]
    assert sorted(outcomes, key=len) == [{}, {"delivered": 1}]


def test_a_lock_file_that_is_a_link_is_not_followed(house: House, tmp_path: Path) -> None:
    house.lock_path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        house.deliver()
    assert not (tmp_path / "elsewhere").exists()
