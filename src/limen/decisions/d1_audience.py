"""Is this token meant for exactly this server, and who holds it?

On stdio there is no token: the process that started us vouches for its one caller, whose
identity and grants come from the settings. Over HTTP it is the bearer token, and nothing else on
the wire. Why a token was refused stands in the row; the caller is told only that it was.
"""

from __future__ import annotations

from dataclasses import dataclass

from limen.ports import CallerReader, Nobody
from limen.tokens.reader import BearerTokens, Token
from limen.walk import Walk
from limen.words import UNAUTHENTICATED, Answer, Call, Caller, Passed, Problem, Refused, Verdict

STEP = "d1_audience"

PUBLIC = {
    "missing_token": Answer(
        problem=Problem(UNAUTHENTICATED, "this server needs a bearer token"), code="missing_token"
    ),
    "invalid_token": Answer(
        problem=Problem(UNAUTHENTICATED, "this bearer token is not valid here"),
        code="invalid_token",
    ),
}


@dataclass(frozen=True, slots=True)
class Audience:
    """Establish the caller, or refuse."""

    callers: CallerReader

    async def decide(self, walk: Walk) -> Verdict:
        """Pass with `walk.caller` set, or refuse a call that nobody vouches for."""
        caller = await self.callers.caller_of(walk.call)
        if isinstance(caller, Nobody):
            return Refused(STEP, caller.reason, PUBLIC[caller.reason], caller.private)
        walk.caller = caller
        return Passed()


@dataclass(frozen=True, slots=True)
class LocalCaller:
    """Vouch for the one caller of a stdio server."""

    caller: Caller

    async def caller_of(self, call: Call) -> Caller | Nobody:
        """Return the caller of the settings, whatever the call says."""
        return self.caller


@dataclass(frozen=True, slots=True)
class BearerCaller:
    """Vouch for whoever holds a token that is meant for exactly this server."""

    tokens: BearerTokens

    async def caller_of(self, call: Call) -> Caller | Nobody:
        """Return whom the token of a call names.

        Raises:
            LimenError: nobody can say whether the token is good, such as when the store is down.
        """
        if call.credential is None:
            return Nobody("missing_token", "no bearer token came")
        token = self.tokens.cached(call.credential) or await self.tokens.token_of(call.credential)
        if not isinstance(token, Token):
            return Nobody("invalid_token", token.reason)
        return Caller(token.subject, token.roles, token.scopes)
