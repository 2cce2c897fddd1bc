"""MCP over stdin and stdout: one JSON object a line, and nothing else on stdout.

A thread reads lines, the event loop answers them, another thread writes what may leave. When input
ends, the pipe breaks or a signal comes, what has begun is finished or written down as cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from limen.gate import Gate
from limen.transport.envelope import Cancel, Envelope, Request, RequestId, Session

log = logging.getLogger(__name__)

CHUNK = 64 * 1024
"""Bytes read at a time: what a pipe holds."""

MAX_IN_FLIGHT = 256
"""Requests answered at once. Beyond that we stop reading, and the pipe holds the client back."""

MAX_UNREAD = 16 * 1024 * 1024
"""Bytes of answers that may wait for a client that does not read. Beyond that we stop reading too:
whoever never reads would fill the memory with what costs them nothing."""

GRACE_S = 1.0
"""Seconds that running calls get to finish once input has ended; the whole exit takes under 2 s."""

LAST_WORDS_S = 0.4
"""Seconds for cancelled calls to be written down, and then for answers to leave."""


@dataclass(frozen=True, slots=True)
class TooLong:
    """A line beyond the limit, of which only the size in bytes was kept."""

    size: int


class Lines:
    """Cut a stream of bytes into lines of bounded length. Blank lines are left out."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[bytes | TooLong]:
        """Yield the lines that a chunk completes. An empty chunk ends the last line."""
        *whole, rest = chunk.split(b"\n") if chunk else (b"", b"")
        for line in whole:
            self._add(line)
            yield from self._taken()
        self._add(rest)

    def _add(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._limit:
            self._parts.clear()
        else:
            self._parts.append(part)

    def _taken(self) -> Iterator[bytes | TooLong]:
        line, size = b"".join(self._parts), self._size
        self._parts, self._size = [], 0
        if size > self._limit:
            yield TooLong(size)
        elif line.strip():
            yield line


class StdioServer:
    """Serve one client over two file descriptors, until its input ends. For one use."""

    def __init__(self, gate: Gate, envelope: Envelope, *, max_message: int) -> None:
        self._gate = gate
        self._envelope = envelope
        self._max_message = max_message
        self._session = Session()
        self._running: dict[RequestId, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = threading.Semaphore(MAX_IN_FLIGHT)
        self._out: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._unread = 0
        self._ended = False
        self._lock = threading.Lock()
        self._has_room = threading.Event()
        self._has_room.set()

    async def serve(self, in_fd: int, out_fd: int) -> None:
        """Answer until input ends, output breaks, or SIGTERM, SIGINT or SIGHUP comes."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, ended.set)

        def end() -> None:
            with contextlib.suppress(RuntimeError):  # The loop is closed: we have ended already.
                loop.call_soon_threadsafe(ended.set)

        reader = threading.Thread(
            target=self._read, args=(in_fd, loop, end), name="limen-stdin", daemon=True
        )
        writer = threading.Thread(
            target=self._write, args=(out_fd, end), name="limen-stdout", daemon=True
        )
        reader.start()
        writer.start()
        await ended.wait()
        # From here on: what was read and not begun is never begun, so it has no row and no answer.
        self._ended = True
        await self._finish()
        self._out.put(None)
        await asyncio.to_thread(writer.join, LAST_WORDS_S)

    async def _finish(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=GRACE_S)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=LAST_WORDS_S)

    def _read(self, in_fd: int, loop: asyncio.AbstractEventLoop, end: Callable[[], None]) -> None:
        lines = Lines(self._max_message)
        try:
            while chunk := os.read(in_fd, CHUNK):
                self._hand_over(lines.feed(chunk), loop)
            self._hand_over(lines.feed(b""), loop)
        except OSError as error:
            log.error("cannot read stdin: %s", error.strerror)
        except RuntimeError:
            # The loop is closed: whoever wanted answers has had them.
            return
        end()

    def _hand_over(self, lines: Iterator[bytes | TooLong], loop: asyncio.AbstractEventLoop) -> None:
        """Give lines to the event loop, as many at once as there are slots for."""
        batch: list[bytes | TooLong] = []
        for line in lines:
            if not (self._has_room.is_set() and self._slots.acquire(blocking=False)):
                loop.call_soon_threadsafe(self._take, batch)
                batch = []
                self._has_room.wait()
                self._slots.acquire()
            batch.append(line)
        if batch:
            loop.call_soon_threadsafe(self._take, batch)

    def _take(self, batch: list[bytes | TooLong]) -> None:
        if self._ended:
            return
        for line in batch:
            if isinstance(line, TooLong):
                self._start(self._envelope.too_long(line.size, self._max_message))
                continue
            message = self._envelope.read(line, self._session)
            if isinstance(message, Request):
                self._start(message)
                continue
            self._slots.release()
            if isinstance(message, Cancel) and (task := self._running.get(message.id)) is not None:
                # Not at once: a task that was cancelled before its first step never ran at all,
                # and its request would leave no row.
                asyncio.get_running_loop().call_soon(task.cancel)

    def _start(self, request: Request) -> None:
        if request.id is not None and request.id in self._running:
            request = self._envelope.refuse(
                request, "id_in_use", "`id` is that of a request still being answered"
            )
        task = asyncio.get_running_loop().create_task(self._answer(request))
        self._tasks.add(task)
        # The specification lets nobody cancel an `initialize`.
        if request.id is not None and request.call.method != "initialize":
            self._running[request.id] = task

    async def _answer(self, request: Request) -> None:
        try:
            answer = await self._gate.answer(request.call)
            line = self._envelope.write(request, answer) + b"\n"
            self._count_unread(len(line))
            self._out.put(line)
        finally:
            task = asyncio.current_task()
            if task is not None:
                self._tasks.discard(task)
            if request.id is not None and self._running.get(request.id) is task:
                del self._running[request.id]
            self._slots.release()

    def _write(self, out_fd: int, end: Callable[[], None]) -> None:
        while (lines := self._gathered()) is not None:
            waiting = memoryview(lines)
            try:
                while waiting:
                    written = os.write(out_fd, waiting)
                    waiting = waiting[written:]
                    self._count_unread(-written)
            except OSError:
                # The client is gone: its calls are finished as far as they go, and we end.
                end()
                return

    def _count_unread(self, more: int) -> None:
        # Both threads count here: an answer that waits, and what of it has left.
        with self._lock:
            self._unread += more
            if self._unread > MAX_UNREAD:
                self._has_room.clear()
            else:
                self._has_room.set()

    def _gathered(self) -> bytes | None:
        """Return all answers that wait, to leave in one write. None once there will be no more."""
        line = self._out.get()
        if line is None:
            return None
        lines = [line]
        while not self._out.empty():
            line = self._out.get()
            if line is None:
                self._out.put(None)
                break
            lines.append(line)
        return b"".join(lines)


def take_over_stdio() -> tuple[int, int]:
    """Return the wire's two descriptors, and put harmless ones in their old places.

    A stray `print` then lands on stderr, and no library or child process can read the wire.
    """
    wire_in, wire_out = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return wire_in, wire_out
