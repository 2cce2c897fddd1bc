"""Do the owner's rules allow this action on this resource?

The rules are Cedar policies in the owner's folder. What no policy allows is denied, and a denial
is an ordinary answer: the connection worked, the business decision was no.
"""

from __future__ import annotations

import bisect
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import cedarpy
import orjson

from limen.canonical import canonical, digest, digest_bytes
from limen.errors import PolicyError
from limen.ports import Clock, Entity, Policy, PolicyAnswer, PolicyResource
from limen.walk import Walk
from limen.words import (
    INVALID_PARAMS,
    NO_SUCH_PROMPT,
    NO_SUCH_RESOURCE,
    Answer,
    Caller,
    Passed,
    Problem,
    Refused,
    Verdict,
    as_problem,
    business,
)

STEP = "d5_policy"

DENIALS = {
    "tools/call": business("denied", "the owner's rules do not allow this"),
    "prompts/get": Answer(problem=Problem(INVALID_PARAMS, NO_SUCH_PROMPT)),
    "resources/read": Answer(problem=Problem(INVALID_PARAMS, NO_SUCH_RESOURCE)),
}
"""What a denied caller gets, by method. Methods without an entry are not asked about."""

FactsOf = Callable[[], Any]
"""Return the view of its server through which an entry's `resource` function looks things up."""

LOOK_EVERY_S = 0.5
"""Seconds between two looks at the policy folder: soon enough for a person, and one `stat` a file
is spread over many calls."""

MAX_ANSWERS = 4096
"""Remembered answers of one set of rules. About 2 MB when full of ordinary questions."""


@dataclass(frozen=True, slots=True)
class PolicyStep:
    """Ask the owner's rules about what a call would do, and to what."""

    policy: Policy
    facts: FactsOf

    async def decide(self, walk: Walk) -> Verdict:
        """Pass with `walk.resource` and `walk.policy` set when the rules allow the call."""
        denial = DENIALS.get(walk.call.method)
        if denial is None:
            return Passed()
        entry = walk.entered()
        resource: PolicyResource | Answer = PolicyResource(Entity("Tool", entry.name))
        if entry.resource is not None:
            resource = entry.resource(self.facts(), walk.arguments)
        if isinstance(resource, Answer):
            return Refused(
                step=STEP,
                reason=resource.code or "denied",
                public=resource if walk.call.method == "tools/call" else as_problem(resource),
                private=f"the arguments name no resource of `{entry.name}`",
            )
        walk.resource = resource
        walk.policy = self.policy.decide(walk.caller, entry.action, resource)
        if walk.policy.allowed:
            return Passed()
        return Refused(step=STEP, reason="denied", public=denial, private=_private(walk.policy))


def _private(answer: PolicyAnswer) -> str:
    why = f"forbidden by {_listed(answer.policies)}" if answer.policies else "no policy allows this"
    return f"{why}; could not evaluate {_listed(answer.errors)}" if answer.errors else why


def _listed(ids: Iterable[str]) -> str:
    return ", ".join(f"`{policy_id}`" for policy_id in ids)


