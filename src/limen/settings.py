"""The owner's settings: read once, checked once, frozen.

They come from one TOML file and from `LIMEN_*` variables, which win: `LIMEN_BUDGET__CAPACITY=10`
is `capacity = 10` under `[budget]`. `limen.example.toml` shows all of them.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings import SettingsError as SourceError

from limen.errors import SettingsError

SETTINGS_FILE = "limen.toml"
STORE_FILE = "limen.db"
KEY_FILE = "audit.key"
"""What is in the data folder."""

SECRET = re.compile(r"pass(word|phrase)|secret|token|credential|authorization|api_?key|cookie")
"""Argument names that never reach the audit trail, whatever the owner lists."""

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$")]
"""A name that policies, rows and messages can carry as it is."""


def _usable(path: Path) -> Path:
    if "\0" in str(path):
        raise ValueError("a path has no NUL in it")
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise ValueError(f"there is no such user: `{path.parts[0]}`") from error


OwnPath = Annotated[Path, AfterValidator(_usable)]
"""A path of this machine, with `~` written out. A relative one starts from the settings' folder."""


CallerName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@/-]{0,127}$")]
"""Who calls over HTTP: a name of ours, or `issuer/name` for one of an outside issuer."""

Address = Annotated[str, Field(pattern=r"^https?://[^/?#@\s]+$")]
"""Scheme and host, perhaps a port."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Local(_Part):
    """Who calls over stdio: the process that started us vouches for it, the wire never does."""

    id: Name = Field(default="local", examples=['id = "local"'])
    roles: frozenset[Name] = Field(default=frozenset({"staff"}), examples=['roles = ["staff"]'])
    grants: frozenset[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_.-]*:[a-z][a-z0-9_.-]*$")]] = (
        Field(
            default=frozenset(
                {"desk:read", "desk:write", "desk:export", "rates:read", "series:list"}
            ),
            examples=['grants = ["desk:read", "desk:write", "rates:read"]'],
        )
    )


class BudgetSettings(_Part):
    """What callers may spend: `capacity` calls at once, `refill_per_second` afterwards.

    Over stdio the one caller has all of it. Over HTTP each of `callers` has an equal share of
    `reserve_fraction` of it for itself; the rest is for all. `weights` are what calls of some
    tools cost instead of 1. `calls_per_minute` and `calls_per_day` bound each caller besides.
    """

    capacity: int = Field(default=600, ge=1, le=1_000_000, examples=["capacity = 600"])
    refill_per_second: float = Field(
        default=10.0, ge=0, le=1_000_000, examples=["refill_per_second = 10"]
    )
    callers: tuple[CallerName, ...] = Field(default=(), examples=['callers = ["agent-alpha"]'])
    reserve_fraction: float = Field(default=0.5, gt=0, le=1, examples=["reserve_fraction = 0.5"])
    weights: Mapping[str, Annotated[int, Field(ge=1, le=1_000)]] = Field(
        default={}, examples=["weights = { rates_window = 2 }"]
    )
    calls_per_minute: int | None = Field(
        default=None, ge=1, le=1_000_000, examples=["calls_per_minute = 120"]
    )
    calls_per_day: int | None = Field(
        default=None, ge=1, le=1_000_000_000, examples=["calls_per_day = 10000"]
    )


class LimitSettings(_Part):
    """How large a message may be, in bytes."""

    max_message: int = Field(
        default=1024 * 1024, ge=4096, le=64 * 1024 * 1024, examples=["max_message = 1048576"]
    )


class AuditSettings(_Part):
    """What the trail keeps. `keep` lists arguments as `tool.argument`; secrets are never kept."""

    keep: tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+\.[A-Za-z0-9_-]+$")], ...] = Field(
        default=(), examples=['keep = ["docs_read.path"]']
    )
    rows_for_lists: bool = Field(default=False, examples=["rows_for_lists = true"])
    origin: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9./-]{2,100}$")] | None = Field(
        default=None, examples=['origin = "audit.example.com/limen"']
    )

    @field_validator("keep")
    @classmethod
    def _no_secrets(cls, fields: tuple[str, ...]) -> tuple[str, ...]:
        for field in fields:
            if SECRET.search(field.rpartition(".")[2].lower()):
                raise ValueError(f"`{field}` names a secret, which is never kept")
        return fields


class FolderSettings(_Part):
    """A destination that is a folder of this machine."""

    kind: Literal["folder"]
    path: OwnPath = Field(examples=['path = "outgoing"'])
    groups: frozenset[Name] = Field(default=frozenset(), examples=['groups = ["partners"]'])


class HttpSettings(_Part):
    """A destination that takes one POST. `hosts` are the host names that may be sent to."""

    kind: Literal["http"]
    url: str = Field(examples=['url = "https://partner.example/inbox"'])
    hosts: frozenset[str] = Field(examples=['hosts = ["partner.example"]'])
    timeout_s: float = Field(default=10.0, gt=0, le=120, examples=["timeout_s = 10"])
    groups: frozenset[Name] = Field(default=frozenset(), examples=['groups = ["partners"]'])


Destination = Annotated[FolderSettings | HttpSettings, Field(discriminator="kind")]


class DeskSettings(_Part):
    """The desk.

    `policies` is the folder of its rules, by default `policies/desk` in the data folder. Without
    `destinations` there is one, `partner`: the folder `outgoing` in the data folder.
    """

    policies: OwnPath | None = Field(default=None, examples=['policies = "policies/desk"'])
    destinations: Mapping[Name, Destination] | None = Field(
        default=None, examples=['partner-inbox = { kind = "folder", path = "outgoing" }']
    )
    approval_expiry_hours: float = Field(
        default=24.0, gt=0, le=24 * 365, examples=["approval_expiry_hours = 24"]
    )


class EcbSettings(_Part):
    """The reference rates.

    `source` is where they come from: the ECB's data portal, the history that is shipped with us,
    or a folder of recorded answers, which `recordings` names. `base_url` is the portal's host.
    `policies` is the folder of the rules, by default `policies/ecb` in the data folder.
    """

    source: Literal["portal", "history", "recordings"] = Field(
        default="portal", examples=['source = "history"']
    )
    recordings: OwnPath | None = Field(default=None, examples=['recordings = "recorded/ecb"'])
    base_url: str = Field(
        default="https://data-api.ecb.europa.eu",
        pattern=r"^https?://[^/?#@]+$",
        examples=['base_url = "https://data-api.ecb.europa.eu"'],
    )
    policies: OwnPath | None = Field(default=None, examples=['policies = "policies/ecb"'])


class ServingSettings(_Part):
    """Serving over HTTP.

    `public_url` is what callers write, without a path: hosts, origins and the resources that
    tokens are for follow from it. Without it, it is the address that is served at.
    """

    public_url: Address | None = Field(
        default=None, examples=['public_url = "https://mcp.example.com"']
    )
    origins: frozenset[Address] = Field(
        default=frozenset(), examples=['origins = ["https://app.example.com"]']
    )
    stateful: bool = Field(default=False, examples=["stateful = true"])
    sse: bool = Field(default=False, examples=["sse = true"])


class IssuerSettings(_Part):
    """An outside issuer whose tokens are accepted: its name, and where its keys are.

    `lists_allowed` takes an `aud` that is a list of exactly this resource; `any_typ` takes tokens
    that do not say that they are access tokens.
    """

    issuer: str = Field(pattern=r"^https?://", examples=['issuer = "https://login.example.com"'])
    keys_url: str = Field(
        pattern=r"^https?://", examples=['keys_url = "https://login.example.com/jwks.json"']
    )
    algorithms: frozenset[Literal["RS256", "ES256", "EdDSA"]] = Field(
        default=frozenset({"RS256", "ES256", "EdDSA"}),
        min_length=1,
        examples=['algorithms = ["ES256"]'],
    )
    lists_allowed: bool = Field(default=False, examples=["lists_allowed = true"])
    any_typ: bool = Field(default=False, examples=["any_typ = true"])
    roles_claim: str | None = Field(default=None, examples=['roles_claim = "roles"'])


class Settings(BaseSettings):
    """All settings."""

    model_config = SettingsConfigDict(
        env_prefix="LIMEN_", env_nested_delimiter="__", frozen=True, extra="forbid"
    )

    local: Local = Local()
    budget: BudgetSettings = BudgetSettings()
    limits: LimitSettings = LimitSettings()
    audit: AuditSettings = AuditSettings()
    desk: DeskSettings = DeskSettings()
    ecb: EcbSettings = EcbSettings()
    http: ServingSettings = ServingSettings()
    issuers: Mapping[Name, IssuerSettings] = Field(
        default={},
        examples=['main = { issuer = "https://login.example.com", keys_url = "https://…" }'],
    )

    def policies_of(self, server: str) -> Path | None:
        """Return the folder of a server's rules as it was set, None for its usual place."""
        return {"desk": self.desk.policies, "ecb": self.ecb.policies}[server]

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Let variables win over the file; nothing else is a source."""
        return env_settings, init_settings


def data_dir(given: Path | None) -> Path:
    """Return where the store lives: `--data`, else `LIMEN_DATA`, else the user's state folder."""
    chosen = given or os.environ.get("LIMEN_DATA")
    if not chosen:
        # Imported here: it costs 25 ms, and a served desk is told where its data is.
        import platformdirs

        chosen = platformdirs.user_state_dir("limen")
    return Path(chosen).expanduser().absolute()


