import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from limen.canonical import digest_bytes
from limen.ports import Entity, Page, PolicyResource
from limen.servers.desk import tools
from limen.servers.desk.seed import DOCUMENTS, TICKETS, seed
from limen.servers.desk.tools import desk_catalogue
from limen.servers.desk.views import DeskView
from limen.store.database import Connection, Database
from limen.store.desk import DeskTables
from limen.store.outbox import OutboxTable
from limen.words import INVALID_PARAMS, Answer, Effect

NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Connection]:
    database = Database(tmp_path / "limen.db")
    database.create()
    with database.writing() as connection:
        yield connection


@pytest.fixture
def view(connection: Connection) -> DeskView:
    tables = DeskTables(connection)
    seed(tables, tables, NOON)
    return DeskView(
        documents=tables,
        tickets=tables,
        outbox=OutboxTable(connection),
        destinations={"archive": frozenset({"inside", "backed-up"})},
        author="agent-alpha",
        now=NOON,
        key="approval-1",
    )


def code_of(answer: Any) -> str | None:
    assert isinstance(answer, Answer)
    assert answer.result is not None
    assert answer.result["ok"] is False
    assert answer.result["error"] == answer.code
    return answer.code


def everything(action: str, resource: PolicyResource) -> bool:
    return action == "docs_read"


def only_public(action: str, resource: PolicyResource) -> bool:
    return ("Folder", "public") in resource.entity.parents


# What callers see in lists


def test_the_desk_has_exactly_five_tools() -> None:
    assert list(desk_catalogue("1").tools) == [
        "docs_read",
        "docs_update",
        "export",
        "tickets_add_note",
        "tickets_get",
    ]


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("docs_read", ["path"]),
        ("docs_update", ["content", "path"]),
        ("tickets_get", ["ticket_id"]),
        ("tickets_add_note", ["note", "ticket_id"]),
        ("export", ["destination", "path"]),
    ],
)
def test_every_argument_is_required_and_nothing_else_is_taken(name: str, fields: list[str]) -> None:
    schema = desk_catalogue("1").tools[name].input_schema
    assert sorted(schema["properties"]) == fields
    assert sorted(schema["required"]) == fields
    assert schema["additionalProperties"] is False


def test_content_and_note_are_limited_by_shape_and_path_is_not() -> None:
    catalogue = desk_catalogue("1").tools
    assert catalogue["docs_update"].input_schema["properties"]["content"]["maxLength"] == 16_384
    assert catalogue["tickets_add_note"].input_schema["properties"]["note"]["maxLength"] == 4_000
    path = catalogue["docs_read"].input_schema["properties"]["path"]
    assert "pattern" not in path
    assert path["maxLength"] > 512


def test_annotations_and_scopes_are_those_of_the_specification() -> None:
    catalogue = desk_catalogue("1").tools
    assert {
        name: (str(t.scope), t.effect, t.destructive, t.idempotent, t.open_world, t.held)
        for name, t in catalogue.items()
    } == {
        "docs_read": ("desk:read", Effect.READ, False, True, False, False),
        "docs_update": ("desk:write", Effect.STORE, False, False, False, False),
        "tickets_get": ("desk:read", Effect.READ, False, True, False, False),
        "tickets_add_note": ("desk:write", Effect.STORE, False, False, False, False),
        "export": ("desk:export", Effect.STORE, False, False, True, True),
    }


def test_every_answer_yes_or_no_fits_its_output_schema(view: DeskView) -> None:
    calls: list[tuple[str, dict[str, str]]] = [
        ("docs_read", {"path": "public/handbook.txt"}),
        ("docs_read", {"path": "public/nothing.txt"}),
        ("docs_update", {"path": "drafts/x.txt", "content": "x"}),
        ("docs_update", {"path": "drafts/../x.txt", "content": "x"}),
        ("tickets_get", {"ticket_id": "T-1001"}),
        ("tickets_get", {"ticket_id": "T-2002"}),
        ("tickets_get", {"ticket_id": "T-9"}),
        ("tickets_add_note", {"ticket_id": "T-1001", "note": "x"}),
        ("tickets_add_note", {"ticket_id": "T-9", "note": "x"}),
        ("export", {"path": "public/handbook.txt", "destination": "archive"}),
        ("export", {"path": "public/handbook.txt", "destination": "nowhere"}),
    ]
    for name, arguments in calls:
        entry = desk_catalogue("1").tools[name]
        said = entry.body(view, **arguments)
        answer = said.result if isinstance(said, Answer) else said
        assert entry.output_schema is not None
        jsonschema_rs.validate(dict(entry.output_schema), json.loads(json.dumps(answer)))