@dataclass(frozen=True, slots=True)
class WrittenPolicy:
    """One policy as it stands in its file. `line` counts from 1; `effect` is permit or forbid."""

    id: str
    effect: str
    file: str
    line: int
    text: str
    contextual: bool
    """Whether it reads `context`, by Cedar's own parse."""
    action: str | None
    """The one action it speaks of, None when it may speak of several."""

    @property
    def place(self) -> str:
        """Return where it stands: `desk.cedar:12`."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class PolicyStatus:
    """Which rules are in force. `problem` is why the folder's present content is not."""

    version: str
    count: int
    loaded_at: datetime
    problem: str | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why the rules said what they said.

    `near_misses` are permits that speak of this action and this type of resource but do not hold.
    `errors` are Cedar's own words and may repeat what was asked: for the owner, not for the row.
    """

    allowed: bool
    version: str
    policies: tuple[WrittenPolicy, ...]
    near_misses: tuple[WrittenPolicy, ...]
    errors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Outcome:
    allowed: bool
    decided: tuple[WrittenPolicy, ...]
    failed: tuple[WrittenPolicy, ...] = ()
    errors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Rules:
    """One valid set of rules with the answers it has given: a new set begins with none."""

    version: str
    loaded_at: datetime
    policies: tuple[WrittenPolicy, ...]
    by_action: Mapping[str | None, cedarpy.PolicySet]
    """The policies that can speak of an action; under None those that may speak of any."""
    schema: cedarpy.Schema
    answers: dict[tuple[object, ...], PolicyAnswer] = field(default_factory=dict)
    callers: dict[tuple[str, frozenset[str]], cedarpy.Entities] = field(default_factory=dict)
    fitting: set[tuple[str, str]] = field(default_factory=set)
    """Actions and types of resources whose questions without context fit the schema."""
    contextual_actions: frozenset[str | None] = frozenset()

    def answer(self, caller: Caller, action: str, resource: PolicyResource) -> PolicyAnswer:
        # INVARIANT: the key holds everything that goes into the question, so a remembered answer
        # is the answer. Roles, attributes, parents and related entities are in it by value; the
        # context is left out only for actions that no policy reading `context` can speak of.
        contextual = action in self.contextual_actions or None in self.contextual_actions
        try:
            key = (
                caller.id,
                caller.roles,
                action,
                _key(resource.entity),
                tuple([_key(related) for related in resource.related if not _is_bare(related)]),
                canonical(resource.context) if contextual else b"",
            )
            known = self.answers.get(key)
        except TypeError as error:
            raise PolicyError(f"rules cannot be asked: {_one_line(error)}") from error
        if known is not None:
            return known
        allowed, reasons, errors = self._put(self.asked(action), caller, action, resource)
        if errors:
            outcome = self._outcome(allowed, reasons, errors)
            decided = tuple([policy.id for policy in outcome.decided])
            failed = tuple([policy.id for policy in outcome.failed])
            answer = PolicyAnswer(outcome.allowed, decided, self.version, failed)
        else:
            # What follows Cedar runs on cold caches: 1 µs here is 3 µs of the decision.
            decided = tuple([policy.id for policy in self._named(reasons)])
            answer = PolicyAnswer(allowed, decided, self.version)
        # Emptied, not trimmed: one plain dict operation, safe from any thread.
        if len(self.answers) >= MAX_ANSWERS:
            self.answers.clear()
        self.answers[key] = answer
        return answer

    def asked(self, action: str) -> cedarpy.PolicySet:
        """Return the policies that can speak of an action: Cedar looks at each it is given."""
        return self.by_action.get(action, self.by_action[None])

    def ask(
        self, asked: cedarpy.PolicySet, caller: Caller, action: str, resource: PolicyResource
    ) -> _Outcome:
        """Put one question to Cedar; `asked` numbers its policies as `self.policies` does."""
        return self._outcome(*self._put(asked, caller, action, resource))

    def _outcome(self, allowed: bool, reasons: Sequence[str], said: Sequence[str]) -> _Outcome:
        decided = tuple(self._named(reasons))
        errors: list[tuple[WrittenPolicy, str]] = []
        for text in said:
            found = FAILED.match(text)
            if found is None:
                raise PolicyError(f"rules cannot answer: {_one_line(text)}")
            errors.append((self.policies[_number(found[1])], _one_line(text[found.end() :])))
        failed = tuple(policy for policy, _ in errors)
        texts = tuple(f"policy `{policy.id}`: {text}" for policy, text in errors)
        # Fails closed: Cedar skips a policy that cannot be evaluated. A skipped permit only says
        # no; a skipped forbid would let a caller through by making it overflow.
        blocking = tuple(policy for policy in failed if policy.effect == "forbid")
        if allowed and blocking:
            return _Outcome(False, blocking, failed, texts)
        return _Outcome(allowed, decided, failed, texts)

    def _named(self, reasons: Sequence[str]) -> list[WrittenPolicy]:
        if len(reasons) == 1:
            return [self.policies[_number(reasons[0])]]
        return [self.policies[number] for number in sorted([_number(name) for name in reasons])]

    def _put(
        self, asked: cedarpy.PolicySet, caller: Caller, action: str, resource: PolicyResource
    ) -> tuple[bool, Sequence[str], Sequence[str]]:
        """Return whether it is allowed, the names of what decided, and what went wrong."""
        about = [resource.entity]
        if resource.related:
            # The caller's roles are the boundary's, whatever a server relates to the resource.
            own = ("Caller", caller.id)
            about += [e for e in resource.related if not _is_bare(e) and (e.type, e.id) != own]
        # The forms with `type` and `id` carry any id as it is: nothing is spelled as Cedar text.
        request: dict[str, object] = {
            "principal": {"type": "Caller", "id": caller.id},
            "action": {"type": "Action", "id": action},
            "resource": {"type": resource.entity.type, "id": resource.entity.id},
        }
        # With the schema, a question that does not fit it is an error here and not a quiet no.
        schema: cedarpy.Schema | None = self.schema
        try:
            sent = [_entity(entity) for entity in about]
            entities: cedarpy.Entities | str
            if resource.entity.attributes or any(e.attributes for e in about[1:]):
                entities = orjson.dumps([_principal(caller), *sent]).decode()
            else:
                # Only attributes can break the schema here: no rule can name a parent of a type
                # that the schema does not know. Not looking for that is 15 µs faster.
                entities = self._known(caller).with_added_json_str(orjson.dumps(sent).decode())
                # And without context a question fits by its types alone.
                if not resource.context and (action, resource.entity.type) in self.fitting:
                    schema = None
            # To Cedar no context is an empty one, and it costs 10 µs less.
            if resource.context:
                request["context"] = orjson.dumps(resource.context).decode()
            # A batch of one is the same question by a shorter way.
            [result] = cedarpy.is_authorized_batch([request], asked, entities, schema)
        except (ValueError, TypeError) as error:
            raise PolicyError(f"rules cannot be asked: {_one_line(error)}") from error
        decision, said = result.decision, result.diagnostics
        errors = said.errors
        if decision is cedarpy.Decision.NoDecision:
            raise PolicyError(f"rules cannot be asked: {_one_line('; '.join(errors))}")
        if schema is not None and not resource.context:
            self.fitting.add((action, resource.entity.type))
        return decision is cedarpy.Decision.Allow, said.reasons, errors

    def _known(self, caller: Caller) -> cedarpy.Entities:
        """Return a caller in their roles as Cedar keeps them, with the schema's action groups."""
        known = self.callers.get((caller.id, caller.roles))
        if known is None:
            sent = orjson.dumps([_principal(caller)]).decode()
            known = cedarpy.Entities.from_json_str(sent, self.schema)
            if len(self.callers) >= MAX_ANSWERS:
                self.callers.clear()
            self.callers[caller.id, caller.roles] = known
        return known


