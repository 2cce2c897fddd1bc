import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import cedarpy
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from limen.catalogue import Entry
from limen.decisions import d5_policy
from limen.decisions.d5_policy import CedarPolicies, PolicyStep
from limen.errors import PolicyError
from limen.ports import Entity, Policy, PolicyAnswer, PolicyResource
from limen.walk import Walk
from limen.words import (
    INVALID_PARAMS,
    NO_SUCH_PROMPT,
    NO_SUCH_RESOURCE,
    Answer,
    Call,
    Caller,
    Effect,
    Passed,
    Problem,
    Refused,
    business,
)

DESK = files("limen.servers.desk")
SCHEMA = DESK.joinpath("desk.cedarschema").read_text()
STARTER = Path(str(DESK.joinpath("starter")))

PUBLIC_READ = """
@id("public-read")
permit (principal in Role::"staff", action == Action::"docs_read", resource in Folder::"public");
"""

SMALL_WRITE = """
@id("small-write")
permit (principal, action == Action::"docs_update", resource) when { context.size < 100 };
"""


@dataclass
class ManualClock:
    seconds: float = 0.0

    def now(self) -> datetime:
        return datetime.fromtimestamp(1_800_000_000 + self.seconds, UTC)

    def monotonic(self) -> float:
        return self.seconds


@dataclass
class Owner:
    """The owner's side: the folder, the clock and what they were told."""

    folder: Path
    clock: ManualClock = field(default_factory=ManualClock)
    told: list[str] = field(default_factory=list)

    def write(self, text: str, name: str = "desk.cedar") -> None:
        # By rename, so that a change shows even within one tick of the file system's clock.
        fresh = self.folder / f".{name}.new"
        fresh.write_text(text)
        fresh.rename(self.folder / name)

    def load(self, text: str | None = None) -> CedarPolicies:
        if text is not None:
            self.write(text)
        return CedarPolicies.load(self.folder, SCHEMA, clock=self.clock, on_change=self.told.append)

    def problem(self, text: str | None = None) -> str:
        with pytest.raises(PolicyError) as caught:
            self.load(text)
        assert "\n" not in str(caught.value)
        return str(caught.value)


@pytest.fixture
def owner(tmp_path: Path) -> Owner:
    return Owner(tmp_path)


def caller(name: str = "agent", *roles: str) -> Caller:
    return Caller(name, frozenset(roles), frozenset())


STAFF = caller("agent", "staff")


def document(path: str, **context: Any) -> PolicyResource:
    folders = path.split("/")[:-1]
    paths = ["/".join(folders[: depth + 1]) for depth in range(len(folders))]
    parents = [(), *(((("Folder", outer),)) for outer in paths)]
    chain = [
        Entity("Folder", inner, parents=outer)
        for inner, outer in zip(paths, parents[:-1], strict=True)
    ]
    return PolicyResource(Entity("Document", path, parents=parents[-1]), context, tuple(chain))


def ticket(assignee: str | None = None, requester: str | None = None) -> PolicyResource:
    people = {"assignee": assignee, "requester": requester}
    attributes = {role: person(who) for role, who in people.items() if who is not None}
    return PolicyResource(Entity("Ticket", "T-1001", attributes=attributes))


def person(name: str) -> dict[str, dict[str, str]]:
    return {"__entity": {"type": "Caller", "id": name}}


def export(path: str, *groups: str) -> PolicyResource:
    destination = Entity("Destination", "acme", tuple(("Group", group) for group in groups))
    sent = document(path, destination={"__entity": {"type": "Destination", "id": "acme"}})
    return replace(sent, related=(*sent.related, destination))


def test_the_module_opens_with_its_question() -> None:
    first_line = str(d5_policy.__doc__).splitlines()[0]
    assert first_line == "Do the owner's rules allow this action on this resource?"


# The step


@dataclass
class ScriptedPolicy:
    answer: PolicyAnswer
    asked: list[tuple[Caller, str, PolicyResource]] = field(default_factory=list)

    def decide(self, caller: Caller, action: str, resource: PolicyResource) -> PolicyAnswer:
        self.asked.append((caller, action, resource))
        return self.answer


ALLOWED = PolicyAnswer(True, ("public-read",), "sha-256:1")
DENIED = PolicyAnswer(False, (), "sha-256:1")

ResourceOf = Callable[[Any, Mapping[str, Any]], PolicyResource | Answer]


def entry(resource: ResourceOf | None = None) -> Entry:
    return Entry(
        kind="tool",
        name="docs_read",
        title="Read",
        description="Read.",
        scope="desk:read",
        action="docs_read",
        effect=Effect.READ,
        held=False,
        destructive=False,
        idempotent=True,
        open_world=False,
        open_arguments=False,
        input_schema={},
        output_schema=None,
        body=print,
        resource=resource,
        complete={},
    )


