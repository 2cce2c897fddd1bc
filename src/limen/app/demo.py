"""What `limen up` shows: an issuer that vouches for nobody real, three callers, one manifest.

The issuer's key is in this process's memory alone; its tokens end with it, or after an hour.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from limen.app import House
from limen.app.web import Opened, Web, open_web
from limen.errors import LimenError
from limen.ports import Clock
from limen.servers.desk.seed import seed
from limen.settings import BudgetSettings
from limen.tokens.issuer import ROLES_CLAIM, DemoIssuer
from limen.tokens.jwt import TrustedIssuer

SERVERS = ("ecb", "desk")

CALLERS = ("agent-alpha", "agent-beta")
"""Those with a reserve. `owner` has none, and is granted all that there is."""

OWNER = "owner"

GRANTS: Mapping[str, frozenset[str]] = {
    "ecb": frozenset({"rates:read"}),
    "desk": frozenset({"desk:read", "desk:write", "desk:export"}),
}
"""The scopes of the two callers, by server."""

EXAMPLES: Mapping[str, Mapping[str, Any]] = {
    "ecb": {"tool": "calendar_why", "arguments": {"day": "2026-04-03"}},
    "desk": {"tool": "docs_read", "arguments": {"path": "public/handbook.txt"}},
}
"""A call of each server that is answered, for whoever tries it from outside."""

HIDDEN: Mapping[str, tuple[str, ...]] = {"ecb": ("series_catalogue",)}
"""The tools that exist for the owner alone, by server."""

OWNERS_ALONE: Mapping[str, frozenset[str]] = {"ecb": frozenset({"series:list"})}

ROLES = ("staff",)
"""The role of everyone here. Not the owner's own: what is private stays theirs."""

BUDGET = BudgetSettings(capacity=60, refill_per_second=1, callers=CALLERS, reserve_fraction=0.5)


@dataclass(frozen=True)
class FrozenClock:
    """Tell the time of another clock, while the seconds stand still."""

    clock: Clock

    def now(self) -> datetime:
        """Return the time of day."""
        return self.clock.now()

    def monotonic(self) -> float:
        """Return the same seconds each time."""
        return 0.0


@dataclass(frozen=True)
class Demo:
    """The servers, put together, and all that a proof or a person needs to call them."""

    web: Web
    opened: Opened
    manifest: Mapping[str, Any]

    def token(self, server: str, caller: str) -> str:
        """Return the token of a caller for a server."""
        return str(self.manifest["tokens"][server][caller])


def open_demo(house: House, public_url: str, *, offline: bool, frozen_clock: bool) -> Demo:
    """Put the servers together with an issuer of their own. An empty desk is seeded.

    Raises:
        LimenError: a setting or a rule cannot be used.
    """
    issuer = DemoIssuer(house.clock)
    _seed_if_empty(house)
    web = Web(
        house,
        public_url,
        SERVERS,
        (TrustedIssuer(issuer.issuer, issuer.public_keys(), roles_claim=ROLES_CLAIM),),
        BUDGET,
        FrozenClock(house.clock) if frozen_clock else None,
        offline,
    )
    opened = open_web(web)
    manifest = {
        "issuer": issuer.issuer,
        "servers": {
            server: {
                "url": web.resource(server),
                "resource": web.resource(server),
                "example": EXAMPLES[server],
                "hidden": {caller: list(HIDDEN.get(server, ())) for caller in CALLERS},
            }
            for server in SERVERS
        },
        "budget": {
            "capacity": BUDGET.capacity,
            "refill_per_second": BUDGET.refill_per_second,
            "reserve_fraction": BUDGET.reserve_fraction,
            "callers": list(CALLERS),
            "clock": "frozen" if frozen_clock else "running",
        },
        "tokens": {server: _tokens(issuer, server, web.resource(server)) for server in SERVERS},
    }
    return Demo(web, opened, manifest)


def _tokens(issuer: DemoIssuer, server: str, resource: str) -> dict[str, str]:
    grants = GRANTS[server]
    tokens = {caller: issuer.mint(caller, resource, grants, roles=ROLES) for caller in CALLERS}
    everything = grants | OWNERS_ALONE.get(server, frozenset())
    tokens[OWNER] = issuer.mint(OWNER, resource, everything, roles=ROLES)
    tokens["no_scope"] = issuer.mint(CALLERS[0], resource, (), roles=ROLES)
    return tokens | issuer.mint_refused(CALLERS[0], resource, grants)


def _seed_if_empty(house: House) -> None:
    tables = house.tables()
    if not tables.list_documents("", 1, ""):
        house.write_tables("desk/seed", OWNER, lambda own: seed(own, own, house.clock.now()))


def refuse_in_work_tree(file: Path) -> None:
    """Refuse a place for tokens that somebody could commit.

    Raises:
        LimenError: the file would lie in a git work tree.
    """
    folder = file.absolute().parent.resolve()
    for outer in (folder, *folder.parents):
        if (outer / ".git").exists():
            raise LimenError(
                f"cannot write tokens to `{file}`: it lies in the git work tree `{outer}`,"
                " from where they could be committed; name a file elsewhere"
            )


def write_manifest(manifest: Mapping[str, Any], file: Path) -> None:
    """Write the manifest, readable by its owner alone, whole or not at all.

    Raises:
        LimenError: it cannot be written.
    """
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            json.dump(manifest, opened, indent=1)
            opened.write("\n")
        beside.replace(file)
    except OSError as error:
        beside.unlink(missing_ok=True)
        reason = (error.strerror or str(error)).lower()
        raise LimenError(f"cannot write tokens to `{file}`: {reason}") from error