FAILED = re.compile(r"error while evaluating policy `(policy\d+)`: ")


def _number(name: str) -> int:
    # Cedar numbers the policies of a text in the order in which they stand there.
    return int(name[len("policy") :])


def _key(entity: Entity) -> tuple[object, ...]:
    attributes = canonical(entity.attributes) if entity.attributes else b""
    return (entity.type, entity.id, entity.parents, attributes)


def _is_bare(entity: Entity) -> bool:
    # Such an entity says no more than its name, which whoever refers to it has said.
    return not entity.parents and not entity.attributes


def _principal(caller: Caller) -> dict[str, object]:
    roles = [{"type": "Role", "id": role} for role in caller.roles]
    return {"uid": {"type": "Caller", "id": caller.id}, "attrs": {}, "parents": roles}


def _entity(entity: Entity) -> dict[str, object]:
    return {
        "uid": {"type": entity.type, "id": entity.id},
        "attrs": entity.attributes,
        "parents": [{"type": kind, "id": name} for kind, name in entity.parents],
    }


Signature = tuple[tuple[str, int, int, int], ...]
"""Name, time of change in ns, size and inode of each policy file, by name."""


@dataclass(slots=True)
class CedarPolicies:
    """Answer from the `*.cedar` files of a folder, and follow their changes.

    The folder is looked at no more than every 0.5 s, when a question comes. Content that is not
    valid changes nothing: the last good rules stay, and `on_change` hears of it once.
    """

    folder: Path
    clock: Clock
    on_change: Callable[[str], None]
    _schema_text: str
    _rules: _Rules
    _signature: Signature
    _settled: bool = False
    _next_look: float = 0.0
    _problem: str | None = None

    @classmethod
    def load(
        cls, folder: Path, schema_text: str, *, clock: Clock, on_change: Callable[[str], None]
    ) -> CedarPolicies:
        """Read every `*.cedar` file of a folder, by name; names with a dot in front are skipped.

        An empty folder is a valid set that denies everything, and `on_change` is told so.

        Raises:
            PolicyError: the schema, the folder or a policy cannot be used as it is.
        """
        signature, files = _read(folder)
        rules = _rules_of(files, schema_text, clock.now())
        if not rules.policies:
            on_change(f"policies loaded: {_described(rules)}")
        next_look = clock.monotonic() + LOOK_EVERY_S
        return cls(folder, clock, on_change, schema_text, rules, signature, _next_look=next_look)

    def decide(self, caller: Caller, action: str, resource: PolicyResource) -> PolicyAnswer:
        """Return what the current rules say. Default: no.

        Raises:
            PolicyError: the question does not fit the schema or cannot be put to Cedar.
        """
        if self.clock.monotonic() >= self._next_look:
            self._look()
        return self._rules.answer(caller, action, resource)

    def status(self) -> PolicyStatus:
        """Return which rules are in force and since when."""
        rules = self._rules
        return PolicyStatus(rules.version, len(rules.policies), rules.loaded_at, self._problem)

    def written(self) -> tuple[WrittenPolicy, ...]:
        """Return the rules in force, in the order of their files."""
        return self._rules.policies

    def explain(self, caller: Caller, action: str, resource: PolicyResource) -> Explanation:
        """Return the decision with the policies that made it and the permits that came close.

        Raises:
            PolicyError: the question does not fit the schema or cannot be put to Cedar.
        """
        if self.clock.monotonic() >= self._next_look:
            self._look()
        rules = self._rules
        outcome = rules.ask(rules.asked(action), caller, action, resource)
        # Near misses speak of the question but do not hold. Cedar says which permits hold only
        # when nothing forbids, so both are asked without the forbids.
        speaking = rules.ask(_permits(rules, widened=True), caller, action, resource).decided
        holding = rules.ask(_permits(rules, widened=False), caller, action, resource).decided
        near_misses = tuple(policy for policy in speaking if policy not in holding)
        return Explanation(
            outcome.allowed, rules.version, outcome.decided, near_misses, outcome.errors
        )

    def _look(self) -> None:
        self._next_look = self.clock.monotonic() + LOOK_EVERY_S
        # Two writes within one tick of the file system's clock look like one, so what has changed
        # or could not be read is read once more at the next look.
        was_settled, self._settled = self._settled, False
        try:
            if was_settled and _signature(self.folder) == self._signature:
                self._settled = True
                return
            signature, files = _read(self.folder)
            self._settled = signature == self._signature
            self._signature = signature
            if self._problem is None and self._rules.version == _version(files, self._schema_text):
                return
            self._rules = _rules_of(files, self._schema_text, self.clock.now())
        except PolicyError as error:
            self._keep(str(error))
            return
        self._problem = None
        self.on_change(f"policies reloaded: {_described(self._rules)}")

    def _keep(self, problem: str) -> None:
        if problem != self._problem:
            self.on_change(f"policies kept as they were: {problem}")
        self._problem = problem