# What policy is asked about


def test_a_document_stands_in_its_folders_with_the_digest_of_its_latest_version(
    view: DeskView,
) -> None:
    resource = tools.document_of(view, {"path": "team/support/faq.txt"})
    assert resource == PolicyResource(
        Entity("Document", "team/support/faq.txt", parents=(("Folder", "team/support"),)),
        {},
        (
            Entity("Folder", "team"),
            Entity("Folder", "team/support", parents=(("Folder", "team"),)),
        ),
        digest_bytes(DOCUMENTS["team/support/faq.txt"].encode()),
    )


def test_a_document_that_does_not_exist_is_asked_about_without_a_digest(view: DeskView) -> None:
    resource = tools.document_of(view, {"path": "drafts/new.txt", "content": "four"})
    assert isinstance(resource, PolicyResource)
    assert resource.digest == ""
    assert resource.context == {"size": 4}


@pytest.mark.parametrize(
    "path",
    [
        "public/../private/customer-secrets.txt",
        "./public/handbook.txt",
        "public//handbook.txt",
        "public\\handbook.txt",
        "public/%2e%2e/private/customer-secrets.txt",
        "public/handbook.txt.",
        "public/handbook.txt ",
        "public/handbook.txt\0",
        "public/" + "a" * 5_000,
        "public/U\u0308.txt",
    ],
)
def test_every_other_spelling_is_answered_invalid_path(view: DeskView, path: str) -> None:
    assert code_of(tools.document_of(view, {"path": path})) == "invalid_path"
    assert (
        code_of(tools.export_of(view, {"path": path, "destination": "archive"})) == "invalid_path"
    )
    assert code_of(tools.docs_update.body(view, path=path, content="x")) == "invalid_path"
    assert [d.path for d in view.documents.list_documents("", 100)] == sorted(DOCUMENTS)


def test_a_ticket_names_its_people_as_callers(view: DeskView) -> None:
    resource = tools.ticket_of(view, {"ticket_id": "T-1001"})
    assert resource.entity == Entity(
        "Ticket",
        "T-1001",
        attributes={
            "assignee": {"__entity": {"type": "Caller", "id": "local"}},
            "requester": {"__entity": {"type": "Caller", "id": "requester-one"}},
        },
    )


def test_a_ticket_without_an_assignee_has_no_such_attribute(view: DeskView) -> None:
    resource = tools.ticket_of(view, {"ticket_id": "T-2002"})
    assert sorted(resource.entity.attributes) == ["requester"]


@pytest.mark.parametrize(
    "ticket_id", ["T-9", "T-", "t-1001", "T-12345678901", "T-1001\n", "\ud800"]
)
def test_a_ticket_that_does_not_exist_has_no_people_and_is_not_found(
    view: DeskView, ticket_id: str
) -> None:
    resource = tools.ticket_of(view, {"ticket_id": ticket_id})
    assert resource.entity == Entity("Ticket", ticket_id)
    assert code_of(tools.tickets_get.body(view, ticket_id=ticket_id)) == "not_found"
    added = tools.tickets_add_note.body(view, ticket_id=ticket_id, note="x")
    assert code_of(added) == "not_found"


def test_an_export_names_its_destination_with_its_groups(view: DeskView) -> None:
    resource = tools.export_of(view, {"path": "public/handbook.txt", "destination": "archive"})
    assert isinstance(resource, PolicyResource)
    assert resource.context == {
        "destination": {"__entity": {"type": "Destination", "id": "archive"}}
    }
    assert resource.related == (
        Entity("Folder", "public"),
        Entity("Destination", "archive", parents=(("Group", "backed-up"), ("Group", "inside"))),
    )
    assert resource.digest == digest_bytes(DOCUMENTS["public/handbook.txt"].encode())


def test_an_unknown_destination_is_in_no_group(view: DeskView) -> None:
    resource = tools.export_of(view, {"path": "public/handbook.txt", "destination": "nowhere"})
    assert isinstance(resource, PolicyResource)
    assert resource.related[-1] == Entity("Destination", "nowhere")


# What the tools do


def test_reading_a_document_returns_its_text_and_its_papers(view: DeskView) -> None:
    assert tools.docs_read.body(view, path="public/handbook.txt") == {
        "ok": True,
        "path": "public/handbook.txt",
        "version": 1,
        "digest": digest_bytes(DOCUMENTS["public/handbook.txt"].encode()),
        "written_at": "2026-05-04T12:00:00+00:00",
        "author": "seed",
        "content": DOCUMENTS["public/handbook.txt"],
    }


