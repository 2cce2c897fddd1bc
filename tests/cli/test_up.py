"""`limen up`, `serve --http`, `call --url` and `token`, as a new user runs them."""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import re
import shlex
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from promised import promise
from web import WebChild, call, going_up, post, serving_http
from wire import limen

DAY = {"day": "2026-04-03"}


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebChild]:
    with going_up(tmp_path_factory.mktemp("up")) as child:
        yield child


def url_of(child: WebChild, server: str = "ecb") -> str:
    return str(child.manifest["servers"][server]["url"])


def token_of(child: WebChild, caller: str, server: str = "ecb") -> str:
    return str(child.manifest["tokens"][server][caller])


def structured(response: httpx.Response) -> dict[str, Any]:
    found: dict[str, Any] = response.json()["result"]["structuredContent"]
    return found


def spend(url: str, token: str) -> int:
    """Return how many calls were answered before the first that was over budget."""
    answered = 0
    while structured(call(url, token, "calendar_why", **DAY)).get("error") != "over_budget":
        answered += 1
        assert answered < 500, "nothing ever refused"
    return answered


def test_the_printed_line_answers_with_rates_and_their_certificate(up: WebChild) -> None:
    [line] = re.findall(r"^curl .*$", up.said, re.MULTILINE)
    done = subprocess.run(shlex.split(line), capture_output=True, timeout=20, check=True)
    said = json.loads(done.stdout)["result"]["structuredContent"]
    assert said["observations"][0] == ["2026-03-30", 1.1484]
    assert said["coverage"]["complete"] is True


def test_the_printed_configuration_names_each_server_with_a_token_that_works(up: WebChild) -> None:
    found = re.search(r"^\{\n.*?^\}", up.said, re.MULTILINE | re.DOTALL)
    assert found is not None
    for server in json.loads(found[0])["mcpServers"].values():
        token = server["headers"]["Authorization"].removeprefix("Bearer ")
        assert "tools" in post(server["url"], token, "tools/list", {}).json()["result"]


def test_the_manifest_is_its_owners_alone_and_names_no_real_party(
    up: WebChild, tmp_path: Path
) -> None:
    with going_up(tmp_path) as child:
        mode = stat.S_IMODE(os.stat(tmp_path / "tokens.json").st_mode)
        assert mode == 0o600
        manifest = child.manifest
    assert manifest["issuer"].endswith(".invalid")
    assert manifest["budget"] == {
        "capacity": 60,
        "refill_per_second": 1,
        "reserve_fraction": 0.5,
        "callers": ["agent-alpha", "agent-beta"],
        "clock": "running",
    }
    assert set(manifest["tokens"]["ecb"]) >= {
        "agent-alpha",
        "agent-beta",
        "owner",
        "other_resource",
        "two_resources",
        "no_audience",
        "expired",
        "wrong_issuer",
        "unsigned",
        "no_scope",
    }
    assert manifest["servers"]["ecb"]["resource"] == manifest["servers"]["ecb"]["url"]


