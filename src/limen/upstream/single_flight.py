"""One request for all who ask the same at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from limen.upstream.errors import SourceDownError

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class SingleFlight(Generic[K, T]):
    """Do work once for all who wait for the same key. For the tasks of one event loop.

    The work is a task of its own: whoever asked first can be cancelled and harms nobody. It goes
    on without any waiter, so bound it in time. It belongs to this object and ends with `close`.
    """

    def __init__(self) -> None:
        self._flights: dict[K, asyncio.Task[T]] = {}
        self._closed = False

    async def fly(self, key: K, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return what the work for `key` returns, or raise what it raises.

        Raises:
            SourceDownError: this was closed, before or meanwhile.
        """
        if self._closed:
            raise SourceDownError("source is closed")
        task = self._flights.get(key)
        if task is None:
            task = asyncio.create_task(work())
            self._flights[key] = task
            task.add_done_callback(lambda done: self._landed(key, done))
        # `wait` leaves the task alone when this waiter is cancelled; `await task` would end it.
        await asyncio.wait([task])
        if task.cancelled():
            raise SourceDownError("source was closed before it answered")
        return task.result()

    async def close(self) -> None:
        """End all work and wait until it has ended. Waiters get an error, and none hangs."""
        self._closed = True
        tasks = list(self._flights.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _landed(self, key: K, task: asyncio.Task[T]) -> None:
        del self._flights[key]
        if not task.cancelled():
            # Looked at once here: with every waiter cancelled, nobody else does.
            task.exception()