def _described(rules: _Rules) -> str:
    count = len(rules.policies)
    policies = "1 policy" if count == 1 else f"{count} policies"
    warning = "" if count else ", so everything is denied"
    return f"{policies}{warning}, version {rules.version}"


def _signature(folder: Path) -> Signature:
    signature = []
    try:
        with os.scandir(folder) as found:
            for file in found:
                if not file.name.endswith(".cedar") or file.name.startswith("."):
                    continue
                if not file.name.isprintable():
                    raise PolicyError(f"policy file {file.name!a} has an unprintable name")
                status = file.stat()
                # Fails closed: a rule that cannot be read may be a forbid, so it is not skipped.
                if not stat.S_ISREG(status.st_mode):
                    raise PolicyError(f"policy file `{file.name}` is not a regular file")
                signature.append((file.name, status.st_mtime_ns, status.st_size, status.st_ino))
    except OSError as error:
        raise PolicyError(f"cannot read policies in `{folder}`: {_cause(error)}") from error
    return tuple(sorted(signature))


def _read(folder: Path) -> tuple[Signature, tuple[tuple[str, bytes], ...]]:
    signature = _signature(folder)
    files = []
    for name, *_ in signature:
        try:
            files.append((name, (folder / name).read_bytes()))
        except OSError as error:
            raise PolicyError(f"cannot read policy file `{name}`: {_cause(error)}") from error
    if _signature(folder) != signature:
        raise PolicyError(
            f"policies in `{folder}` changed while they were read; they are read again"
        )
    return signature, tuple(files)