def walk(method: str = "tools/call", resource: ResourceOf | None = None) -> Walk:
    call = Call("1", datetime(2026, 5, 4, tzinfo=UTC), "stdio", "2026-07-28", "pi", method)
    return Walk(call, caller=STAFF, entry=entry(resource), arguments={"path": "public/a"})


def decide(policy: Policy, walk: Walk, facts: object = None) -> object:
    return asyncio.run(PolicyStep(policy, lambda: facts).decide(walk))


def test_an_allowed_call_passes_with_its_resource_and_the_rules_answer() -> None:
    seen: list[object] = []
    policy = ScriptedPolicy(ALLOWED)
    view = object()

    def resource(facts: object, arguments: Mapping[str, Any]) -> PolicyResource:
        seen.append(facts)
        return document(arguments["path"])

    going = walk(resource=resource)
    assert decide(policy, going, view) == Passed()
    assert seen == [view]
    assert policy.asked == [(STAFF, "docs_read", document("public/a"))]
    assert going.resource == document("public/a")
    assert going.policy == ALLOWED


def test_a_denied_call_gets_an_ordinary_answer_and_the_owner_the_reason() -> None:
    going = walk()
    assert decide(ScriptedPolicy(DENIED), going) == Refused(
        step="d5_policy",
        reason="denied",
        public=business("denied", "the owner's rules do not allow this"),
        private="no policy allows this",
    )
    assert going.policy == DENIED


def test_the_owner_reads_which_policies_forbade_and_which_failed() -> None:
    answer = PolicyAnswer(False, ("no-private", "no-friday"), "sha-256:1", errors=("sum",))
    refused = decide(ScriptedPolicy(answer), walk())
    assert isinstance(refused, Refused)
    assert refused.private == "forbidden by `no-private`, `no-friday`; could not evaluate `sum`"
    assert "no-private" not in str(refused.public)


@pytest.mark.parametrize(
    ("method", "text"),
    [("prompts/get", NO_SUCH_PROMPT), ("resources/read", NO_SUCH_RESOURCE)],
)
def test_a_denied_prompt_or_resource_looks_like_one_that_never_existed(
    method: str, text: str
) -> None:
    refused = decide(ScriptedPolicy(DENIED), walk(method))
    assert isinstance(refused, Refused)
    assert refused.reason == "denied"
    assert refused.public == Answer(problem=Problem(INVALID_PARAMS, text))


def test_arguments_that_name_nothing_are_refused_before_the_rules_are_asked() -> None:
    policy = ScriptedPolicy(ALLOWED)
    said = business("invalid_path", "path is not canonical: it is empty")
    going = walk(resource=lambda facts, arguments: said)
    refused = decide(policy, going)
    assert refused == Refused(
        "d5_policy", "invalid_path", said, "the arguments name no resource of `docs_read`"
    )
    assert policy.asked == []
    assert going.resource is None


def test_a_tool_without_a_resource_is_asked_about_as_itself() -> None:
    policy = ScriptedPolicy(ALLOWED)
    decide(policy, walk())
    assert policy.asked[0][2] == PolicyResource(Entity("Tool", "docs_read"))


@pytest.mark.parametrize("method", ["tools/list", "prompts/list", "completion/complete"])
def test_a_method_without_an_entry_is_not_asked_about(method: str) -> None:
    policy = ScriptedPolicy(DENIED)
    going = replace(walk(method), entry=None)
    assert decide(policy, going) == Passed()
    assert policy.asked == []


def test_a_call_whose_reach_was_not_decided_is_a_fault() -> None:
    with pytest.raises(LookupError, match="no entry before d3_reach has passed"):
        decide(ScriptedPolicy(ALLOWED), replace(walk(), entry=None))


def test_a_question_that_does_not_fit_the_schema_is_a_fault(owner: Owner) -> None:
    # The desk's schema has no `docs_read` of a tool, so this is no quiet denial.
    with pytest.raises(PolicyError, match="resource type `Tool` is not valid for"):
        decide(owner.load(PUBLIC_READ), walk())


# What the rules say


def test_what_a_policy_allows_is_allowed_and_the_policy_is_named(owner: Owner) -> None:
    policies = owner.load(PUBLIC_READ)
    answer = policies.decide(STAFF, "docs_read", document("public/a"))
    assert answer == PolicyAnswer(True, ("public-read",), policies.status().version)


def test_what_no_policy_allows_is_denied(owner: Owner) -> None:
    policies = owner.load(PUBLIC_READ)
    answer = policies.decide(STAFF, "docs_read", document("drafts/a"))
    assert (answer.allowed, answer.policies, answer.errors) == (False, (), ())