def test_tokens_are_not_written_where_they_could_be_committed(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    inside = tmp_path / "deep"
    inside.mkdir()
    told = ("--data", str(tmp_path / "data"), "--tokens-file", str(inside / "tokens.json"))
    done = limen("up", "--offline", "--port", "0", *told)
    assert done.returncode == 1
    assert "git work tree" in done.stderr
    assert list(inside.iterdir()) == []


@promise("fair-share")
def test_the_greedy_caller_leaves_the_quiet_one_exactly_its_reserve(tmp_path: Path) -> None:
    with going_up(tmp_path, "--frozen-clock") as child:
        url = url_of(child)
        budget = child.manifest["budget"]
        reserve = budget["capacity"] * budget["reserve_fraction"] / len(budget["callers"])
        spare = budget["capacity"] * (1 - budget["reserve_fraction"])
        assert spend(url, token_of(child, "agent-alpha")) == reserve + spare == 45
        assert spend(url, token_of(child, "owner")) == 0
        assert spend(url, token_of(child, "agent-beta")) == reserve == 15
        desk = url_of(child, "desk")
        one = call(desk, token_of(child, "agent-alpha", "desk"), "tickets_get", ticket_id="T-1")
        assert structured(one)["error"] != "over_budget"


@promise("one-audience")
@pytest.mark.parametrize(
    "kind",
    [
        "other_resource",
        "two_resources",
        "list_of_one",
        "no_audience",
        "expired",
        "wrong_issuer",
        "unsigned",
    ],
)
@pytest.mark.parametrize("revision", ["2026-07-28", "2025-06-18"])
def test_a_token_that_is_not_exactly_for_this_server_is_401_with_one_text(
    up: WebChild, kind: str, revision: str
) -> None:
    answer = post(url_of(up), token_of(up, kind), "tools/list", {}, revision)
    assert answer.status_code == 401
    assert answer.json()["error"]["message"] == "this bearer token is not valid here"
    assert 'error="invalid_token"' in answer.headers["www-authenticate"]


def test_a_token_of_one_server_opens_no_other(up: WebChild) -> None:
    answer = post(url_of(up, "desk"), token_of(up, "agent-alpha"), "tools/list", {})
    assert answer.status_code == 401


def test_only_the_owner_sees_the_catalogue_of_series(up: WebChild) -> None:
    url = url_of(up)

    def names(caller: str) -> set[str]:
        listed = post(url, token_of(up, caller), "tools/list", {}).json()["result"]["tools"]
        return {tool["name"] for tool in listed}

    assert names("owner") - names("agent-alpha") == {"series_catalogue"}
    assert names("no_scope") == set()
    hidden = call(url, token_of(up, "agent-beta"), "series_catalogue")
    made_up = call(url, token_of(up, "agent-beta"), "no_such_tool")
    assert hidden.content == made_up.content
    assert hidden.status_code == made_up.status_code


def test_metadata_names_the_resource_and_only_what_callers_may_ask_for(up: WebChild) -> None:
    found = httpx.get(f"{up.url}/.well-known/oauth-protected-resource/ecb/mcp").json()
    assert found["resource"] == url_of(up)
    assert found["scopes_supported"] == ["rates:read"]
    assert httpx.get(f"{up.url}/health/ready").json() == {"status": "ready"}


def test_a_call_from_the_command_line_over_http_prints_the_answer(up: WebChild) -> None:
    words = ("call", "--url", url_of(up), "calendar_why", "day=2026-04-03")
    done = limen(*words, "--token", token_of(up, "agent-beta"))
    assert done.returncode == 0, done.stderr
    assert "closed_because: good-friday" in done.stdout
    quiet = limen(*words, env={**os.environ, "LIMEN_TOKEN": token_of(up, "agent-beta")})
    assert quiet.stdout.splitlines()[:2] == done.stdout.splitlines()[:2]
    refused = limen(*words, "--token", token_of(up, "expired"))
    assert refused.returncode == 1
    assert refused.stdout == "refused: this bearer token is not valid here (40100)\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("call", "--url", "http://127.0.0.1:9", "x"), "cannot call"),
        (("call", "--url", "nonsense", "x"), "cannot call"),
        (("call", "--token", "x", "ecb", "x"), "`--token` goes with `--url`"),
        (("call", "nowhere", "x"), "there is no server `nowhere`"),
        (("up", "--host", "203.0.113.1"), "cannot serve at"),
        (("up", "--host", "0.0.0.0", "--port", "0"), "public_url"),
        (("up", "--port", "70000"), "less than or equal to 65535"),
        (("serve", "ecb", "--http", "--host", "0.0.0.0", "--port", "0"), "public_url"),
        (("token", "issue", "pse", "--caller", "x"), "there is no server `pse`"),
        (("token", "issue", "ecb", "--caller", "a b"), "is no name"),
        (("token", "issue", "ecb", "--caller", "a", "--scope", "desk:read"), "has no scope"),
        (("token", "revoke"), "say the id"),
    ],
)
def test_wrong_words_are_told_what_to_write(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    more = () if words[0] == "call" else ("--data", str(tmp_path))
    done = limen(*words, *more)
    assert done.returncode in (1, 2)
    assert said in " ".join(done.stderr.replace("│", " ").split())
    assert "Traceback" not in done.stderr


def test_a_port_that_is_taken_is_one_line(up: WebChild, tmp_path: Path) -> None:
    port = up.url.rpartition(":")[2]
    done = limen("up", "--offline", "--port", port, "--data", str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.startswith(f"limen: cannot serve at `127.0.0.1:{port}`: ")
    assert done.stderr.count("\n") == 1


def test_a_token_is_shown_once_and_listed_by_its_digest_alone(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path))
    token = limen("token", "issue", "ecb", "--caller", "alice", *data).stdout.strip()
    [row] = json.loads(limen("token", "list", "--json", *data).stdout)
    assert (row["caller"], row["state"], row["scopes"]) == ("alice", "good", ["rates:read"])
    assert token not in json.dumps(row)
    assert all(token.encode() not in file.read_bytes() for file in tmp_path.glob("limen.db*"))
    assert limen("token", "revoke", "0" * 12, *data).returncode == 1
    assert limen("token", "revoke", row["id"], *data).stdout == "revoked: 1\n"
    assert "revoked" in limen("token", "list", *data).stdout


@promise("spent-stays-spent")
def test_what_was_spent_stays_spent_after_a_restart(tmp_path: Path) -> None:
    environment = {
        "LIMEN_ECB__SOURCE": "history",
        "LIMEN_BUDGET__CAPACITY": "5",
        "LIMEN_BUDGET__REFILL_PER_SECOND": "0",
    }
    with serving_http("ecb", tmp_path, **environment) as child:
        port = child.url.rpartition(":")[2]
        words = ("token", "issue", "ecb", "--caller", "alice", "--port", port)
        token = limen(*words, "--data", str(tmp_path)).stdout.strip()
        url = f"{child.url}/ecb/mcp"
        for _ in range(3):
            assert structured(call(url, token, "calendar_why", **DAY))["ok"] is True
        assert child.end() == 0
    with serving_http("ecb", tmp_path, "--port", port, **environment):
        assert spend(url, token) == 2


def test_a_revoked_token_is_refused_by_a_server_that_starts_afterwards(tmp_path: Path) -> None:
    environment = {"LIMEN_ECB__SOURCE": "history"}
    with serving_http("ecb", tmp_path, **environment) as child:
        port = child.url.rpartition(":")[2]
        words = ("token", "issue", "ecb", "--caller", "alice", "--port", port)
        token = limen(*words, "--data", str(tmp_path)).stdout.strip()
        assert limen("token", "revoke", "--caller", "alice", "--data", str(tmp_path)).stdout == (
            "revoked: 1\n"
        )
        assert call(f"{child.url}/ecb/mcp", token, "calendar_why", **DAY).status_code == 401


@pytest.mark.parametrize("sign", [2, 15])
def test_it_ends_on_a_signal_with_all_rows_written(tmp_path: Path, sign: int) -> None:
    with going_up(tmp_path) as child:
        call(url_of(child), token_of(child, "agent-alpha"), "calendar_why", **DAY)
        assert child.end(sign) == 0
        assert "Traceback" not in child.said
    verified = limen("audit", "verify", "--data", str(tmp_path / "data"))
    assert verified.returncode == 0, verified.stdout
    listed = limen("audit", "list", "--json", "--data", str(tmp_path / "data")).stdout
    rows = json.loads(listed)["entries"]
    assert rows[0]["tool"] == "calendar_why"
    assert (rows[0]["caller"], rows[0]["transport"]) == ("agent-alpha", "http")


def test_what_a_caller_over_http_asked_for_is_sent_once_after_a_person_approves(
    tmp_path: Path,
) -> None:
    with going_up(tmp_path) as child:
        url, token = url_of(child, "desk"), token_of(child, "agent-alpha", "desk")
        export = {"path": "public/handbook.txt", "destination": "partner"}
        held = structured(call(url, token, "export", **export))
        assert held["error"] == "pending_approval"
        data = ("--data", str(tmp_path / "data"))
        done = limen("approvals", "approve", held["approval"], "--as", "boss", *data)
        assert done.stdout.splitlines()[-1] == f"delivered: {held['approval']}", done.stderr
        assert structured(call(url, token, "export", **export))["state"] == "delivered"
        assert len(list((tmp_path / "data" / "outgoing").iterdir())) == 1


def test_an_approval_of_a_caller_whose_token_was_revoked_is_not_carried_out(
    tmp_path: Path,
) -> None:
    data = ("--data", str(tmp_path))
    assert limen("desk", "seed", *data).returncode == 0
    with serving_http("desk", tmp_path) as child:
        port = child.url.rpartition(":")[2]
        words = ("token", "issue", "desk", "--caller", "alice", "--role", "staff", "--port", port)
        token = limen(*words, *data).stdout.strip()
        export = {"path": "public/handbook.txt", "destination": "partner"}
        held = structured(call(f"{child.url}/desk/mcp", token, "export", **export))
        assert held["error"] == "pending_approval"
        assert limen("token", "revoke", "--caller", "alice", *data).returncode == 0
        done = limen("approvals", "approve", held["approval"], "--as", "boss", *data)
        assert done.returncode == 1
        assert "may not ask for it any more" in done.stderr


@pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="needs the extra: limen[plot]"
)
@pytest.mark.parametrize("revision", ["2026-07-28", "2025-03-26"])
def test_a_chart_reaches_the_client_as_a_picture_beside_its_numbers(
    up: WebChild, revision: str
) -> None:
    arguments = {"currency": "USD", "start": "2026-03-30", "end": "2026-04-10"}
    params = {"name": "rates_chart", "arguments": arguments}
    answer = post(url_of(up), token_of(up, "agent-beta"), "tools/call", params, revision)
    text, picture = answer.json()["result"]["content"]
    assert json.loads(text["text"])["coverage"]["complete"] is True
    assert (picture["type"], picture["mimeType"]) == ("image", "image/png")
    assert base64.b64decode(picture["data"]).startswith(b"\x89PNG")
