"""Settings: read once, checked once, frozen; what is wrong is told in one line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from limen.errors import SettingsError
from limen.settings import Settings, data_dir, load, settings_file

ROOT = Path(__file__).parent.parent


def refused(tmp_path: Path, text: str) -> str:
    file = tmp_path / "limen.toml"
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load(file)
    said = str(caught.value)
    assert "\n" not in said
    return said.removeprefix(f"settings `{file}`: ")


def test_the_example_holds_the_defaults() -> None:
    assert load(ROOT / "limen.example.toml") == Settings()


def test_nothing_given_is_the_defaults() -> None:
    assert load(None) == Settings()
    assert Settings().local.id == "local"


def test_settings_cannot_change() -> None:
    with pytest.raises(ValidationError):
        Settings().local = Settings().local  # type: ignore[misc]


def test_a_variable_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "limen.toml"
    file.write_text('[budget]\ncapacity = 3\nrefill_per_second = 2\n[local]\nroles = ["a"]\n')
    monkeypatch.setenv("LIMEN_BUDGET__CAPACITY", "7")
    monkeypatch.setenv("LIMEN_LOCAL__ROLES", '["b"]')
    settings = load(file)
    assert (settings.budget.capacity, settings.budget.refill_per_second) == (7, 2)
    assert settings.local.roles == {"b"}


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("LIMEN_BUDGET__CAPACITY", "many", "variable `LIMEN_BUDGET__CAPACITY`: setting `budget"),
        ("LIMEN_LOCAL__ROLES", "staff", "write lists and tables as JSON"),
        ("LIMEN_BUDGET__CAPACTY", "1", "write `budget.capacity`"),
        ("LIMEN_BUDGTE__CAPACITY", "1", "there is no such setting: write `LIMEN_BUDGET`"),
        ("LIMEN_NONSENSE", "x", "there is no such setting: write one of `LIMEN_DATA`"),
        ("LIMEN_BUDGET", "[" * 100_000, "nests too deeply"),
    ],
)
def test_a_wrong_variable_is_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError, match=said):
        load(None)


def test_each_wrong_setting_says_what_to_write(tmp_path: Path) -> None:
    assert refused(tmp_path, "[budget]\ncapacity = 0\n").endswith("`capacity = 600`")
    assert refused(tmp_path, "budget = 3\n").endswith("write for example `[budget]`")
    assert refused(tmp_path, "[budgets]\n").startswith("there is no setting `budgets`")
    assert refused(tmp_path, '[desk.destinations.a]\nkind = "http"\nurl = "x"\n').endswith(
        '`hosts = ["partner.example"]`'
    )
    assert "is not UTF-8" in refused_bytes(tmp_path, b"\xff")


def refused_bytes(tmp_path: Path, raw: bytes) -> str:
    file = tmp_path / "limen.toml"
    file.write_bytes(raw)
    with pytest.raises(SettingsError) as caught:
        load(file)
    return str(caught.value)


def test_where_settings_and_data_are_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert settings_file(None, tmp_path) is None
    (tmp_path / "limen.toml").touch()
    assert settings_file(None, tmp_path) == tmp_path / "limen.toml"
    monkeypatch.setenv("LIMEN_CONFIG", str(tmp_path / "none.toml"))
    with pytest.raises(SettingsError, match="file does not exist"):
        settings_file(None, tmp_path)
    monkeypatch.setenv("LIMEN_DATA", str(tmp_path / "data"))
    assert data_dir(None) == tmp_path / "data"
    assert data_dir(tmp_path) == tmp_path


@pytest.mark.parametrize("kind", ["dangling", "loop", "folder", "pipe"])
def test_settings_that_are_there_but_no_file_are_never_taken_for_none(
    tmp_path: Path, kind: str
) -> None:
    file = tmp_path / "limen.toml"
    if kind == "folder":
        file.mkdir()
    elif kind == "pipe":
        os.mkfifo(file)
    else:
        file.symlink_to(file if kind == "loop" else tmp_path / "none")
    with pytest.raises(SettingsError, match="cannot read settings"):
        load(settings_file(None, tmp_path))


def test_absurd_settings_are_told_in_one_line(tmp_path: Path) -> None:
    assert "nests too deeply" in refused(tmp_path, "a = " + "[" * 5_000)
    assert "there is no such user" in refused(tmp_path, '[desk]\npolicies = "~nosuchuser/x"\n')
    assert "a path has no NUL" in refused(tmp_path, '[desk]\npolicies = "a\\u0000b"\n')
