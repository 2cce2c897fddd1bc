"""`limen token`: bearer tokens for clients that have no other way to get one."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from limen.cli.call import known_server
from limen.cli.session import NAME, Config, Data, Json, Person, open_house, person
from limen.cli.show import clean, print_json, print_table
from limen.errors import LimenError

if TYPE_CHECKING:
    from limen.tokens.opaque import StoredToken

app = typer.Typer(help="Make, list and revoke bearer tokens.", no_args_is_help=True)

SHOWN = 12
"""Characters of a digest that name a token here."""

LISTED = 1_000


@app.command()
def issue(
    server: Annotated[str, typer.Argument(help="Which server it is for: `desk` or `ecb`.")],
    caller: Annotated[str, typer.Option(help="Who will call with it.")],
    scope: Annotated[
        list[str] | None, typer.Option(help="What it grants. Default: what the server asks for.")
    ] = None,
    role: Annotated[list[str] | None, typer.Option(help="Roles for the owner's rules.")] = None,
    days: Annotated[float, typer.Option(min=0.001, max=3650, help="How long it is good.")] = 30,
    label: Annotated[str, typer.Option(help="A note for yourself.")] = "",
    port: Annotated[int, typer.Option(help="The server's port, without `public_url`.")] = 8931,
    as_person: Person = None,
    data: Data = None,
    config: Config = None,
) -> None:
    """Make a token and print it, this once. Only its digest is kept."""
    from limen.app.web import SCOPES
    from limen.cli.web import public_url_at
    from limen.tokens.opaque import StoredToken, digest_of, new_token

    known_server(server)
    for name in (caller, *(role or ())):
        if not NAME.match(name):
            raise typer.BadParameter(
                f"`{clean(name)}` is no name: write 1 to 64 of A-Z, a-z, 0-9, `.`, `_`, `@`, `-`"
            )
    known_scopes = _scopes(server)
    for word in scope or ():
        if word not in known_scopes:
            known = ", ".join(f"`{one}`" for one in sorted(known_scopes))
            raise typer.BadParameter(
                f"`{server}` has no scope `{clean(word)}`: write some of {known}"
            )
    with open_house(data, config) as house:
        now = house.clock.now()
        token = new_token(secrets.token_bytes)
        stored = StoredToken(
            digest=digest_of(token),
            caller=caller,
            scopes=frozenset(scope or SCOPES[server]),
            roles=frozenset(role or ()),
            resource=f"{public_url_at('127.0.0.1', port, house.settings)}/{server}/mcp",
            label=label[:200],
            created_at=now,
            expires_at=now + timedelta(days=days),
        )
        house.write_tokens("token/issue", person(as_person), lambda tokens: tokens.add(stored))
    typer.echo(token)


@app.command("list")
def list_(
    caller: Annotated[str | None, typer.Option(help="Only those of one caller.")] = None,
    data: Data = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """List tokens, the newest first: never the token itself."""
    with open_house(data, config, must_exist=True) as house:
        now = house.clock.now()
        rows = []
        for token in house.tokens().list(LISTED, caller):
            state = "revoked" if token.revoked_at else "good"
            if state == "good" and token.expires_at <= now:
                state = "expired"
            rows.append(_row(token, state))
    if as_json:
        print_json(rows)
    else:
        names = ("id", "state", "caller", "resource", "expires_at", "label")
        print_table(names, [tuple(clean(row[name]) for name in names) for row in rows])


@app.command()
def revoke(
    token_id: Annotated[
        str | None, typer.Argument(metavar="ID", help="The id, as `limen token list` shows it.")
    ] = None,
    caller: Annotated[str | None, typer.Option(help="Revoke all of one caller.")] = None,
    as_person: Person = None,
    data: Data = None,
    config: Config = None,
) -> None:
    """Revoke tokens. A server that runs takes at most a minute to forget one that it knows."""
    if (token_id is None) == (caller is None):
        raise typer.BadParameter("say the id of a token, or `--caller NAME`")
    with open_house(data, config, must_exist=True) as house:
        by, now = person(as_person), house.clock.now()
        if caller is not None:
            done = house.write_tokens(
                "token/revoke", by, lambda tokens: tokens.revoke_all_of(caller, now)
            )
        else:
            digest = _digest_of(token_id or "", house.tokens().list(LISTED * 100))
            done = house.write_tokens(
                "token/revoke", by, lambda tokens: int(tokens.revoke(digest, now))
            )
    typer.echo(f"revoked: {done}")
    if not done:
        raise typer.Exit(1)


def _scopes(server: str) -> frozenset[str]:
    from limen.app import all_catalogues

    return next(found.scopes() for found in all_catalogues() if found.server == server)


def _row(token: StoredToken, state: str) -> dict[str, Any]:
    return {
        "id": token.digest[:SHOWN],
        "state": state,
        "caller": token.caller,
        "scopes": sorted(token.scopes),
        "roles": sorted(token.roles),
        "resource": token.resource,
        "created_at": token.created_at.isoformat(timespec="seconds"),
        "expires_at": token.expires_at.isoformat(timespec="seconds"),
        "label": token.label,
    }


def _digest_of(token_id: str, tokens: Sequence[StoredToken]) -> str:
    found = [token.digest for token in tokens if token.digest.startswith(token_id)]
    if len(token_id) < SHOWN or len(found) != 1:
        raise LimenError(f"there is no token `{clean(token_id)}`: see `limen token list`")
    return found[0]