def test_reading_a_document_that_does_not_exist_is_not_found(view: DeskView) -> None:
    assert code_of(tools.docs_read.body(view, path="public/nothing.txt")) == "not_found"


def test_updating_a_document_adds_a_version_and_keeps_the_earlier_one(view: DeskView) -> None:
    answer = tools.docs_update.body(view, path="public/handbook.txt", content="new")
    assert answer == {
        "ok": True,
        "path": "public/handbook.txt",
        "version": 2,
        "digest": digest_bytes(b"new"),
    }
    latest = view.documents.read_document("public/handbook.txt")
    first = view.documents.read_document("public/handbook.txt", 1)
    assert latest is not None
    assert (latest.content, latest.author) == ("new", "agent-alpha")
    assert first is not None
    assert first.content == DOCUMENTS["public/handbook.txt"]


def test_a_note_is_appended_under_the_next_number(view: DeskView) -> None:
    added = tools.tickets_add_note.body(view, ticket_id="T-1001", note="Fixed.")
    assert added == {"ok": True, "ticket_id": "T-1001", "number": 3}
    ticket = tools.tickets_get.body(view, ticket_id="T-1001")
    assert (ticket["ok"], ticket["ticket_id"], ticket["status"]) == (True, "T-1001", "open")
    assert ticket["notes"][-1] == {
        "number": 3,
        "author": "agent-alpha",
        "written_at": "2026-05-04T12:00:00+00:00",
        "note": "Fixed.",
    }


def test_an_export_queues_what_the_document_says_now(
    view: DeskView, connection: Connection
) -> None:
    answer = tools.export.body(view, path="public/handbook.txt", destination="archive")
    digest = digest_bytes(DOCUMENTS["public/handbook.txt"].encode())
    assert answer == {"ok": True, "state": "queued", "destination": "archive", "digest": digest}
    tools.docs_update.body(view, path="public/handbook.txt", content="changed afterwards")
    item = OutboxTable(connection).find("approval-1")
    assert item is not None
    assert (item.destination, item.name, item.state) == ("archive", "public/handbook.txt", "queued")
    assert item.content == DOCUMENTS["public/handbook.txt"]
    assert item.content_digest == digest


def test_an_approval_exports_once(view: DeskView, connection: Connection) -> None:
    tools.export.body(view, path="public/handbook.txt", destination="archive")
    again = tools.export.body(view, path="drafts/release-note.md", destination="archive")
    assert code_of(again) == "conflict"
    assert OutboxTable(connection).keys_in("queued") == ["approval-1"]


def test_an_export_without_an_approval_is_a_fault(view: DeskView, connection: Connection) -> None:
    bare = replace(view, key="")
    with pytest.raises(LookupError, match="no approval id in the view"):
        tools.export.body(bare, path="public/handbook.txt", destination="archive")
    assert OutboxTable(connection).keys_in("queued") == []


@pytest.mark.parametrize(
    ("path", "destination"), [("public/nothing.txt", "archive"), ("public/handbook.txt", "nowhere")]
)
def test_an_export_of_nothing_or_to_nowhere_is_not_found(
    view: DeskView, connection: Connection, path: str, destination: str
) -> None:
    answer = tools.export.body(view, path=path, destination=destination)
    assert code_of(answer) == "not_found"
    assert OutboxTable(connection).keys_in("queued") == []


# Documents as resources


def test_a_listing_shows_only_what_may_be_read(view: DeskView) -> None:
    page = tools.documents_page(view, only_public)
    assert page == Page(
        [
            {
                "uri": "desk://documents/public/handbook.txt",
                "name": "public/handbook.txt",
                "mimeType": "text/plain",
            },
            {
                "uri": "desk://documents/public/opening-hours.md",
                "name": "public/opening-hours.md",
                "mimeType": "text/plain",
            },
        ]
    )


def test_a_listing_goes_on_where_its_cursor_says_and_misses_nothing(view: DeskView) -> None:
    for number in range(240):
        view.documents.write_document(f"private/{number:03}.txt", "x", "seed", NOON)
        view.documents.write_document(f"public/{number:03}.txt", "x", "seed", NOON)
    names: list[str] = []
    cursor: str | None = None
    for _ in range(5):
        page = tools.documents_page(view, only_public, cursor)
        assert isinstance(page, Page)
        names += [item["name"] for item in page.items]
        cursor = page.next_cursor
        assert cursor is None or cursor.startswith("public/")
    assert cursor is None
    wanted = [f"public/{n:03}.txt" for n in range(240)]
    assert names == [*wanted, "public/handbook.txt", "public/opening-hours.md"]


