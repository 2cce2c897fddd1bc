import os
import socket
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from limen.canonical import digest_bytes
from limen.errors import DeliveryError, SettingsError
from limen.servers.desk.destinations import Arrival, FolderDestination, HttpDestination

LOOPBACK = frozenset({"127.0.0.1"})


@dataclass(frozen=True)
class Parcel:
    key: str = "approval-1"
    destination: str = "archive"
    name: str = "public/handbook ü.txt"
    content: str = "the text, süß\n"
    content_digest: str = digest_bytes("the text, süß\n".encode())


@dataclass
class Receiver:
    """A stand-in for somebody's web hook; `status` 0 means that it reads and never answers."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    got: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    url: str = ""
    over: threading.Event = field(default_factory=threading.Event)


@contextmanager
def receiving(status: int, **headers: str) -> Iterator[Receiver]:
    receiver = Receiver(status, headers)

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.got.append((self.path, dict(self.headers), body))
            if receiver.status == 0:
                receiver.over.wait(10)
                return
            if receiver.status == -1:
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            self.send_response(receiver.status)
            for name, value in receiver.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield receiver
    finally:
        receiver.over.set()
        server.shutdown()
        thread.join()
        server.server_close()


def post_fails(receiver: Receiver, message: str, timeout_s: float = 5) -> DeliveryError:
    with pytest.raises(DeliveryError, match=message) as caught:
        HttpDestination(receiver.url, LOOPBACK, timeout_s).send(Parcel())
    return caught.value


# A folder


def test_a_folder_gets_the_whole_file_and_nothing_else(tmp_path: Path) -> None:
    folder = FolderDestination(tmp_path)
    assert folder.confirm(Parcel()) is Arrival.ABSENT
    assert folder.send(Parcel()) == "file `approval-1-handbook ü.txt`"
    assert os.listdir(tmp_path) == ["approval-1-handbook ü.txt"]
    assert (tmp_path / "approval-1-handbook ü.txt").read_text() == Parcel().content
    assert folder.confirm(Parcel()) is Arrival.DELIVERED


def test_sending_the_same_again_leaves_the_one_file(tmp_path: Path) -> None:
    folder = FolderDestination(tmp_path)
    folder.send(Parcel())
    folder.send(Parcel())
    assert os.listdir(tmp_path) == ["approval-1-handbook ü.txt"]


def test_a_file_that_is_there_already_is_never_replaced(tmp_path: Path) -> None:
    there = tmp_path / "approval-1-handbook ü.txt"
    there.write_text("somebody else's")
    folder = FolderDestination(tmp_path)
    assert folder.confirm(Parcel()) is Arrival.UNKNOWN
    with pytest.raises(DeliveryError, match="is there already with other content") as caught:
        folder.send(Parcel())
    assert caught.value.confirmed
    assert there.read_text() == "somebody else's"
    assert os.listdir(tmp_path) == [there.name]


def test_a_link_in_the_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    outside = tmp_path / "outside.txt"
    outside.write_text(Parcel().content)
    (tmp_path / "in" / "approval-1-handbook ü.txt").symlink_to(outside)
    (tmp_path / "in" / ".approval-1.part").symlink_to(outside)
    folder = FolderDestination(tmp_path / "in")
    assert folder.confirm(Parcel()) is Arrival.UNKNOWN
    with pytest.raises(DeliveryError):
        folder.send(Parcel(content="other", content_digest=digest_bytes(b"other")))
    assert outside.read_text() == Parcel().content


def test_what_a_dead_sender_left_does_not_stand_in_the_way(tmp_path: Path) -> None:
    (tmp_path / ".approval-1.part").write_text("half")
    folder = FolderDestination(tmp_path)
    assert folder.confirm(Parcel()) is Arrival.ABSENT
    folder.send(Parcel())
    assert os.listdir(tmp_path) == ["approval-1-handbook ü.txt"]


def test_a_sender_that_died_after_naming_the_file_has_delivered_it(tmp_path: Path) -> None:
    part = tmp_path / ".approval-1.part"
    part.write_text(Parcel().content)
    os.link(part, tmp_path / "approval-1-handbook ü.txt")
    assert FolderDestination(tmp_path).confirm(Parcel()) is Arrival.DELIVERED
    assert os.listdir(tmp_path) == ["approval-1-handbook ü.txt"]


def test_a_folder_that_is_away_takes_nothing_and_cannot_tell(tmp_path: Path) -> None:
    folder = FolderDestination(tmp_path / "away")
    assert folder.confirm(Parcel()) is Arrival.UNKNOWN
    with pytest.raises(DeliveryError, match="folder cannot be opened") as caught:
        folder.send(Parcel())
    assert caught.value.confirmed


@pytest.mark.parametrize("key", ["../up", "a/b", "", "a.b", "x" * 129, "a\n"])
def test_a_key_that_means_a_place_is_refused(tmp_path: Path, key: str) -> None:
    folder = FolderDestination(tmp_path)
    with pytest.raises(DeliveryError, match="key does not fit") as caught:
        folder.send(Parcel(key=key))
    assert caught.value.confirmed
    assert folder.confirm(Parcel(key=key)) is Arrival.ABSENT
    assert os.listdir(tmp_path) == []


def test_a_name_too_long_for_the_disk_is_shortened_and_found_again(tmp_path: Path) -> None:
    folder = FolderDestination(tmp_path)
    parcel = Parcel(name="public/" + "語" * 96 + ".txt")
    folder.send(parcel)
    [name] = os.listdir(tmp_path)
    assert len(name.encode()) <= 255
    assert name.endswith("語.txt")
    assert folder.confirm(parcel) is Arrival.DELIVERED


def test_a_file_that_cannot_be_named_is_a_confirmed_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", fails)
    with pytest.raises(DeliveryError, match="file cannot be named") as caught:
        FolderDestination(tmp_path).send(Parcel(key="k1"))
    assert caught.value.confirmed
    assert os.listdir(tmp_path) == []


def test_a_folder_that_cannot_be_made_durable_leaves_the_outcome_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    real = os.fsync

    def second_fails(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 2:
            raise OSError(5, "Input/output error")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", second_fails)
    with pytest.raises(DeliveryError, match="folder cannot be made durable") as caught:
        FolderDestination(tmp_path).send(Parcel())
    assert not caught.value.confirmed


def test_a_full_disk_is_a_confirmed_failure_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DeliveryError, match="file cannot be written: No space left") as caught:
        FolderDestination(tmp_path).send(Parcel())
    assert caught.value.confirmed
    assert os.listdir(tmp_path) == []


# One POST


def test_a_host_gets_one_post_with_the_key_and_the_digest() -> None:
    with receiving(202) as receiver:
        destination = HttpDestination(receiver.url, LOOPBACK, timeout_s=5)
        assert destination.send(Parcel()) == "status 202"
    [(path, headers, body)] = receiver.got
    assert path == "/hook"
    assert body == Parcel().content.encode()
    assert headers["Idempotency-Key"] == "approval-1"
    digest = b64encode(sha256(body).digest()).decode()
    assert headers["Content-Digest"] == f"sha-256=:{digest}:"
    assert headers["Content-Disposition"] == "attachment; filename*=UTF-8''handbook%20%C3%BC.txt"
    assert "Authorization" not in headers


@pytest.mark.parametrize("status", [400, 403, 404, 409, 500, 503])
def test_an_answer_that_says_no_is_a_failure(status: int) -> None:
    with receiving(status) as receiver:
        fault = post_fails(receiver, f"host answered with status {status}")
    assert fault.confirmed
    assert len(receiver.got) == 1


def test_a_redirect_is_not_followed() -> None:
    with receiving(200) as elsewhere, receiving(307, Location=elsewhere.url) as receiver:
        fault = post_fails(receiver, "host answered with status 307")
    assert fault.confirmed
    assert elsewhere.got == []


def test_a_host_that_never_answers_leaves_the_outcome_open() -> None:
    with receiving(0) as receiver:
        fault = post_fails(receiver, "answer never came: ReadTimeout", timeout_s=0.2)
    assert not fault.confirmed
    assert len(receiver.got) == 1


def test_a_connection_lost_after_sending_leaves_the_outcome_open() -> None:
    with receiving(-1) as receiver:
        fault = post_fails(receiver, "answer never came")
    assert not fault.confirmed


def test_a_closed_port_is_a_confirmed_failure() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}/hook"
        with pytest.raises(DeliveryError, match="host cannot be reached: ConnectError") as caught:
            HttpDestination(url, LOOPBACK, timeout_s=5).send(Parcel())
    assert caught.value.confirmed


def test_a_host_without_a_valid_certificate_is_a_confirmed_failure() -> None:
    with receiving(200) as receiver:
        url = receiver.url.replace("http://", "https://")
        with pytest.raises(DeliveryError, match="host cannot be reached") as caught:
            HttpDestination(url, LOOPBACK, timeout_s=5).send(Parcel())
    assert caught.value.confirmed
    assert receiver.got == []


def test_a_proxy_in_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    with receiving(200) as receiver:
        HttpDestination(receiver.url, LOOPBACK, timeout_s=5).send(Parcel())
    assert len(receiver.got) == 1


def test_a_post_can_never_be_confirmed_afterwards() -> None:
    destination = HttpDestination("https://hook.invalid/x", frozenset({"hook.invalid"}))
    assert destination.confirm(Parcel()) is Arrival.UNKNOWN


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("https://other.invalid/x", "add `other.invalid` to the allowed hosts"),
        ("https://hook.invalid.other.invalid/x", "is not allowed"),
        ("https://hook.invalid@other.invalid/x", "has a password or a fragment"),
        ("https://me:secret@hook.invalid/x", "has a password or a fragment"),
        ("http://hook.invalid/x", "is not encrypted"),
        ("ftp://hook.invalid/x", "is not encrypted"),
        ("hook.invalid/x", "is not allowed"),
        ("https://hook.invalid:port/x", "is not a URL"),
    ],
)
def test_a_url_that_may_not_be_sent_to_stops_the_start(url: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message) as caught:
        HttpDestination(url, frozenset({"Hook.invalid"}))
    assert "secret" not in str(caught.value)
