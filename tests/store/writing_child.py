"""Write rows side by side and print the id of each once its wait is over. Told: folder, name,
lanes, rows a lane (0: until killed)."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from pathlib import Path

from trails import open_trail, row


async def lane(trail: object, name: str, rows: int) -> None:
    for number in itertools.count():
        if rows and number == rows:
            return
        await trail.log.write(row(f"{name}-{number}"))  # type: ignore[attr-defined]
        # Straight to the pipe: what is printed is out, whatever happens next.
        os.write(1, f"{name}-{number}\n".encode())


async def lanes(trail: object, name: str, count: int, rows: int) -> None:
    await asyncio.gather(*(lane(trail, f"{name}-{index}", rows) for index in range(count)))


if __name__ == "__main__":
    folder, name, count, rows = sys.argv[1:]
    with open_trail(Path(folder)) as opened:
        asyncio.run(lanes(opened, name, int(count), int(rows)))