def test_an_empty_folder_denies_everything_and_says_so(owner: Owner) -> None:
    policies = owner.load()
    assert not policies.decide(STAFF, "docs_read", document("public/a")).allowed
    version = policies.status().version
    assert owner.told == [
        f"policies loaded: 0 policies, so everything is denied, version {version}"
    ]


def test_a_forbid_beats_every_permit(owner: Owner) -> None:
    owner.write('@id("no") forbid (principal, action, resource) when { principal in Role::"x" };')
    owner.write(PUBLIC_READ, "other.cedar")
    policies = owner.load()
    assert policies.decide(STAFF, "docs_read", document("public/a")).allowed
    answer = policies.decide(caller("agent", "staff", "x"), "docs_read", document("public/a"))
    assert (answer.allowed, answer.policies) == (False, ("no",))


def test_a_file_of_forbids_alone_allows_nothing(owner: Owner) -> None:
    policies = owner.load('@id("no") forbid (principal in Role::"x", action, resource);')
    assert not policies.decide(STAFF, "docs_read", document("public/a")).allowed


def test_a_policy_on_the_value_of_an_argument_allows_and_denies(owner: Owner) -> None:
    policies = owner.load(SMALL_WRITE)
    for _ in range(2):
        for size, allowed in ((99, True), (100, False), (0, True)):
            answer = policies.decide(STAFF, "docs_update", document("drafts/a", size=size))
            assert answer.allowed is allowed


def test_a_group_of_actions_in_the_schema_is_honoured(owner: Owner) -> None:
    owner.write('@id("w") permit (principal, action in Action::"write", resource);')
    schema = SCHEMA.replace("action docs_update", "action write;\naction docs_update in [write]")
    policies = CedarPolicies.load(owner.folder, schema, clock=owner.clock, on_change=print)
    assert policies.decide(STAFF, "docs_update", document("drafts/a", size=1)).allowed
    assert not policies.decide(STAFF, "docs_read", document("drafts/a")).allowed


def test_policies_keep_their_ids_however_many_there_are(owner: Owner) -> None:
    for number in range(25):
        owner.write(
            f'// ; "\n@id("rule {number}")\n'
            f'permit (principal in Role::"r{number}", action, resource)'
            f' when {{ principal == Caller::";//\\"{number}" || true }};',
            f"{number:02}.cedar",
        )
    policies = owner.load()
    for number in range(25):
        asking = caller("agent", f"r{number}")
        assert policies.decide(asking, "docs_read", document("public/a")).policies == (
            f"rule {number}",
        )
    everyone = caller("agent", *(f"r{number}" for number in range(25)))
    answer = policies.decide(everyone, "docs_read", document("public/a"))
    assert answer.policies == tuple(f"rule {number}" for number in range(25))


OVERFLOW = "context.size * 9223372036854775807 > 0"


def test_a_permit_that_cannot_be_evaluated_is_named_and_allows_nothing(owner: Owner) -> None:
    rule = f'permit (principal, action == Action::"docs_update", resource) when {{ {OVERFLOW} }};'
    policies = owner.load(f'@id("sum") {rule}')
    answer = policies.decide(STAFF, "docs_update", document("drafts/a", size=9))
    assert (answer.allowed, answer.policies, answer.errors) == (False, (), ("sum",))


def test_a_forbid_that_cannot_be_evaluated_denies(owner: Owner) -> None:
    rule = f'forbid (principal, action == Action::"docs_update", resource) when {{ {OVERFLOW} }};'
    policies = owner.load(f'{SMALL_WRITE} @id("sum") {rule}')
    big = document("drafts/a", size=9)
    answer = policies.decide(STAFF, "docs_update", big)
    assert (answer.allowed, answer.policies, answer.errors) == (False, ("sum",), ("sum",))
    explained = policies.explain(STAFF, "docs_update", big)
    assert not explained.allowed
    assert len(explained.errors) == 1
    assert explained.errors[0].startswith("policy `sum`: integer overflow")


