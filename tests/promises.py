"""Every behaviour that we promise: id, sentence, source. Tests are bound to it by `@promise`.

A known gap is written here too, with its reason, and has no test.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Promise:
    """One behaviour. `gap` says why it is not kept yet; then no test may claim it."""

    id: str
    sentence: str
    source: str
    gap: str = ""


DESIGN = "design: the row is data"
DESK = "spec: desk"
ECB = "spec: ecb"
WIRE = "MCP specification 2026-07-28"
CASES = "reported cases"

PROMISES = (
    Promise(
        "row-order", "Seven questions are asked in one order, and the first no ends it.", DESIGN
    ),
    Promise("fault-refuses", "A fault in a decision refuses, and is recorded.", DESIGN),
    Promise("one-row", "Each request leaves exactly one row, whatever happens.", DESIGN),
    Promise("audit-fails-closed", "Nothing leaves when its row cannot be written.", DESIGN),
    Promise("store-heals", "A store that failed refuses, and serves again once it heals.", "issue"),
    Promise("one-refusal", "Hidden, disabled and made-up tools get one answer.", DESIGN),
    Promise("refused-costs-the-same", "A refused call costs what a served one costs.", DESIGN),
    Promise("lists-are-counted", "Lists and handshakes are counted and cost nothing.", DESIGN),
    Promise("unknown-method", "An unknown method is charged and written down.", DESIGN),
    Promise("identity-not-from-the-wire", "Nothing on the wire changes who calls.", DESIGN),
    Promise("durable-intent", "An act outside the store has its durable intent first.", DESIGN),
    Promise("cancelled-is-recorded", "A cancelled call leaves a row that says so.", CASES),
    Promise(
        "handler-error-is-recorded", "An error in a tool is a row; its text stays here.", CASES
    ),
    Promise("write-and-row-together", "A write and its row are durable together or not.", DESK),
    Promise("arguments-not-kept", "The trail holds digests, never the arguments.", DESIGN),
    Promise("kept-fields", "The owner can list arguments to keep.", "issue"),
    Promise("duplicate-keys", "A key that came twice is refused.", DESIGN),
    Promise("shape-reasons", "Each reason of shape is told, without the value.", DESIGN),
    Promise("shape-bounds", "Depth, size and numbers have bounds.", DESIGN),
    Promise("no-coercion", 'Nothing is coerced: 4.0, true and "4" are no integers.', DESIGN),
    Promise("extra-at-any-depth", "An unknown field is refused at any depth.", DESIGN),
    Promise("drafts", "Schemas of drafts 4 to 2020-12 mean what they say.", CASES),
    Promise("local-refs-only", "A schema that cannot be kept to is not taken.", WIRE),
    Promise("shape-agrees", "Our verdict is that of an independent validator.", "issue"),
    Promise("side-by-side", "The table of the desk holds in every revision.", DESK),
    Promise("seen-twice", "Four denials are found in order after the exit.", DESK),
    Promise("held", "An export waits for a person.", DESK),
    Promise("same-approval", "The same call is told of the same approval.", DESK),
    Promise("executed-once", "What was approved is carried out once.", DESK),
    Promise("linked-by-approval", "Request, decision and outcome are linked.", DESK),
    Promise("second-use", "An approval cannot be used twice.", DESK),
    Promise("not-the-requester", "Nobody approves what they asked for.", DESK),
    Promise("bound-to-every-byte", "Any difference is another approval.", DESK),
    Promise("expires", "An approval expires, and the call asks again.", DESK),
    Promise("offline-verify", "An edit of the trail is found from a copy.", "issue"),
    Promise("inclusion-proof", "An entry is proven without any other.", "issue"),
    Promise("kill", "A kill at any point loses nothing that was answered.", "issue"),
    Promise("clean-exit", "Leaving, signals and broken pipes end it cleanly within 2 s.", "issue"),
    Promise("bounded-memory", "A client that never reads fills no memory.", CASES),
    Promise("bad-lines", "A malformed line gets its error, or is ignored.", WIRE),
    Promise("proved-from-outside", "A broken promise is noticed from outside.", "issue"),
    Promise("prober-finds", "Each planted fault is found, and nothing else is.", "issue"),
    Promise("one-audience", "A token is for exactly this server, or it is 401.", DESIGN),
    Promise("fair-share", "A greedy caller leaves the others their reserve.", DESIGN),
    Promise("spent-stays-spent", "A restart refills no budget.", "issue"),
    Promise("coverage", "A window says what is not in it, and why.", ECB),
    Promise("exact-digits", "A rate has exactly the digits that were printed.", ECB),
    Promise("no-silent-fallback", "An older rate is never given as another day's.", CASES),
    Promise("official-client", "The official client works in every era.", WIRE),
    Promise("wrong-settings", "A wrong setting stops the start with one line.", "issue"),
    Promise("wrong-policies", "A wrong rule stops the start with file and line.", DESK),
    Promise(
        "policy-replay",
        "Recorded decisions can be replayed against changed rules.",
        DESK,
        gap="rows hold digests of arguments, so the question has to be kept first; a later issue",
    ),
    Promise(
        "url-elicitation",
        "A client that declares URL elicitation gets `input_required`.",
        DESK,
        gap="there is no approval page before the console, which is a later issue",
    ),
)