def settings_file(given: Path | None, data: Path) -> Path | None:
    """Return the settings file: `--config`, else `LIMEN_CONFIG`, else `limen.toml` in the data.

    None when nothing is given and the last is not there.

    Raises:
        SettingsError: a file was named but is not there.
    """
    named = given or os.environ.get("LIMEN_CONFIG")
    if not named:
        usual = data / SETTINGS_FILE
        # Fails closed: one that is there but cannot be read must not mean the wide defaults.
        return usual if os.path.lexists(usual) else None
    file = Path(named).expanduser().absolute()
    if not os.path.lexists(file):
        raise SettingsError(f"cannot read settings `{file}`: file does not exist")
    return file


def load(file: Path | None) -> Settings:
    """Read and check the settings.

    Raises:
        SettingsError: one line that names the file, the key and what to write instead.
    """
    written = {} if file is None else _written(file)
    _refuse_unknown_variables()
    try:
        return Settings(**written)
    except RecursionError as error:
        raise SettingsError("variables `LIMEN_*`: one nests too deeply") from error
    except SourceError as error:
        raise SettingsError(
            f"variables `LIMEN_*`: {_one_line(error).partition(' from source')[0]}:"
            ' write lists and tables as JSON, such as `["staff"]`'
        ) from error
    except ValidationError as error:
        raise SettingsError(_described(error, file)) from error