@pytest.mark.parametrize(
    ("action", "resource", "cause"),
    [
        ("docs_delete", document("public/a"), "is not declared in the schema"),
        (
            "docs_update",
            document("public/a"),
            'context `{}` is not valid for `Action::"docs_update"`',
        ),
        ("docs_update", document("public/a", size="9"), "is not valid for"),
        ("docs_update", document("public/a", size=2**70), "Integer exceeds 64-bit range"),
        ("docs_read", PolicyResource(Entity("Tool", "docs_read")), "is not valid for"),
        ("docs_read", PolicyResource(Entity("Document", "a\ud800")), "surrogates not allowed"),
        (
            "docs_read",
            PolicyResource(Entity("Document", "a", attributes={"x": 1})),
            "should not exist according to the schema",
        ),
    ],
)
def test_a_question_that_cannot_be_asked_is_an_error_and_not_an_answer(
    owner: Owner, action: str, resource: PolicyResource, cause: str
) -> None:
    policies = owner.load('@id("all") permit (principal, action, resource);')
    for _ in range(2):
        with pytest.raises(PolicyError) as caught:
            policies.decide(STAFF, action, resource)
        assert str(caught.value).startswith("rules cannot be asked: ")
        assert cause in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_server_cannot_give_the_caller_a_role(owner: Owner) -> None:
    policies = owner.load(PUBLIC_READ)
    made_up = Entity("Caller", "agent", parents=(("Role", "staff"),))
    resource = document("public/a")
    resource = replace(resource, related=(*resource.related, made_up))
    assert not policies.decide(caller("agent"), "docs_read", resource).allowed


ODD = [
    'a"',
    "a\n",
    "a\0b",
    "a\\",
    '" || true //',
    "é",
    "e\u0301",
    "😀",
    "\u202e",
    "*",
    "",
    "policy0",
]


@pytest.mark.parametrize("name", ODD)
def test_odd_characters_in_an_id_change_no_decision(owner: Owner, name: str) -> None:
    policies = owner.load(PUBLIC_READ)
    inside, outside = document(f"public/{name}"), document(f"private/{name}")
    assert policies.decide(STAFF, "docs_read", inside).allowed
    assert not policies.decide(STAFF, "docs_read", outside).allowed
    assert not policies.decide(caller(name, name), "docs_read", inside).allowed
    assert policies.decide(caller(name, "staff"), "docs_read", inside).allowed


@given(name=st.text(st.characters(codec="utf-8"), max_size=40))
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_id_reaches_another_folder(tmp_path: Path, name: str) -> None:
    policies = Owner(tmp_path).load(PUBLIC_READ)
    odd = PolicyResource(Entity("Document", name, parents=(("Folder", name),)))
    answer = policies.decide(STAFF, "docs_read", odd)
    assert answer.allowed is (name == "public")
    inside = PolicyResource(Entity("Document", name, parents=(("Folder", "public"),)))
    assert policies.decide(caller(name, "staff"), "docs_read", inside).allowed
    assert policies.decide(caller("agent", name), "docs_read", inside).allowed is (name == "staff")


def test_the_nul_in_an_id_is_not_its_end(owner: Owner) -> None:
    policies = owner.load(
        '@id("one") permit (principal, action, resource == Document::"public/a");'
    )
    assert policies.decide(STAFF, "docs_read", document("public/a")).allowed
    assert not policies.decide(STAFF, "docs_read", document("public/a\0")).allowed
    assert not policies.decide(STAFF, "docs_read", document("public/a\n")).allowed


