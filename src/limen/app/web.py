"""Composition of what is served over HTTP: doors, endpoints, and the site around them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from limen.answers.calendars import target
from limen.app import Desk, Door, House, all_catalogues, build_desk, new_call_id
from limen.app.ecb import Rates, build_ecb
from limen.catalogue import Catalogue
from limen.decisions.d1_audience import BearerCaller
from limen.decisions.d2_budget import FairBudget, Quotas
from limen.errors import SettingsError
from limen.gate import Gate
from limen.ports import CallerReader, Clock
from limen.servers.ecb.history import History
from limen.settings import BudgetSettings, Settings
from limen.store.budget import Balances, BudgetTable
from limen.store.database import Connection
from limen.tokens.jwt import JwtReader, TrustedIssuer
from limen.tokens.keys import MAX_KEY_SET, FetchedKeys
from limen.tokens.opaque import OpaqueReader
from limen.tokens.reader import BearerTokens, TokenReader
from limen.transport.envelope import Envelope
from limen.transport.http import HttpEndpoint, Switches
from limen.transport.site import Mounted, Site, challenge
from limen.upstream.documents import fetch_document
from limen.version import __version__

SCOPES: Mapping[str, tuple[str, ...]] = {
    "ecb": ("rates:read",),
    "desk": ("desk:read", "desk:write", "desk:export"),
}
"""The scopes that a server asks for, by server. What only some hold is not told."""

SAVE_EVERY_S = 1.0
"""Seconds between two savings of what callers have left, at least; a crash forgets that much."""


class Served(Protocol):
    """A server, put together."""

    @property
    def catalogue(self) -> Catalogue:
        """Return what it offers."""

    @property
    def gate(self) -> Gate:
        """Return its gate."""


@dataclass(frozen=True)
class Web:
    """What is served at one public URL: which servers, who vouches, and whose clock counts.

    `trusted` are issuers besides those of the settings. `budget_clock` is what budgets refill
    by; with one of its own they start full and are not kept. `offline` asks nobody for anything.
    """

    house: House
    public_url: str
    servers: Sequence[str]
    trusted: Sequence[TrustedIssuer] = ()
    budget: BudgetSettings | None = None
    budget_clock: Clock | None = None
    offline: bool = False

    def resource(self, server: str) -> str:
        """Return what tokens for a server name: its public URL."""
        return f"{self.public_url}/{server}/mcp"


@dataclass(frozen=True)
class Opened:
    """A site with the servers in it. The desk is None where it is not served."""

    site: Site
    desk: Desk | None = None
    titles: Mapping[str, str] = field(default_factory=dict)


def open_web(web: Web) -> Opened:
    """Put servers, doors and site together.

    Raises:
        LimenError: a setting, a rule or an issuer cannot be used.
    """
    house, http = web.house, web.house.settings.http
    _refuse_unknown_weights(house.settings.budget.weights)
    issuers = [*web.trusted, *trusted_issuers(house.settings, house.clock)]
    at_end: list[Callable[[], Awaitable[None]]] = []
    mounted: list[Mounted] = []
    desk: Desk | None = None
    for server in web.servers:
        door = _open_door(web, server, issuers)
        served: Desk | Rates
        if server == "ecb":
            served = build_ecb(house, door, History(target()) if web.offline else None)
            at_end.append(served.close)
        else:
            served = desk = build_desk(house, door)
        mounted.append(
            mount(
                served,
                f"/{server}/mcp",
                web.resource(server),
                door.callers,
                issuers=[one.issuer for one in issuers],
                scopes=SCOPES[server],
                clock=house.clock,
                max_message=house.settings.limits.max_message,
                switches=Switches(stateful=http.stateful, sse=http.sse),
            )
        )
    site = Site(web.public_url, mounted, origins=sorted(http.origins), at_end=at_end)
    return Opened(site, desk, {one.path: one.title for one in mounted})


def trusted_issuers(settings: Settings, clock: Clock) -> list[TrustedIssuer]:
    """Return the outside issuers that the settings name.

    Raises:
        IssuerError, KeysError: one cannot be trusted as it is set up.
    """
    return [
        TrustedIssuer(
            issuer=one.issuer,
            keys=FetchedKeys(one.keys_url, _fetch_keys, clock),
            algorithms=frozenset(one.algorithms),
            lists_allowed=one.lists_allowed,
            any_typ=one.any_typ,
            roles_claim=one.roles_claim,
            name=name,
        )
        for name, one in settings.issuers.items()
    ]


async def _fetch_keys(url: str) -> bytes:
    return await fetch_document(url, MAX_KEY_SET)


def _open_door(web: Web, server: str, issuers: Sequence[TrustedIssuer]) -> Door:
    house = web.house
    settings = web.budget or house.settings.budget
    clock = web.budget_clock or house.clock
    budget = FairBudget(
        settings.capacity,
        settings.refill_per_second,
        settings.callers,
        clock,
        reserve_fraction=settings.reserve_fraction if settings.callers else 0,
    )
    quotas = None
    if settings.calls_per_minute is not None or settings.calls_per_day is not None:
        quotas = Quotas(settings.calls_per_minute, settings.calls_per_day, house.clock)
    if web.budget_clock is None:
        _keep_balances(house, server, budget, quotas)
    readers: list[TokenReader] = [
        OpaqueReader(lambda digest: house.tokens().find(digest), house.clock)
    ]
    if issuers:
        readers.append(JwtReader(issuers, house.clock))
    tokens = BearerTokens(web.resource(server), readers, house.clock)
    return Door(BearerCaller(tokens), budget, quotas, settings.weights)


def _keep_balances(house: House, server: str, budget: FairBudget, quotas: Quotas | None) -> None:
    """Go on with what callers had left, and write it down with the rows that spend it."""
    kept = BudgetTable(house.reader.connection()).find(server)
    now = house.clock.now()
    if kept is not None:
        budget.restore(kept.levels, (now - kept.saved_at).total_seconds())
        if quotas is not None:
            quotas.restore(kept.days, kept.saved_at)
    saved_at: datetime | None = None

    def save(connection: Connection, is_last: bool) -> None:
        nonlocal saved_at
        now = house.clock.now()
        if not is_last and saved_at is not None and (now - saved_at).total_seconds() < SAVE_EVERY_S:
            return
        saved_at = now
        days = {} if quotas is None else quotas.days()
        BudgetTable(connection).save(server, Balances(budget.levels(), days, now))

    house.log.trail.take_along(save)


def _refuse_unknown_weights(weights: Iterable[str]) -> None:
    known = {name for catalogue in all_catalogues() for name in catalogue.tools}
    for name in weights:
        if name not in known:
            raise SettingsError(
                f"setting `budget.weights` names `{name}`, which is no tool:"
                f" write some of {', '.join(f'`{one}`' for one in sorted(known))}"
            )


def mount(
    server: Served,
    path: str,
    resource: str,
    callers: CallerReader,
    *,
    issuers: Sequence[str],
    scopes: Sequence[str],
    clock: Clock,
    max_message: int,
    switches: Switches,
) -> Mounted:
    """Return a server at a path. `resource` is what tokens for it name; it is its public URL."""
    catalogue = server.catalogue
    envelope = Envelope(catalogue.server, catalogue.title, __version__, "http", clock, new_call_id)
    endpoint = HttpEndpoint(
        server.gate,
        envelope,
        callers,
        max_message=max_message,
        challenge=challenge(resource, scopes),
        switches=switches,
    )
    return Mounted(path, endpoint, resource, catalogue.title, tuple(issuers), tuple(scopes))
