"""Where an approved document can go: a folder, or one HTTP POST to a host that the owner named."""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import os
import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

import httpx

from limen.canonical import digest_bytes
from limen.errors import DeliveryError, SettingsError

SAFE_KEY = re.compile(r"[A-Za-z0-9_-]{1,128}\Z")


MAX_FILE_NAME = 255
"""Bytes. What the file systems of Linux and macOS take."""


class Item(Protocol):
    """One delivery. `name` is the document's path, `content_digest` is `sha-256:` and hex."""

    @property
    def key(self) -> str: ...
    @property
    def destination(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def content(self) -> str: ...
    @property
    def content_digest(self) -> str: ...


class Arrival(StrEnum):
    """What a destination can say afterwards of a delivery that nobody saw the end of."""

    DELIVERED = "delivered"
    ABSENT = "absent"
    UNKNOWN = "unknown"


class Destination(Protocol):
    """Take documents out of the house."""

    def send(self, item: Item) -> str:
        """Deliver one item and return where it went, as one line. Durable once it returns.

        Raises:
            DeliveryError: it was not taken; `confirmed` is false when it may have arrived.
        """

    def confirm(self, item: Item) -> Arrival:
        """Say whether an item has arrived, without sending anything."""


@dataclass(frozen=True, slots=True)
class FolderDestination:
    """Put each document into a folder of this machine, as `<key>-<file name>`.

    A file appears whole or not at all and is never replaced. The folder must be there; only one
    process sends at a time (`deliver` sees to that).
    """

    folder: Path

    def send(self, item: Item) -> str:
        """Write the file, then its name, then wait until both are on the disk."""
        name = _file_name(item)
        part = f".{item.key}.part"
        try:
            folder = _opened_folder(self.folder)
        except OSError as error:
            raise DeliveryError(
                f"folder cannot be opened: {error.strerror}", confirmed=True
            ) from error
        try:
            _write_new(part, item.content.encode(), folder)
            self._publish(part, name, folder, item)
        finally:
            _discard(part, folder)
            os.close(folder)
        return f"file `{name}`"

    def confirm(self, item: Item) -> Arrival:
        """Look for the file: delivered with the right digest, absent without a file."""
        try:
            name = _file_name(item)
        except DeliveryError:
            return Arrival.ABSENT
        try:
            folder = _opened_folder(self.folder)
        except OSError:
            # Fails closed: a folder that is away today may hold the file.
            return Arrival.UNKNOWN
        try:
            if _digest_of(name, folder) != item.content_digest:
                return Arrival.UNKNOWN
            os.fsync(folder)
        except FileNotFoundError:
            return Arrival.ABSENT
        except OSError:
            return Arrival.UNKNOWN
        else:
            _discard(f".{item.key}.part", folder)
            return Arrival.DELIVERED
        finally:
            os.close(folder)

    def _publish(self, part: str, name: str, folder: int, item: Item) -> None:
        try:
            # A link, not a rename: it fails where a file of that name is there already.
            os.link(part, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError as error:
            if self.confirm(item) is not Arrival.DELIVERED:
                raise DeliveryError(
                    f"file `{name}` is there already with other content", confirmed=True
                ) from error
        except OSError as error:
            raise DeliveryError(
                f"file cannot be named: {error.strerror}", confirmed=True
            ) from error
        # From here on: the file can be seen, so a failure leaves the outcome open.
        try:
            os.fsync(folder)
        except OSError as error:
            raise DeliveryError(
                f"folder cannot be made durable: {error.strerror}", confirmed=False
            ) from error


@dataclass(frozen=True, slots=True)
class HttpDestination:
    """Send each document by one POST, and never to anywhere else than `url`.

    `hosts` are the host names that the owner allows. HTTPS with a verified certificate; plain
    HTTP to this machine's loopback address only. No redirect is followed and no proxy is used.
    `timeout_s` bounds connecting and each wait for the other side.
    """

    url: str
    hosts: frozenset[str]
    timeout_s: float = 10.0

    def __post_init__(self) -> None:
        """Refuse a URL that may not be sent to.

        Raises:
            SettingsError: the URL is no such URL, or its host is not allowed.
        """
        try:
            url = httpx.URL(self.url)
        except httpx.InvalidURL as error:
            raise SettingsError(f"destination `{self.url}` is not a URL: {error}") from error
        if url.userinfo or url.fragment:
            raise SettingsError(
                f"destination at `{url.host}` has a password or a fragment in its URL"
            )
        if url.host not in {host.lower() for host in self.hosts}:
            raise SettingsError(
                f"destination `{self.url}` is not allowed: add `{url.host}` to the allowed hosts"
            )
        if url.scheme != "https" and not (url.scheme == "http" and _is_loopback(url.host)):
            raise SettingsError(f"destination `{self.url}` is not encrypted: write `https://`")

    def send(self, item: Item) -> str:
        """POST the document; any answer of 200 to 299 is a yes. The answer's body is not read."""
        try:
            with (
                httpx.Client(
                    timeout=self.timeout_s, follow_redirects=False, trust_env=False, verify=True
                ) as client,
                client.stream(
                    "POST", self.url, content=item.content.encode(), headers=_headers(item)
                ) as response,
            ):
                status = response.status_code
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol) as error:
            raise DeliveryError(
                f"host cannot be reached: {type(error).__name__}", confirmed=True
            ) from error
        except httpx.HTTPError as error:
            raise DeliveryError(
                f"answer never came: {type(error).__name__}", confirmed=False
            ) from error
        if not 200 <= status <= 299:
            raise DeliveryError(f"host answered with status {status}", confirmed=True)
        return f"status {status}"

    def confirm(self, item: Item) -> Arrival:
        """Say unknown: there is no second look at what a POST has done."""
        return Arrival.UNKNOWN


def _file_name(item: Item) -> str:
    # Fails closed: the key becomes part of a file name, so it may hold nothing that means a place.
    if not SAFE_KEY.match(item.key):
        raise DeliveryError("key does not fit a file name", confirmed=True)
    name = item.name.rpartition("/")[2]
    room = MAX_FILE_NAME - len(item.key) - 1
    if len(name.encode()) > room:
        # Cut in the middle, so that it still ends as what it is.
        ending = Path(name).suffix[:16]
        kept = name.encode()[: room - len(ending.encode())]
        name = kept.decode(errors="ignore") + ending
    return f"{item.key}-{name}"


def _opened_folder(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _write_new(name: str, raw: bytes, folder: int) -> None:
    # What a dead process left is removed, not truncated: it may be the same file as a finished one.
    _discard(name, folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(name, flags, 0o640, dir_fd=folder), "wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise DeliveryError(f"file cannot be written: {error.strerror}", confirmed=True) from error


def _discard(name: str, folder: int) -> None:
    # A part file that cannot be removed is in nobody's way; the next send fails on it by name.
    with contextlib.suppress(OSError):
        os.unlink(name, dir_fd=folder)


def _digest_of(name: str, folder: int) -> str:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with open(os.open(name, flags, dir_fd=folder), "rb") as file:
        return digest_bytes(file.read())


def _headers(item: Item) -> dict[str, str]:
    # RFC 9530 §2: the digest as a dictionary of byte sequences.
    raw = bytes.fromhex(item.content_digest.removeprefix("sha-256:"))
    name = quote(item.name.rpartition("/")[2], safe="")
    return {
        "Content-Type": "text/plain; charset=utf-8",
        "Content-Digest": f"sha-256=:{base64.b64encode(raw).decode()}:",
        "Content-Disposition": f"attachment; filename*=UTF-8''{name}",
        "Idempotency-Key": item.key,
    }


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
