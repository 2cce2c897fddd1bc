"""Composition: who keeps each port. The only room that names a concrete store."""

from __future__ import annotations

import contextlib
import importlib.resources
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

from limen.backends.native import Native, ViewOf
from limen.canonical import digest
from limen.catalogue import Catalogue
from limen.decisions.d1_audience import Audience, LocalCaller
from limen.decisions.d2_budget import Budget, FairBudget, Quotas
from limen.decisions.d3_reach import Reach
from limen.decisions.d4_shape import Limits, Shape
from limen.decisions.d5_policy import CedarPolicies, PolicyStep
from limen.decisions.d6_approval import ApprovalStep
from limen.decisions.d7_audit import Audit
from limen.errors import LimenError, SettingsError, StoreError
from limen.gate import Gate, Row
from limen.ports import CallerReader, Clock, Entity, Ledger, PolicyResource, Transaction
from limen.review import Review
from limen.servers.desk.tools import desk_catalogue, documents_page
from limen.servers.desk.views import DeskView
from limen.settings import KEY_FILE, STORE_FILE, FolderSettings, HttpSettings, Settings
from limen.store.approvals import ApprovalTable, StoredApprovals
from limen.store.audit import AuditLog, AuditReader, MerkleTrail, connection_of
from limen.store.database import Connection, Database, Reader, ReadOnlyDatabase
from limen.store.desk import DeskTables
from limen.store.note import NoteSigner
from limen.store.outbox import OutboxReader, OutboxTable
from limen.store.tokens import TokenTable
from limen.store.writer import Writer
from limen.version import __version__
from limen.walk import Walk
from limen.words import Answer, Approval, ApprovalRequest, AuditRow, Caller

T = TypeVar("T")

RANDOM_IDS = 256
"""Random parts of ids that are made at once."""

LOCK_FILE = "outbox.lock"

MOST_TOKENS = 1_000
"""Tokens of one caller that are looked at. Nobody needs a tenth of that."""


class SystemClock:
    """Tell the time of this machine."""

    def now(self) -> datetime:
        """Return the time of day, aware UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return time.monotonic()


class CallIds:
    """Make ids for calls: they sort by time to the millisecond, and cannot be guessed."""

    def __init__(self) -> None:
        self._random: list[str] = []

    def __call__(self) -> str:
        """Return the next id. Safe to call from any thread."""
        while True:
            try:
                return f"{time.time_ns() // 1_000_000:012x}-{self._random.pop()}"
            except IndexError:
                # Many at once: asking the system for randomness costs more than all else here.
                text = secrets.token_hex(8 * RANDOM_IDS)
                self._random += [text[at : at + 16] for at in range(0, len(text), 16)]


new_call_id = CallIds()


def new_approval_id() -> str:
    """Return an id for an approval, short enough to be typed."""
    return f"ap-{secrets.token_hex(6)}"


@dataclass(frozen=True)
class House:
    """One data directory, open: the store, its one writer and the trail. Close it in the end."""

    data: Path
    settings: Settings
    base: Path
    """The folder that relative paths in the settings start from."""
    clock: Clock
    reader: Reader
    signer: NoteSigner
    log: AuditLog
    tell: Callable[[str], None]
    """Told what the owner should know while we serve, in one line each."""

    @property
    def store_path(self) -> Path:
        """Return where the store's file is."""
        return self.data / STORE_FILE

    @cached_property
    def audit_reader(self) -> AuditReader:
        """Return what looks through the trail."""
        return AuditReader(self.reader.database)

    @cached_property
    def approvals(self) -> StoredApprovals:
        """Return what keeps the approvals."""
        return StoredApprovals(self.reader, self.clock, new_approval_id)

    def list_approvals(self, limit: int, state: str | None = None) -> list[Approval]:
        """Return up to `limit` approvals, those asked for last before the others."""
        return ApprovalTable(self.reader.connection()).newest(limit, state)

    def find_approval(self, approval_id: str) -> Approval | None:
        """Return an approval, or None."""
        return ApprovalTable(self.reader.connection()).find(approval_id)

    def tables(self) -> DeskTables:
        """Return the desk's tables for reading."""
        return DeskTables(self.reader.connection())

    def write_tables(self, method: str, by: str, work: Callable[[DeskTables], int]) -> int:
        """Let an owner's command write to the desk's tables, in one transaction with its row."""
        return self._write("desk", method, by, lambda connection: work(DeskTables(connection)))

    def write_tokens(self, method: str, by: str, work: Callable[[TokenTable], T]) -> T:
        """Let an owner's command write tokens, in one transaction with its row."""
        return self._write("", method, by, lambda connection: work(TokenTable(connection)))

    def tokens(self) -> TokenTable:
        """Return the tokens for reading."""
        return TokenTable(self.reader.connection())

    def _write(self, server: str, method: str, by: str, work: Callable[[Connection], T]) -> T:
        row = AuditRow(
            id=new_call_id(),
            at=self.clock.now(),
            state="done",
            server=server,
            transport="cli",
            revision="",
            caller=by,
            client="limen",
            method=method,
            tool="",
            decision="allow",
            step="d7_audit",
            reason="allowed",
        )
        return self.log.write_with_now(
            lambda transaction: work(connection_of(transaction)), lambda _: row
        )

    def close(self) -> None:
        """Commit all that was handed over, and close."""
        self.log.close()
        self.reader.close()