def _written(file: Path) -> dict[str, Any]:
    try:
        if file.exists() and not file.is_file():
            raise SettingsError(f"cannot read settings `{file}`: it is not a regular file")
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise SettingsError(f"cannot read settings `{file}`: it nests too deeply") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"cannot read settings `{file}`: {_one_line(error)}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"cannot read settings `{file}`: it is not UTF-8") from error
    except OSError as error:
        raise SettingsError(f"cannot read settings `{file}`: {error.strerror}") from error


def _refuse_unknown_variables() -> None:
    sections = tuple(name.upper() for name in Settings.model_fields)
    known = (
        "LIMEN_DATA",
        "LIMEN_CONFIG",
        "LIMEN_LOG",
        "LIMEN_TOKEN",
        *(f"LIMEN_{name}" for name in sections),
    )
    for variable in sorted(os.environ):
        if variable.startswith("LIMEN_") and variable.partition("__")[0] not in known:
            near = difflib.get_close_matches(variable.partition("__")[0], known, n=1, cutoff=0.8)
            instead = f"`{near[0]}`" if near else "one of " + ", ".join(f"`{one}`" for one in known)
            raise SettingsError(f"variable `{variable}`: there is no such setting: write {instead}")


def _described(error: ValidationError, file: Path | None) -> str:
    """Say of the first wrong setting where it stands, what is wrong, and what to write."""
    first = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"] if part not in ("folder", "http", "[key]"))
    known = dict(_keys(Settings))
    place = _place(key, file)
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
        instead = f"`{near[0]}`" if near else "one of " + ", ".join(f"`{name}`" for name in known)
        return f"{place}: there is no setting `{key}`: write {instead}"
    reason = _one_line(first["msg"]).removeprefix("Value error, ")
    return (
        f"{place}: setting `{key}` does not fit: {reason[:1].lower()}{reason[1:]};"
        f" write for example `{_example(key, known)}`"
    )


def _example(key: str, known: Mapping[str, str]) -> str:
    for name in _from_exact_to_wide(key):
        if name in known:
            break
    else:
        return f"[{key}]"
    last = key.rpartition(".")[2]
    for model in (FolderSettings, HttpSettings):
        if name == "desk.destinations" and last in model.model_fields:
            return str((model.model_fields[last].examples or [known[name]])[0])
    return known[name]


def _place(key: str, file: Path | None) -> str:
    variables = ["LIMEN_" + name.replace(".", "__").upper() for name in _from_exact_to_wide(key)]
    for variable in variables:
        if variable in os.environ:
            return f"variable `{variable}`"
    return f"settings `{file}`" if file is not None else "settings"


def _from_exact_to_wide(key: str) -> Iterator[str]:
    while key:
        yield key
        key = key.rpartition(".")[0]


def _keys(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _keys(field.annotation, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", str((field.examples or [""])[0])


def _one_line(said: object) -> str:
    return " ".join(str(said).split())