def test_a_full_last_page_has_no_cursor(view: DeskView) -> None:
    for number in range(48):
        view.documents.write_document(f"public/{number:03}.txt", "x", "seed", NOON)
    page = tools.documents_page(view, only_public)
    assert isinstance(page, Page)
    assert len(page.items) == 50
    assert page.next_cursor is None


def test_a_made_up_cursor_is_refused(view: DeskView) -> None:
    answer = tools.documents_page(view, everything, "../private")
    assert isinstance(answer, Answer)
    assert answer.problem is not None
    assert answer.problem.code == INVALID_PARAMS


@pytest.mark.parametrize("path", ["drafts/a b.txt", "drafts/Überblick?#1.md", "drafts/[x].txt"])
def test_a_listed_address_reads_back_as_its_document(view: DeskView, path: str) -> None:
    view.documents.write_document(path, "here", "seed", NOON)
    spelled = tools.address_of(path).removeprefix(tools.ADDRESS)
    assert spelled.isascii()
    assert " " not in spelled
    resource = tools.addressed_document_of(view, {"path": spelled})
    assert isinstance(resource, PolicyResource)
    assert resource.entity.id == path
    assert tools.document.body(view, path=spelled) == "here"


@pytest.mark.parametrize(
    "spelled",
    [
        "public/%2e%2e/private/customer-secrets.txt",
        "public%2Fhandbook.txt",
        "public/h%61ndbook.txt",
        "public/%252e%252e/x.txt",
        "public/%ff.txt",
        "public/../private/customer-secrets.txt",
        "public/a b.txt",
        "public/é.txt",
        "public/a%20b.txt%00",
        "public/caf%c3%a9.txt",
    ],
)
def test_a_document_has_one_address(view: DeskView, spelled: str) -> None:
    assert code_of(tools.addressed_document_of(view, {"path": spelled})) == "invalid_path"
    assert code_of(tools.document.body(view, path=spelled)) == "invalid_path"


def test_a_resource_that_does_not_exist_is_not_found(view: DeskView) -> None:
    assert code_of(tools.document.body(view, path="public/nothing.txt")) == "not_found"


# Completion and the prompt


def test_completion_offers_readable_paths_that_begin_as_typed(view: DeskView) -> None:
    assert tools.complete_path(view, everything, "team/support/f") == ["team/support/faq.txt"]
    assert tools.complete_path(view, everything, "Team") == []
    assert tools.complete_path(view, only_public, "") == [
        "public/handbook.txt",
        "public/opening-hours.md",
    ]
    assert tools.complete_path(view, only_public, "private/") == []


def test_completion_offers_at_most_100_paths(view: DeskView) -> None:
    for number in range(120):
        view.documents.write_document(f"drafts/{number:03}.txt", "x", "seed", NOON)
    assert len(tools.complete_path(view, everything, "drafts/")) == 100


@pytest.mark.parametrize("value", ["\ud800", "public/\0", "%", "_", "*"])
def test_completion_takes_any_text(view: DeskView, value: str) -> None:
    assert tools.complete_path(view, everything, value) == []


def test_the_prompt_encloses_the_document_in_a_fence_it_cannot_contain(view: DeskView) -> None:
    text = tools.summarise_document.body(view, path="public/handbook.txt")
    content = DOCUMENTS["public/handbook.txt"]
    fence = f"--- {digest_bytes(content.encode())} ---"
    assert text.endswith(f"\n{fence}\n{content}\n{fence}")
    missing = tools.summarise_document.body(view, path="public/nothing.txt")
    assert code_of(missing) == "not_found"


# The seed


def test_seeding_twice_adds_nothing_and_changes_nothing(view: DeskView) -> None:
    view.documents.write_document("public/handbook.txt", "the owner's own", "owner", NOON)
    assert seed(view.documents, view.tickets, NOON) == 0
    kept = view.documents.read_document("public/handbook.txt")
    assert kept is not None
    assert kept.content == "the owner's own"
    ticket = view.tickets.get_ticket("T-1001")
    assert ticket is not None
    assert len(ticket.notes) == 2


def test_the_seed_holds_what_the_specification_names() -> None:
    assert {"public/handbook.txt", "private/customer-secrets.txt"} <= set(DOCUMENTS)
    holders = {ticket.id: ticket.assignee for ticket in TICKETS}
    assert holders["T-1001"] == "local"
    assert holders["T-2001"] != "local"