# What is remembered


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Count what goes to Cedar; Cedar still answers."""
    asked: list[object] = []
    real = cedarpy.is_authorized_batch

    def counted(request: dict[str, Any], *rest: Any) -> cedarpy.AuthzResult:
        asked.append(request)
        return real(request, *rest)

    monkeypatch.setattr(cedarpy, "is_authorized_batch", counted)
    return asked


def test_the_same_question_is_put_to_cedar_once(owner: Owner, asked: list[object]) -> None:
    policies = owner.load(PUBLIC_READ)
    answers = [policies.decide(STAFF, "docs_read", document("public/a")) for _ in range(3)]
    assert len(asked) == 1
    assert answers[0] == answers[1] == answers[2]


def test_an_answer_is_never_given_to_another_question(owner: Owner) -> None:
    rules = """
    @id("role") permit (principal in Role::"staff", action == Action::"docs_read", resource);
    @id("own") permit (principal, action == Action::"tickets_get", resource)
      when { resource has assignee && resource.assignee == principal };
    @id("name") permit (principal == Caller::"alpha", action, resource in Folder::"team");
    @id("partners") permit (principal, action == Action::"export", resource)
      when { context.destination in Group::"partners" };
    """
    policies = owner.load(rules)
    nested = document("team/support/a")
    unrelated = replace(nested, related=())
    for _ in range(2):
        for asking, action, resource, allowed in (
            (caller("alpha", "staff"), "docs_read", document("public/a"), True),
            (caller("alpha"), "docs_read", document("public/a"), False),
            (caller("beta", "staff"), "docs_update", document("public/a", size=1), False),
            (caller("alpha"), "docs_read", nested, True),
            (caller("beta"), "docs_read", nested, False),
            (caller("alpha"), "docs_read", unrelated, False),
            (caller("alpha"), "tickets_get", ticket("alpha"), True),
            (caller("alpha"), "tickets_get", ticket("beta"), False),
            (caller("alpha"), "tickets_get", ticket(None, "alpha"), False),
            (caller("beta"), "tickets_get", ticket("beta"), True),
            (caller("beta"), "export", export("public/a", "partners"), True),
            (caller("beta"), "export", export("public/a", "others"), False),
            (caller("beta"), "export", export("public/a"), False),
        ):
            assert policies.decide(asking, action, resource).allowed is allowed


def test_equal_in_python_is_not_the_same_question(owner: Owner) -> None:
    policies = owner.load(SMALL_WRITE)
    assert policies.decide(STAFF, "docs_update", document("drafts/a", size=1)).allowed
    for alike in (True, 1.0):
        with pytest.raises(PolicyError):
            policies.decide(STAFF, "docs_update", document("drafts/a", size=alike))


@pytest.mark.parametrize(
    ("rules", "questions"),
    [
        ('@id("a") permit (principal, action, resource);', 1),
        ('@id("a") permit (principal, action, resource) when { "context" == "context" };', 1),
        (
            '@id("a") permit (principal, action == Action::"export", resource)'
            " unless { context has x };",
            1,
        ),
        (SMALL_WRITE, 2),
        ('@id("a") permit (principal, action, resource) when { context has size };', 2),
        (
            '@id("a") permit (principal, action in [Action::"docs_read", Action::"docs_update"],'
            " resource) when { context has size };",
            2,
        ),
    ],
)
def test_the_context_sets_questions_apart_only_if_a_policy_of_the_action_reads_it(
    owner: Owner, asked: list[object], rules: str, questions: int
) -> None:
    policies = owner.load(rules)
    policies.decide(STAFF, "docs_update", document("drafts/a", size=1))
    policies.decide(STAFF, "docs_update", document("drafts/a", size=2))
    assert len(asked) == questions


def test_what_is_remembered_is_bounded(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(d5_policy, "MAX_ANSWERS", 8)
    policies = owner.load(PUBLIC_READ)
    for number in range(50):
        assert policies.decide(STAFF, "docs_read", document(f"public/{number}")).allowed
        assert len(policies._rules.answers) <= 8


# What does not load


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        (
            SMALL_WRITE + '\n// why\n@id("x")\npermit (principal, action == Action::"docs_read",'
            " resource)\nwhen {\n  context.size < 1\n};",
            9,
            'attribute `size` in context for Action::"docs_read" not found',
        ),
        (
            '@id("x") permit (principal, action == Action::"tickets_get", resource)\n'
            "when { resource.owner == principal };",
            2,
            "attribute `owner` on entity type `Ticket` not found",
        ),
        (
            '@id("x")\npermit (principal, action == Action::"docs_raed", resource);',
            1,
            'unrecognized action `Action::"docs_raed"`',
        ),
        (
            '@id("x")\npermit (principal,\n  action\n  resource\n);',
            4,
            "unexpected token `resource`",
        ),
        (
            '@id("x") permit (principal, action, resource)\n// no semicolon ;\n'
            '@id("y") forbid (principal, action, resource);',
            3,
            "unexpected token `@`",
        ),
        ('@id("x")\npermit (principal, action, resource)\n\n', 2, "unexpected end of input"),
        (
            '@id("x") permit (principal, action, resource)\nwhen { principal ==\n Caller::"a };',
            3,
            "invalid token",
        ),
        (
            PUBLIC_READ + '@id("x")\npermit (principal, action, resource) when {\n  path == "a" };',
            6,
            "invalid variable: path",
        ),
        ('@id("x") permit (principal, action, resource);\n;', 2, "unexpected token `;`"),
        (
            PUBLIC_READ + "// none\n\npermit (principal, action, resource);",
            6,
            'policy has no id; write `@id("...")` in front of it',
        ),
        (
            '@id("") permit (principal, action, resource);',
            1,
            'policy has no id; write `@id("...")` in front of it',
        ),
        (
            "@id permit (principal, action, resource);",
            1,
            'policy has no id; write `@id("...")` in front of it',
        ),
        (
            '\n@id("x") permit (principal == ?principal, action, resource);',
            2,
            "a template has nothing to fill it; write names instead",
        ),
        (
            '@id("x") permit (principal, action, resource) when { '
            + " || ".join(["principal == resource"] * 2000)
            + " };",
            1,
            "a condition nests too deeply; write `in [...]` for a long chain of `||`",
        ),
    ],
)
def test_a_policy_that_cannot_be_used_is_named_by_file_line_and_reason(
    owner: Owner, text: str, line: int, reason: str
) -> None:
    owner.write(PUBLIC_READ.replace("public-read", "good"), "00-good.cedar")
    assert owner.problem(text) == f"policy file `desk.cedar` line {line}: {reason}"


def test_an_id_used_twice_names_both_places(owner: Owner) -> None:
    owner.write(PUBLIC_READ, "10-a.cedar")
    owner.write("// more\n\n" + PUBLIC_READ, "20-b.cedar")
    assert owner.problem() == (
        "policy file `20-b.cedar` line 4: id `public-read` is taken by `10-a.cedar` line 2"
    )


def test_a_schema_that_does_not_parse_is_an_error(owner: Owner) -> None:
    with pytest.raises(PolicyError, match=r"policy schema cannot be used: .*`nonsense`"):
        CedarPolicies.load(owner.folder, "entity A; nonsense", clock=owner.clock, on_change=print)


def test_a_folder_or_file_that_cannot_be_read_is_an_error(owner: Owner, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    assert Owner(missing).problem() == (
        f"cannot read policies in `{missing}`: no such file or directory"
    )
    (tmp_path / "desk.cedar").write_bytes(b'@id("x")\n// caf\xe9\n')
    assert owner.problem() == "policy file `desk.cedar` line 2: byte 0xe9 is not UTF-8"
    (tmp_path / "desk.cedar").unlink()
    (tmp_path / "desk.cedar").mkdir()
    assert owner.problem() == "policy file `desk.cedar` is not a regular file"
    (tmp_path / "desk.cedar").rmdir()
    (tmp_path / "desk.cedar").symlink_to("nowhere")
    assert owner.problem().endswith("no such file or directory")
    (tmp_path / "desk.cedar").unlink()
    (tmp_path / "de\nsk.cedar").write_text("")
    assert owner.problem() == "policy file 'de\\nsk.cedar' has an unprintable name"


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_without_permission_is_an_error(owner: Owner, tmp_path: Path) -> None:
    owner.write(PUBLIC_READ)
    (tmp_path / "desk.cedar").chmod(0)
    assert owner.problem() == "cannot read policy file `desk.cedar`: permission denied"


def test_other_files_and_hidden_ones_are_no_policies(owner: Owner, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("nothing")
    (tmp_path / ".desk.cedar.swp").write_text("nothing")
    (tmp_path / ".#desk.cedar").symlink_to("nowhere")
    assert owner.load(PUBLIC_READ).status().count == 1


def test_the_version_changes_with_a_name_a_byte_or_the_schema(owner: Owner) -> None:
    version = owner.load(PUBLIC_READ).status().version
    assert version.startswith("sha-256:")
    assert owner.load(PUBLIC_READ).status().version == version
    assert owner.load(PUBLIC_READ + "\n").status().version != version
    (owner.folder / "desk.cedar").unlink()
    owner.write(PUBLIC_READ, "other.cedar")
    assert owner.load().status().version != version
    (owner.folder / "other.cedar").rename(owner.folder / "desk.cedar")
    assert owner.load().status().version == version
    other = CedarPolicies.load(owner.folder, SCHEMA + "\n", clock=owner.clock, on_change=print)
    assert other.status().version != version


# Reload


def test_a_change_is_followed_without_a_restart_and_said(owner: Owner) -> None:
    policies = owner.load(PUBLIC_READ)
    first = policies.status()
    assert not policies.decide(STAFF, "docs_read", document("drafts/a")).allowed

    owner.write(PUBLIC_READ.replace('"public"', '"drafts"'))
    owner.clock.seconds += 0.6
    # Both had been answered or would have been answered otherwise by the rules before.
    assert policies.decide(STAFF, "docs_read", document("drafts/a")).allowed
    assert not policies.decide(STAFF, "docs_read", document("public/a")).allowed
    status = policies.status()
    assert status.version != first.version
    assert status.loaded_at == owner.clock.now()
    assert owner.told == [f"policies reloaded: 1 policy, version {status.version}"]


def test_no_answer_of_the_rules_before_outlives_a_reload(owner: Owner) -> None:
    policies = owner.load(PUBLIC_READ)
    before = policies.decide(STAFF, "docs_read", document("public/a"))
    owner.write('@id("no") forbid (principal, action, resource);', "99-no.cedar")
    owner.clock.seconds += 0.6
    after = policies.decide(STAFF, "docs_read", document("public/a"))
    assert (before.allowed, after.allowed, after.policies) == (True, False, ("no",))
    assert after.version != before.version

    (owner.folder / "99-no.cedar").unlink()
    owner.clock.seconds += 0.6
    assert policies.decide(STAFF, "docs_read", document("public/a")) == before


def test_the_folder_is_looked_at_no_more_than_every_half_second(owner: Owner) -> None:
    policies = owner.load(PUBLIC_READ)
    owner.write("")
    owner.clock.seconds += 0.4
    assert policies.decide(STAFF, "docs_read", document("public/a")).allowed
    owner.clock.seconds += 0.2
    assert not policies.decide(STAFF, "docs_read", document("public/a")).allowed
    assert "so everything is denied" in owner.told[-1]


def test_bad_rules_change_nothing_and_are_said_once_until_they_are_good(owner: Owner) -> None:
    policies = owner.load(PUBLIC_READ)
    good = policies.status()

    def look() -> bool:
        owner.clock.seconds += 0.6
        return policies.decide(STAFF, "docs_read", document("public/a")).allowed

    owner.write("permit (principal, action, resource)")
    assert [look() for _ in range(4)] == [True] * 4
    first = "policy file `desk.cedar` line 1: unexpected end of input"
    assert policies.status() == replace(good, problem=first)
    owner.write("\npermit (principal, action, resource);")
    assert look()
    second = 'policy file `desk.cedar` line 2: policy has no id; write `@id("...")` in front of it'
    assert owner.told == [
        f"policies kept as they were: {first}",
        f"policies kept as they were: {second}",
    ]

    owner.write('@id("no") forbid (principal, action, resource);')
    assert not look()
    assert not look()
    status = policies.status()
    assert status.problem is None
    assert owner.told[2:] == [f"policies reloaded: 1 policy, version {status.version}"]


def test_a_folder_that_went_away_and_came_back_is_good_again(owner: Owner, tmp_path: Path) -> None:
    folder = tmp_path / "policies"
    folder.mkdir()
    moved = Owner(folder)
    policies = moved.load(PUBLIC_READ)
    policies.decide(STAFF, "docs_read", document("public/a"))
    for _ in range(3):
        moved.clock.seconds += 0.6
        policies.decide(STAFF, "docs_read", document("public/a"))
    folder.rename(tmp_path / "away")
    moved.clock.seconds += 0.6
    assert policies.decide(STAFF, "docs_read", document("public/b")).allowed
    assert policies.status().problem is not None
    (tmp_path / "away").rename(folder)
    moved.clock.seconds += 0.6
    assert policies.decide(STAFF, "docs_read", document("public/b")).allowed
    assert policies.status().problem is None
    assert [text.split(":")[0] for text in moved.told] == [
        "policies kept as they were",
        "policies reloaded",
    ]


def test_a_second_write_within_one_tick_of_the_file_clock_is_seen(owner: Owner) -> None:
    policies = owner.load(PUBLIC_READ)
    file = owner.folder / "desk.cedar"
    owner.clock.seconds += 0.6
    owner.write(PUBLIC_READ.replace('"public"', '"drafts"'))
    policies.decide(STAFF, "docs_read", document("drafts/a"))
    status = file.stat()
    file.write_text(PUBLIC_READ.replace('"public"', '"absent"'))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert file.stat().st_size == status.st_size
    owner.clock.seconds += 0.6
    assert not policies.decide(STAFF, "docs_read", document("drafts/a")).allowed


def test_a_touched_file_is_no_change(owner: Owner, asked: list[object]) -> None:
    policies = owner.load(PUBLIC_READ)
    policies.decide(STAFF, "docs_read", document("public/a"))
    os.utime(owner.folder / "desk.cedar", ns=(1, 1))
    owner.clock.seconds += 0.6
    policies.decide(STAFF, "docs_read", document("public/a"))
    assert owner.told == []
    assert len(asked) == 1


# Why


def test_an_explanation_shows_the_policies_that_decided_with_their_place_and_text(
    owner: Owner,
) -> None:
    policies = owner.load("// everyone\n" + PUBLIC_READ + SMALL_WRITE)
    explained = policies.explain(STAFF, "docs_read", document("public/a"))
    assert explained.allowed
    assert explained.version == policies.status().version
    (policy,) = explained.policies
    assert (policy.id, policy.effect, policy.place) == ("public-read", "permit", "desk.cedar:3")
    assert policy.text == PUBLIC_READ.strip()
    assert explained.near_misses == ()


def test_an_explanation_shows_the_permits_that_came_close_and_no_others(owner: Owner) -> None:
    rules = """
    @id("role") permit (principal in Role::"boss", action == Action::"docs_read", resource);
    @id("folder") permit (principal, action, resource is Document in Folder::"public");
    @id("one") permit (principal, action, resource == Document::"public/one");
    @id("holds") permit (principal, action == Action::"docs_read", resource) when { true };
    @id("ticket") permit (principal, action, resource is Ticket);
    @id("write") permit (principal, action == Action::"docs_update", resource);
    @id("no") forbid (principal, action, resource in Folder::"private");
    @id("never") forbid (principal in Role::"x", action, resource);
    """
    explained = owner.load(rules).explain(STAFF, "docs_read", document("private/a"))
    assert not explained.allowed
    assert [policy.id for policy in explained.policies] == ["no"]
    assert [policy.id for policy in explained.near_misses] == ["role", "folder", "one"]


def test_an_explanation_agrees_with_the_decision(owner: Owner) -> None:
    policies = CedarPolicies.load(STARTER, SCHEMA, clock=owner.clock, on_change=print)
    for resource in (document("public/a"), document("private/a"), document("team/support/a")):
        for asking in (STAFF, caller("o", "owner"), caller("t", "team-support"), caller("n")):
            answer = policies.decide(asking, "docs_read", resource)
            explained = policies.explain(asking, "docs_read", resource)
            assert explained.allowed is answer.allowed
            assert tuple(policy.id for policy in explained.policies) == answer.policies


# The rules that ship with the desk

SUPPORT = caller("sam", "staff", "team-support")
THE_OWNER = caller("olga", "owner")
NOBODY_KNOWN = caller("stranger")


@pytest.mark.parametrize(
    ("asking", "action", "resource", "allowed"),
    [
        (STAFF, "docs_read", document("public/handbook.txt"), True),
        (STAFF, "docs_read", document("drafts/big.txt"), True),
        (STAFF, "docs_read", document("public/deep/down/a.txt"), True),
        (STAFF, "docs_read", document("private/customer-secrets.txt"), False),
        (STAFF, "docs_read", document("private/public/a.txt"), False),
        (STAFF, "docs_read", document("team/support/faq.txt"), False),
        (STAFF, "docs_update", document("public/handbook.txt", size=10), True),
        (STAFF, "docs_update", document("drafts/big.txt", size=10), True),
        (STAFF, "docs_update", document("private/a.txt", size=10), False),
        (STAFF, "docs_update", document("team/support/faq.txt", size=10), False),
        (SUPPORT, "docs_read", document("team/support/faq/vpn.txt"), True),
        (SUPPORT, "docs_update", document("team/support/faq.txt", size=10), True),
        (SUPPORT, "docs_read", document("team/sales/faq.txt"), False),
        (SUPPORT, "docs_read", document("team/support2/faq.txt"), False),
        (SUPPORT, "docs_read", document("private/team/support/a.txt"), False),
        (THE_OWNER, "docs_read", document("private/customer-secrets.txt"), True),
        (THE_OWNER, "docs_update", document("private/a.txt", size=10), True),
        (THE_OWNER, "docs_read", document("team/sales/faq.txt"), True),
        (THE_OWNER, "export", export("private/a.txt", "partners"), False),
        (NOBODY_KNOWN, "docs_read", document("public/handbook.txt"), False),
        (caller("agent", "Staff"), "docs_read", document("public/handbook.txt"), False),
        (caller("staff"), "docs_read", document("public/handbook.txt"), False),
        (caller("agent"), "tickets_get", ticket("agent", "rita"), True),
        (caller("rita"), "tickets_get", ticket("agent", "rita"), True),
        (caller("rita"), "tickets_get", ticket(None, "rita"), True),
        (STAFF, "tickets_get", ticket("other", "rita"), False),
        (THE_OWNER, "tickets_get", ticket("other", "rita"), False),
        (STAFF, "tickets_get", ticket(), False),
        (caller("agent"), "tickets_add_note", ticket("agent", "rita"), True),
        (caller("rita"), "tickets_add_note", ticket("agent", "rita"), False),
        (STAFF, "tickets_add_note", ticket(), False),
        (STAFF, "export", export("public/handbook.txt", "partners"), True),
        (STAFF, "export", export("drafts/a.txt", "others", "partners"), True),
        (STAFF, "export", export("public/handbook.txt", "others"), False),
        (STAFF, "export", export("public/handbook.txt"), False),
        (STAFF, "export", export("private/a.txt", "partners"), False),
        (SUPPORT, "export", export("team/support/faq.txt", "partners"), False),
        (caller("agent"), "export", export("public/handbook.txt", "partners"), False),
    ],
)
def test_the_starter_rules_say(
    owner: Owner, asking: Caller, action: str, resource: PolicyResource, allowed: bool
) -> None:
    policies = CedarPolicies.load(STARTER, SCHEMA, clock=owner.clock, on_change=owner.told.append)
    answer = policies.decide(asking, action, resource)
    assert (answer.allowed, answer.errors) == (allowed, ())


def test_no_wider_rule_opens_private_to_anyone_but_the_owner(owner: Owner) -> None:
    for file in STARTER.iterdir():
        owner.write(file.read_text(), file.name)
    owner.write('@id("all") permit (principal, action, resource);', "99-all.cedar")
    policies = owner.load()
    answer = policies.decide(STAFF, "docs_read", document("private/a"))
    assert (answer.allowed, answer.policies) == (False, ("private-is-the-owners",))
    assert policies.decide(THE_OWNER, "docs_read", document("private/a")).allowed
