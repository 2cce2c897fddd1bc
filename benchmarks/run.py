"""Measure what Limen promises about speed and size, and print a table.

    uv run python benchmarks/run.py            all of it, about five minutes
    uv run python benchmarks/run.py decisions  one part: decisions audit start memory verify
                                               coverage callers http (needs `wrk`)

Figures are medians of several runs. The machine is noisy: compare figures of one run.
"""

from __future__ import annotations

import asyncio
import importlib.resources
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from limen.answers.calendars import target
from limen.answers.coverage import SeriesLife, SourceReach, certify
from limen.answers.days import Days
from limen.app import SystemClock, open_house, schema_of
from limen.decisions.d1_audience import Audience, LocalCaller
from limen.decisions.d2_budget import Budget, FairBudget
from limen.decisions.d3_reach import Reach
from limen.decisions.d4_shape import Limits, Shape
from limen.decisions.d5_policy import CedarPolicies, PolicyStep
from limen.decisions.d6_approval import ApprovalStep
from limen.servers.desk.tools import desk_catalogue
from limen.settings import Settings
from limen.store.verify import verify
from limen.walk import Walk
from limen.words import AuditRow, Call, Caller

NOW = datetime(2026, 12, 1, tzinfo=UTC)
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


@dataclass(frozen=True)
class Figure:
    """One line of the table."""

    name: str
    measured: float
    unit: str
    limit: float
    at_least: bool = False

    def __str__(self) -> str:
        ok = self.measured >= self.limit if self.at_least else self.measured <= self.limit
        bound = ("≥ " if self.at_least else "≤ ") + f"{self.limit:,.0f}"
        verdict = "ok" if ok else "MISSED"
        return f"{self.name:<58}{self.measured:>12,.1f} {self.unit:<8}{bound:>10}   {verdict}"


@dataclass(frozen=True)
class InMemory:
    """A document store without any I/O."""

    documents: Any = None
    tickets: Any = None
    destinations: dict[str, frozenset[str]] = field(default_factory=dict)

    def read_document(self, path: str) -> None:
        return None


class NoApprovals:
    def find(self, request: Any) -> None:
        return None


def decisions() -> Iterator[Figure]:
    """Time D1 to D6 of an allowed `docs_read`: in process, the starter rules and two, no I/O."""
    clock = SystemClock()
    catalogue = desk_catalogue("0")
    facts = InMemory(documents=InMemory())
    with tempfile.TemporaryDirectory() as folder:
        starter = importlib.resources.files("limen.servers.desk") / "starter"
        for file in starter.iterdir():
            (Path(folder) / file.name).write_bytes(file.read_bytes())
        for team in ("sales", "workshop"):
            (Path(folder) / f"40-{team}.cedar").write_text(
                f'@id("team-{team}") permit (principal in Role::"team-{team}", action in'
                ' [Action::"docs_read", Action::"docs_update"],'
                f' resource in Folder::"team/{team}");'
            )
        policies = CedarPolicies.load(Path(folder), schema_of("desk"), clock=clock, on_change=print)
        if policies.status().count != 10:
            raise SystemExit("these are not 10 policies")
        steps = [
            Audience(LocalCaller(Caller("local", frozenset({"staff"}), catalogue.scopes()))),
            Budget(FairBudget(10**9, 0, ["local"], clock)),
            Reach(catalogue),
            Shape.of(catalogue, Limits()),
            PolicyStep(policies, lambda: facts),
            ApprovalStep(NoApprovals(), clock, "desk", timedelta(hours=24)),  # type: ignore[arg-type]
        ]

        async def timed(paths: Callable[[int], str], rounds: int) -> float:
            times = []
            for number in range(rounds):
                arguments = {"path": paths(number)}
                call = Call("x", NOW, "stdio", "", "", "tools/call", "docs_read", arguments)
                start = time.perf_counter_ns()
                walk = Walk(call)
                for step in steps:
                    verdict = await step.decide(walk)
                times.append(time.perf_counter_ns() - start)
                if walk.policy is None or not walk.policy.allowed:
                    raise SystemExit(f"unexpected verdict: {verdict}")
            return statistics.median(times) / 1_000

        # Neither is told from the other by what the machine does meanwhile: they take turns.
        rounds = [
            (
                asyncio.run(timed(lambda _: "public/a.txt", 2_000)),
                asyncio.run(timed(lambda n, r=turn: f"public/{r}-{n}.txt", 1_000)),
            )
            for turn in range(9)
        ]
        cached, uncached = (statistics.median(times) for times in zip(*rounds, strict=True))
    yield Figure("decisions D1 to D6, policy decision cached", cached, "µs", 25)
    yield Figure("decisions D1 to D6, policy decision not cached", uncached, "µs", 110)