@contextlib.contextmanager
def open_house(
    data: Path,
    settings: Settings,
    *,
    base: Path | None = None,
    clock: Clock | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Iterator[House]:
    """Open a data directory, made now if there is none, and close it at the end.

    Raises:
        StoreError: the store cannot be opened or written.
        NoteError: the key of the audit trail cannot be used.
    """
    _make_folder(data)
    clock = clock or SystemClock()
    path = data / STORE_FILE
    database = Database(path)
    database.create()
    fresh = f"limen.invalid/{secrets.token_hex(4)}"
    expected = settings.audit.origin
    signer = NoteSigner.load_or_create(
        data / KEY_FILE, expected or fresh, only_if_new=expected is None
    )
    trail = MerkleTrail(signer, clock)
    log = AuditLog(Writer(database, trail), trail)
    house = House(data, settings, base or data, clock, Reader(database), signer, log, tell)
    try:
        yield house
    finally:
        house.close()


@dataclass(frozen=True)
class Door:
    """How callers come in: who vouches for them, and what they may spend."""

    callers: CallerReader
    budget: Ledger
    quotas: Quotas | None = None
    weights: Mapping[str, int] = field(default_factory=dict)


def local_door(settings: Settings, clock: Clock) -> Door:
    """Return the door of a stdio server: one caller, who has all of the budget."""
    caller = local_caller(settings)
    budget = settings.budget
    return Door(
        LocalCaller(caller),
        FairBudget(
            budget.capacity, budget.refill_per_second, [caller.id], clock, reserve_fraction=1
        ),
    )


@dataclass(frozen=True)
class Desk:
    """The desk server, put together: its gate, its rules, its person's door and its deliveries."""

    house: House
    catalogue: Catalogue
    policies: CedarPolicies
    native: Native
    row: Row
    gate: Gate
    review: Review

    def local_caller(self) -> Caller:
        """Return who calls over stdio, by the settings."""
        return local_caller(self.house.settings)

    def resource_of(self, tool: str, arguments: Any, caller: Caller) -> PolicyResource:
        """Return what a call would be about, as D5 looks it up.

        Raises:
            LimenError: there is no such tool, or the arguments do not fit it or name nothing.
        """
        entry = self.catalogue.tools.get(tool)
        if entry is None:
            known = ", ".join(f"`{name}`" for name in self.catalogue.tools)
            raise LimenError(f"there is no tool `{tool}`: write one of {known}")
        flaw = self.row.d4_shape.compiled["tool", tool].first_flaw(arguments)
        if flaw is not None:
            raise LimenError(flaw.public)
        if entry.resource is None:
            return PolicyResource(Entity("Tool", tool))
        resource = entry.resource(self.native.view_of(None, caller.id, ""), arguments)
        if isinstance(resource, Answer):
            said = resource.result or {}
            raise LimenError(f"the arguments name nothing: {said.get('message', resource.code)}")
        return resource

    async def close(self) -> None:
        """Do nothing: all that is open is the house's."""

    def drain(self) -> Mapping[str, int]:
        """Send all that was approved and is still here, and count how it ended.

        Blocks while another process is at it. Raises what `deliver` raises.
        """
        # Imported here: the HTTP client costs 0.1 s at start, and most starts have nothing to send.
        from limen.servers.desk.delivery import deliver

        house = self.house
        outbox = OutboxReader(house.reader.database)
        ways = destinations(house.settings, house.data, house.base)
        return deliver(outbox, ways, house.data / LOCK_FILE, self._change)

    def has_something_to_send(self) -> bool:
        """Tell whether anything approved is still here."""
        outbox = OutboxReader(self.house.reader.database)
        return bool(outbox.keys_in("queued") or outbox.keys_in("sending"))

    def why_not_sent(self, approval_id: str) -> str:
        """Return what became of what an approval queued, in words; empty if it queued nothing."""
        item = OutboxReader(self.house.reader.database).find(approval_id)
        return "" if item is None else item.detail

    def _change(self, key: str, from_state: str, to_state: str, detail: str) -> bool:
        """Move an item of the outbox on, its approval too, in one transaction with the row."""
        now = self.house.clock.now()

        # Whatever is looked up is looked up in the transaction: this runs in a thread of its own.
        def work(transaction: Transaction) -> tuple[bool, Approval | None]:
            connection = connection_of(transaction)
            approvals = ApprovalTable(connection)
            moved = OutboxTable(connection).mark(key, from_state, to_state, detail, now)
            if moved and to_state != "sending":
                approvals.end(key, to_state)
            return moved, approvals.find(key)

        def row_of(done: tuple[bool, Approval | None]) -> AuditRow | None:
            moved, approval = done
            return self._delivery_row(key, approval, to_state, detail, now) if moved else None

        return self.house.log.write_with_now(work, row_of)[0]

    def _delivery_row(
        self, key: str, approval: Approval | None, state: str, detail: str, at: datetime
    ) -> AuditRow:
        return AuditRow(
            # INVARIANT: one delivery has one id: `started` when it is sent, `done` when it ended.
            id=f"delivery-{key}",
            at=at,
            state="started" if state == "sending" else "done",
            server=self.catalogue.server,
            transport="outbox",
            revision="",
            caller="" if approval is None else approval.request.caller,
            client="limen",
            method="outbox/deliver",
            tool="" if approval is None else approval.request.tool,
            decision="allow",
            step="d7_audit",
            reason=state,
            private=detail[:500],
            approval=key,
        )


def build_desk(house: House, door: Door | None = None) -> Desk:
    """Put the desk together, by default for the one caller over stdio.

    Raises:
        PolicyError: a rule cannot be used.
        SettingsError: a setting names what is not there.
    """
    settings, clock = house.settings, house.clock
    door = door or local_door(settings, clock)
    catalogue = desk_catalogue(__version__)
    policies = load_policies(house, "desk", settings.desk.policies)
    found = places(settings, house.data)
    if any(where.kind == "http" for where in found.values()):
        # Only these can be wrong in themselves; a folder may be made while we serve.
        destinations(settings, house.data, house.base)
    if settings.desk.destinations is None:
        _make_folder(house.data / "outgoing")
    groups = {name: where.groups for name, where in found.items()}
    setups = {name: setup_of(name, where, house.base) for name, where in found.items()}

    def view_of(transaction: Transaction | None, caller: str, key: str) -> DeskView:
        connection = (
            house.reader.connection() if transaction is None else connection_of(transaction)
        )
        tables = DeskTables(connection)
        outbox = OutboxTable(connection)
        return DeskView(tables, tables, outbox, groups, caller, clock.now(), key, setups)

    native = Native(catalogue, policies, view_of, list_resources=documents_page)
    row = row_of(
        house,
        catalogue,
        policies,
        native.view_of,
        door,
        timedelta(hours=settings.desk.approval_expiry_hours),
    )

    def resource_in(transaction: Transaction, walk: Walk) -> PolicyResource | Answer:
        resource = walk.entered().resource
        if resource is None:
            raise LookupError("a held tool names no resource")
        return resource(view_of(transaction, walk.caller.id, ""), walk.arguments)

    review = Review(
        catalogue,
        native,
        resource_in,
        policies,
        partial(_asker_now, house),
        house.approvals,
        row.d7_audit,
        house.log.write_with_now,
        clock,
        new_call_id,
    )
    return Desk(house, catalogue, policies, native, row, Gate(row, native, clock), review)


def _asker_now(house: House, request: ApprovalRequest) -> Caller | None:
    """Return who asked, with what they held then and still hold as far as this house knows.

    What was revoked since is gone. Of a caller of an outside issuer nothing newer is known.
    """
    if request.transport != "http":
        local = local_caller(house.settings)
        return local if local.id == request.caller else None
    asked = Caller(request.caller, frozenset(request.roles), frozenset(request.scopes))
    now = house.clock.now()
    tokens = house.tokens().list(MOST_TOKENS, request.caller)
    if not tokens:
        return asked
    good = [one for one in tokens if one.revoked_at is None and one.expires_at > now]
    roles = frozenset(role for one in good for role in one.roles)
    scopes = frozenset(scope for one in good for scope in one.scopes)
    return Caller(asked.id, asked.roles & roles, asked.scopes & scopes)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        reason = (error.strerror or "").lower()
        raise StoreError(f"cannot make folder `{folder}`: {reason}") from error


def local_caller(settings: Settings) -> Caller:
    """Return who calls over stdio."""
    return Caller(settings.local.id, settings.local.roles, settings.local.grants)


def places(settings: Settings, data: Path) -> Mapping[str, FolderSettings | HttpSettings]:
    """Return where the desk can send to as it is set up, or the one place of an owner who said
    nothing: the folder `outgoing` in the data folder, in the group that the starter rules name.
    """
    if settings.desk.destinations is not None:
        return settings.desk.destinations
    outgoing = FolderSettings(kind="folder", path=data / "outgoing", groups=frozenset({"partners"}))
    return {"partner": outgoing}


def destinations(settings: Settings, data: Path, base: Path) -> dict[str, Any]:
    """Return what sends to each place, by the id of its set-up.

    Raises:
        SettingsError: a destination cannot be used as it is set up.
    """
    # Imported here for the same reason as in `drain`.
    from limen.servers.desk.destinations import FolderDestination, HttpDestination

    found: dict[str, Any] = {}
    for name, where in places(settings, data).items():
        setup = setup_of(name, where, base)
        if isinstance(where, FolderSettings):
            found[setup] = FolderDestination(base / where.path)
        else:
            found[setup] = HttpDestination(where.url, where.hosts, where.timeout_s)
    return found


def setup_of(name: str, where: FolderSettings | HttpSettings, base: Path) -> str:
    """Return the id of a destination as it is set up: its name, and a digest of where it leads.

    What a person approved goes there; set up another way, it is another place.
    """
    leads_to = str(base / where.path) if isinstance(where, FolderSettings) else where.url
    return f"{name}@{digest([where.kind, leads_to]).removeprefix('sha-256:')[:16]}"


def row_of(
    house: House,
    catalogue: Catalogue,
    policies: CedarPolicies,
    view_of: ViewOf,
    door: Door,
    approval_expiry: timedelta,
) -> Row:
    """Return the seven steps of a server whose tools are entries of a catalogue.

    Raises:
        SettingsError: a setting names what is not there.
    """
    clock = house.clock
    return Row(
        Audience(door.callers),
        Budget(door.budget, door.quotas, door.weights, catalogue),
        Reach(catalogue),
        Shape.of(catalogue, Limits()),
        PolicyStep(policies, lambda: view_of(None, "", "")),
        ApprovalStep(house.approvals, clock, catalogue.server, approval_expiry),
        Audit(
            house.log,
            clock,
            catalogue.server,
            keep=kept_fields(house.settings, catalogue),
            rows_for_lists=house.settings.audit.rows_for_lists,
        ),
    )


def load_policies(house: House, server: str, named: Path | None) -> CedarPolicies:
    """Return the rules of a server, its own folder made now if nothing was named.

    Raises:
        PolicyError: a rule cannot be used.
    """
    folder = policy_folder(house.data, house.base, server, named)
    return CedarPolicies.load(folder, schema_of(server), clock=house.clock, on_change=house.tell)


def policy_folder(
    data: Path, base: Path, server: str, named: Path | None, *, make: bool = True
) -> Path:
    """Return the folder of a server's rules; our own is made with the starter rules in it."""
    if named is not None:
        return base / named
    folder = data / "policies" / server
    if make and not folder.exists():
        starter = importlib.resources.files(f"limen.servers.{server}") / "starter"
        _make_folder(folder)
        for file in starter.iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
    return folder


def schema_of(server: str) -> str:
    """Return the Cedar schema that a server's rules are checked by."""
    files = importlib.resources.files(f"limen.servers.{server}")
    return (files / f"{server}.cedarschema").read_text("utf-8")


@dataclass(frozen=True, slots=True)
class Glance:
    """What a store holds, seen without opening it for writing. `head` is a signed checkpoint."""

    entries: int
    head: str | None
    pending: int
    to_send: int
    unconfirmed: int


def glance_at(path: Path) -> Glance:
    """Look into a store and change nothing, not even by making its log files.

    Raises:
        StoreError: it cannot be read.
    """
    database = ReadOnlyDatabase(path)
    trail, outbox = AuditReader(database), OutboxReader(database)
    with database.reading() as connection:
        pending = len(ApprovalTable(connection).newest(10_000, "pending"))
    return Glance(
        trail.size(),
        trail.head(),
        pending,
        len(outbox.keys_in("queued")) + len(outbox.keys_in("sending")),
        len(outbox.keys_in("unconfirmed")),
    )


def kept_fields(settings: Settings, catalogue: Catalogue) -> dict[str, frozenset[str]]:
    """Return the arguments that the owner wants in the rows of a server, by tool.

    Raises:
        SettingsError: no server has a tool or an argument of that name.
    """
    kept: dict[str, set[str]] = {}
    for named in settings.audit.keep:
        tool, _, argument = named.rpartition(".")
        if _has(catalogue, tool, argument):
            kept.setdefault(tool, set()).add(argument)
        elif not any(_has(other, tool, argument) for other in all_catalogues()):
            known = (
                f"{t.name}.{a}"
                for t in catalogue.tools.values()
                for a in t.input_schema["properties"]
            )
            raise SettingsError(
                f"setting `audit.keep` names `{named}`, which is no argument of a tool:"
                f" write some of {', '.join(f'`{name}`' for name in known)}"
            )
    return {tool: frozenset(arguments) for tool, arguments in kept.items()}


def _has(catalogue: Catalogue, tool: str, argument: str) -> bool:
    entry = catalogue.tools.get(tool)
    return entry is not None and argument in entry.input_schema["properties"]


def all_catalogues() -> Iterator[Catalogue]:
    """Yield the catalogue of each server that there is."""
    # Imported here: a server needs the others only for a setting that is not about itself.
    from limen.servers.ecb.tools import ecb_catalogue

    yield desk_catalogue(__version__)
    yield ecb_catalogue(__version__)