def _cause(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()


def _version(files: Sequence[tuple[str, bytes]], schema_text: str) -> str:
    return digest(
        {"files": [[name, digest_bytes(raw)] for name, raw in files], "schema": schema_text}
    )


def _rules_of(files: Sequence[tuple[str, bytes]], schema_text: str, loaded_at: datetime) -> _Rules:
    try:
        schema = cedarpy.Schema.from_str(schema_text)
    except ValueError as error:
        raise PolicyError(f"policy schema cannot be used: {_one_line(error)}") from error
    texts = [(name, _decoded(name, raw)) for name, raw in files]
    policies = [policy for name, text in texts for policy in _policies_in(name, text, schema)]
    _check_unique(policies)
    return _Rules(
        version=_version(files, schema_text),
        loaded_at=loaded_at,
        policies=tuple(policies),
        by_action={
            action: _set_of(
                {
                    number: _parsed(policy)
                    for number, policy in enumerate(policies)
                    if policy.action in (None, action)
                }
            )
            for action in {None, *(policy.action for policy in policies)}
        },
        schema=schema,
        contextual_actions=frozenset(policy.action for policy in policies if policy.contextual),
    )


def _decoded(name: str, raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise _flaw(name, line, f"byte 0x{raw[error.start]:02x} is not UTF-8") from error


def _policies_in(name: str, text: str, schema: cedarpy.Schema) -> list[WrittenPolicy]:
    """Return a file's policies in their order, each with an `@id` and valid by the schema."""
    pieces = _pieces_of(text)
    try:
        parsed = orjson.loads(cedarpy.policies_to_json_str(text))
    except orjson.JSONDecodeError as error:
        reason = "a condition nests too deeply; write `in [...]` for a long chain of `||`"
        raise _flaw(name, 1, reason) from error
    except ValueError as error:
        raise _parse_flaw(name, pieces, str(error)) from error
    for number, piece in enumerate(pieces):
        if f"policy{number}" in parsed["templates"]:
            raise _flaw(name, piece.line, "a template has nothing to fill it; write names instead")
    flaws = cedarpy.validate_policies(text, schema).errors
    if flaws:
        first = min(flaws, key=lambda flaw: _number(flaw.policy_id))
        piece = pieces[_number(first.policy_id)]
        reason = first.error.removeprefix(f"for policy `{first.policy_id}`, ")
        raise _flaw(name, piece.line_of_word_in(reason), reason)
    return [
        _written(name, piece, parsed["staticPolicies"][f"policy{number}"])
        for number, piece in enumerate(pieces)
    ]


def _written(name: str, piece: _Piece, parsed: Mapping[str, Any]) -> WrittenPolicy:
    policy_id = parsed.get("annotations", {}).get("id")
    if not policy_id:
        raise _flaw(name, piece.line, 'policy has no id; write `@id("...")` in front of it')
    scope = parsed["action"]
    return WrittenPolicy(
        id=policy_id,
        effect=parsed["effect"],
        file=name,
        line=piece.line,
        text=piece.text,
        contextual=_reads_context(parsed["conditions"]),
        # From here on None stands for every action: a group in a list may name any of them.
        action=scope["entity"]["id"] if scope["op"] == "==" else None,
    )


def _reads_context(conditions: object) -> bool:
    rest = [conditions]
    while rest:
        node = rest.pop()
        if isinstance(node, dict):
            if node.get("Var") == "context":
                return True
            rest.extend(node.values())
        elif isinstance(node, list):
            rest.extend(node)
    return False


def _check_unique(policies: Iterable[WrittenPolicy]) -> None:
    seen: dict[str, WrittenPolicy] = {}
    for policy in policies:
        if (first := seen.setdefault(policy.id, policy)) is not policy:
            reason = f"id `{policy.id}` is taken by `{first.file}` line {first.line}"
            raise _flaw(policy.file, policy.line, reason)


def _permits(rules: _Rules, *, widened: bool) -> cedarpy.PolicySet:
    """Return the permits alone under their numbers, widened to action and type if so asked."""
    permits = {
        number: _parsed(policy)
        for number, policy in enumerate(rules.policies)
        if policy.effect == "permit"
    }
    if widened:
        return _set_of({number: _widened(permit) for number, permit in permits.items()})
    return _set_of(permits)


def _parsed(policy: WrittenPolicy) -> dict[str, Any]:
    parsed = orjson.loads(cedarpy.policies_to_json_str(policy.text))
    alone: dict[str, Any] = parsed["staticPolicies"]["policy0"]
    return alone


def _set_of(policies: Mapping[int, Mapping[str, Any]]) -> cedarpy.PolicySet:
    numbered = {f"policy{number}": policy for number, policy in policies.items()}
    all_of_it = {"staticPolicies": numbered, "templates": {}, "templateLinks": []}
    return cedarpy.PolicySet.from_json_str(orjson.dumps(all_of_it).decode())


def _widened(permit: Mapping[str, Any]) -> dict[str, Any]:
    scope = permit["resource"]
    kind = scope["entity"]["type"] if scope["op"] == "==" else scope.get("entity_type")
    resource = {"op": "is", "entity_type": kind} if kind else {"op": "All"}
    return {**permit, "principal": {"op": "All"}, "resource": resource, "conditions": []}


# Where in a file: Cedar's bindings say what is wrong but not where, so the places are found here.
# They serve messages and explanations only; what is asked is always the files' own text.

TOKEN = re.compile(
    r'\s+|//[^\n\r]*|"(?:\\.|[^"\\])*"|[A-Za-z_]\w*|\d+|==|!=|<=|>=|&&|\|\||::|.',
    re.ASCII | re.DOTALL,
)

UNFINISHED = "unexpected end of input"


@dataclass(frozen=True, slots=True)
class _Piece:
    """What stands between two semicolons of a file: its tokens as spans, never empty."""

    source: str
    spans: tuple[tuple[int, int], ...]

    @property
    def text(self) -> str:
        return self.first(len(self.spans))

    @property
    def line(self) -> int:
        return self.line_at(0)

    def first(self, count: int) -> str:
        """Return the text of the first `count` tokens."""
        return self.source[self.spans[0][0] : self.spans[count - 1][1]]

    def line_at(self, index: int) -> int:
        """Return the line on which a token begins."""
        return self.source.count("\n", 0, self.spans[index][0]) + 1

    def line_of_word_in(self, reason: str) -> int:
        """Return the one line with the first word that `reason` quotes, else the first line."""
        quoted = re.search(r"`(\w+)`|: (\w+)\Z", reason, re.ASCII)
        word = quoted[1] or quoted[2] if quoted else ""
        lines = {
            self.line_at(index)
            for index, (start, end) in enumerate(self.spans)
            if self.source[start:end] == word
        }
        return lines.pop() if len(lines) == 1 else self.line


def _pieces_of(text: str) -> list[_Piece]:
    """Take a file apart after each semicolon outside strings and comments."""
    pieces = []
    spans: list[tuple[int, int]] = []
    for token in TOKEN.finditer(text):
        if token[0].isspace() or token[0].startswith("//"):
            continue
        spans.append(token.span())
        if token[0] == ";":
            pieces.append(_Piece(text, tuple(spans)))
            spans = []
    return [*pieces, _Piece(text, tuple(spans))] if spans else pieces


def _parse_flaw(name: str, pieces: Sequence[_Piece], reason: str) -> PolicyError:
    for piece in pieces:
        if (own := _why_not_parsed(piece.text)) is not None:
            return _flaw(name, _line_of_flaw(piece, own), own)
    return _flaw(name, 1, reason)


def _line_of_flaw(piece: _Piece, reason: str) -> int:
    if not reason.startswith(("unexpected ", "invalid token")):
        return piece.line_of_word_in(reason)
    # The token that breaks a policy ends the shortest beginning that no continuation can mend,
    # and every longer one is as broken.
    total = len(piece.spans)
    index = bisect.bisect_left(
        range(total),
        True,
        key=lambda last: _why_not_parsed(piece.first(last + 1)) not in (None, UNFINISHED),
    )
    return piece.line_at(min(index, total - 1))


def _why_not_parsed(text: str) -> str | None:
    try:
        cedarpy.PolicySet.from_str(text)
    except ValueError as error:
        return str(error)
    return None


def _flaw(name: str, line: int, reason: str) -> PolicyError:
    return PolicyError(f"policy file `{name}` line {line}: {_one_line(reason)}")


def _one_line(said: object) -> str:
    return " ".join(str(said).split())