def audit() -> Iterator[Figure]:
    """Time durable rows of 64 concurrent callers, each waiting for its own commit."""

    async def burst(log: Any, each: int) -> float:
        async def one(caller: int) -> None:
            for number in range(each):
                await log.write(sample_row(f"{caller}-{number}"))

        start = time.perf_counter()
        await asyncio.gather(*(one(caller) for caller in range(64)))
        return 64 * each / (time.perf_counter() - start)

    rates = []
    for _ in range(5):
        with tempfile.TemporaryDirectory() as folder, open_house(Path(folder), Settings()) as house:
            rates.append(asyncio.run(burst(house.log, 200)))
    yield Figure("durable audit rows, 64 callers", statistics.median(rates), "rows/s", 5_000, True)


def sample_row(row_id: str) -> AuditRow:
    return AuditRow(
        row_id,
        NOW,
        "done",
        "desk",
        "stdio",
        "2026-07-28",
        "local",
        "bench/1",
        "tools/call",
        "docs_read",
        "allow",
        "d7_audit",
        "allowed",
        "",
        "sha-256:" + "0" * 64,
        "sha-256:" + "0" * 64,
        ("staff-read",),
        "",
        120,
    )


def spoken(request_id: int, tool: str, **arguments: str) -> bytes:
    params = {"name": tool, "arguments": arguments, "_meta": META}
    message = {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}
    return json.dumps(message).encode() + b"\n"


def served(data: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "LIMEN_BUDGET__CAPACITY": "1000000"}
    command = [sys.executable, "-m", "limen", "serve", "desk", "--data", str(data)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, bufsize=0
    )


def seeded(folder: str) -> Path:
    data = Path(folder) / "data"
    command = [sys.executable, "-m", "limen", "desk", "seed", "--data", str(data)]
    subprocess.run(command, check=True, capture_output=True)
    return data


def start() -> Iterator[Figure]:
    """Time from the start of the process to the answer of its first call."""
    times = []
    with tempfile.TemporaryDirectory() as folder:
        data = seeded(folder)
        for number in range(7):
            begun = time.perf_counter()
            child = served(data)
            if child.stdin is None or child.stdout is None:
                raise SystemExit("no pipes")
            child.stdin.write(spoken(number, "docs_read", path="public/handbook.txt"))
            if b'"ok":true' not in child.stdout.readline():
                raise SystemExit("the first call was not answered as expected")
            times.append(time.perf_counter() - begun)
            child.stdin.close()
            child.wait(10)
    yield Figure(
        "`limen serve desk`, start to first answer", statistics.median(times) * 1e3, "ms", 1_200
    )


def memory(calls: int = 100_000) -> Iterator[Figure]:
    """Read the resident size after many calls over one pipe, half of them refused."""
    with tempfile.TemporaryDirectory() as folder:
        child = served(seeded(folder))
        pipe_in, pipe_out = child.stdin, child.stdout
        if pipe_in is None or pipe_out is None:
            raise SystemExit("no pipes")
        begun = time.perf_counter()
        lines = [
            spoken(1, "docs_read", path="public/handbook.txt"),
            spoken(2, "docs_read", path="private/customer-secrets.txt"),
        ]
        window, answered = 64, 0
        for first in range(0, calls, window):
            batch = min(window, calls - first)
            pipe_in.write(
                b"".join(
                    lines[n % 2].replace(b'"id": ', b'"id": %d' % (first + n)) for n in range(batch)
                )
            )
            waiting = batch
            while waiting:
                chunk = pipe_out.read(1 << 20)
                waiting -= chunk.count(b"\n")
            answered += batch
        rate = answered / (time.perf_counter() - begun)
        status = Path(f"/proc/{child.pid}/status").read_text()
        resident_kb = int(status.partition("VmRSS:")[2].split()[0])
        pipe_in.close()
        child.wait(10)
    yield Figure(
        f"resident size after {calls:,} calls", resident_kb / 1024, "MiB", 110 * 1e6 / 2**20
    )
    yield Figure("calls over one pipe, 64 in flight (no promise)", rate, "calls/s", 0, True)


def verified(rows: int = 200_000) -> Iterator[Figure]:
    """Time `limen audit verify` on a trail of many rows."""

    async def fill(log: Any) -> None:
        for first in range(0, rows, 5_000):
            await asyncio.gather(
                *(log.write(sample_row(f"r-{n}")) for n in range(first, first + 5_000))
            )

    with tempfile.TemporaryDirectory() as folder:
        with open_house(Path(folder), Settings()) as house:
            asyncio.run(fill(house.log))
            path, key = house.store_path, house.signer.vkey
        rates = []
        for _ in range(3):
            begun = time.perf_counter()
            report = verify(path, expected_vkey=key)
            rates.append(report.rows / (time.perf_counter() - begun))
            if not report.ok:
                raise SystemExit(f"the trail does not verify: {report.finding}")
    yield Figure("`limen audit verify`", statistics.median(rates), "rows/s", 100_000, True)


def coverage() -> Iterator[Figure]:
    """Time a certificate over 27 years, everything delivered."""
    calendar, reach = target(), SourceReach(None, None, NOW)
    first, last = date(1999, 1, 4), date(2025, 12, 31)
    days = calendar.open_days(first, last)
    delivered = Days.of(days)
    life = SeriesLife(first, None, ())
    times = []
    for _ in range(2_000):
        begun = time.perf_counter()
        found = certify(
            calendar,
            life,
            reach,
            requested_from=first,
            requested_to=last,
            delivered=delivered,
            evaluated_at=NOW,
            source="",
        )
        times.append(time.perf_counter() - begun)
        if not found.complete:
            raise SystemExit("this certificate is not complete")
    yield Figure("certificate over 27 years", statistics.median(times) * 1e6, "µs", 200)


def callers(number: int = 100_000) -> Iterator[Figure]:
    """Weigh and time a budget with many named callers and their quotas."""
    code = (
        "import sys, time, statistics\n"
        "from limen.app import SystemClock\n"
        "from limen.decisions.d2_budget import FairBudget, Quotas\n"
        "clock, number = SystemClock(), int(sys.argv[1])\n"
        "def kb(): return int(open('/proc/self/status').read().partition('VmRSS:')[2].split()[0])\n"
        "before = kb()\n"
        "names = [f'agent-{n}' for n in range(number)]\n"
        "budget, quotas = FairBudget(1e9, 0, names, clock), Quotas(10**6, 10**6, clock)\n"
        "for name in names: quotas.take(name); budget.reserve(name, 1)\n"
        "begun = time.perf_counter()\n"
        "for name in names: quotas.take(name); budget.reserve(name, 1)\n"
        "each = (time.perf_counter() - begun) / number\n"
        "print((kb() - before) / 1024, each * 1e6)\n"
    )

    def ran(count: int) -> tuple[float, float]:
        command = [sys.executable, "-c", code, str(count)]
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        weight, each = map(float, out.split())
        return weight, each

    runs = [(ran(number), ran(100)) for _ in range(3)]
    weight = statistics.median(many[0] for many, _ in runs)
    many = statistics.median(many[1] for many, _ in runs)
    few = statistics.median(few[1] for _, few in runs)
    yield Figure(f"{number:,} distinct callers in the budget", weight, "MiB", 100 * 1e6 / 2**20)
    yield Figure("one charge and quota, that many callers", many, "µs", 25)
    yield Figure("the same with 100 callers (no promise)", few, "µs", 1e9)


def over_http() -> Iterator[Figure]:
    """Compare the full boundary with the bare SDK."""
    from wire import compare

    for name, measured, unit, limit, at_least in compare():
        yield Figure(name, measured, unit, limit, at_least)


PARTS: dict[str, Callable[[], Iterator[Figure]]] = {
    "decisions": decisions,
    "audit": audit,
    "start": start,
    "memory": memory,
    "verify": verified,
    "coverage": coverage,
    "callers": callers,
    "http": over_http,
}


def main(chosen: list[str]) -> int:
    """Print the table, and return 1 when a promise was missed."""
    missed = 0
    for name in chosen or PARTS:
        for figure in PARTS[name]():
            print(figure, flush=True)
            missed += "MISSED" in str(figure)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
