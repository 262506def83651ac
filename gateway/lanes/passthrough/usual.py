"""The usage in short answers as most upstreams write it, read by a typed decoder: it makes only the values that count.

What the decoder refuses, and what says its tokens by other names, is for the account's own reader. That says the same
of all that is read here, but of what it cannot read: an answer with a number that no double holds, or one that is
nested deeper than a thousand times. Import this module only where answers are read, for it loads the decoder's library.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Final

from msgspec import DecodeError, Meta, Struct
from msgspec.json import Decoder

from gateway.lanes.passthrough.unread import tell
from gateway.lanes.plan import Plan
from gateway.limits.holds import Owed, settle
from gateway.usage.answers import name_of
from gateway.usage.tokens import MOST, Tokens, Usage

if TYPE_CHECKING:
    from gateway.lanes.passthrough.metered import MeteredAccounting

_Count = Annotated[int, Meta(ge=0, lt=MOST)]


class _Asked(Struct, gc=False):
    cached_tokens: _Count | None = None


class _Answered(Struct, gc=False):
    reasoning_tokens: _Count | None = None


class _Usage(Struct, gc=False):
    prompt_tokens: _Count = 0
    completion_tokens: _Count = 0
    prompt_tokens_details: _Asked | None = None
    completion_tokens_details: _Answered | None = None
    prompt_cache_hit_tokens: _Count | None = None


class _Answer(Struct, gc=False):
    usage: _Usage | None = None
    model: str = ""


_decode: Final = Decoder(_Answer).decode
_NOTHING: Final = _Answer()


def read_all(accounts: Iterable["MeteredAccounting"]) -> None:
    """Read answers that came whole with their heads, and record what they used.

    Neighbours with the same plan and model are recorded as one sum.
    """
    plan: Plan | None = None
    model: str | None = None
    requests = asked = cached = answered = reasoning = 0
    owed: Owed = []
    for account in accounts:
        try:
            answer = _decode(account.beginning[-account.sent_bytes :])
        except (DecodeError, RecursionError):
            answer = _NOTHING
        usage, its_plan, its_model = answer.usage, account.plan, answer.model
        if usage is None or not (its_asked := usage.prompt_tokens):
            account.read_late()
            continue
        if its_model != model or its_plan is not plan:
            if not name_of(its_model):
                account.read_late()
                continue
            _record(plan, model, requests, (asked, cached, answered, reasoning), owed)
            plan, model, owed = its_plan, its_model, []
            requests = asked = cached = answered = reasoning = 0
        requests += 1
        asked += its_asked
        its_answered = usage.completion_tokens
        answered += its_answered
        details, told = usage.prompt_tokens_details, usage.completion_tokens_details
        its_cached = None if details is None else details.cached_tokens
        if its_cached is None:
            its_cached = usage.prompt_cache_hit_tokens
        if its_cached:
            cached += its_cached if its_cached < its_asked else its_asked
        if told is not None and (its_reasoning := told.reasoning_tokens):
            reasoning += its_reasoning if its_reasoning < its_answered else its_answered
        if (hold := account.hold) is not None:
            for meter, due, reserved, _ in hold:
                if reserved is not None:
                    if not due.tokens:
                        owed.append((meter, due))
                    due.tokens += its_asked + its_answered - reserved
    _record(plan, model, requests, (asked, cached, answered, reasoning), owed)


def _record(plan: Plan | None, model: str | None, requests: int, sums: tuple[int, int, int, int], owed: Owed) -> None:
    """Record some requests with the same plan and model, if there are any, and settle what they owe."""
    if plan is not None and model is not None:
        asked, cached, answered, reasoning = sums
        tell(plan, Usage(Tokens(asked, cached, 0, answered, reasoning), requests=requests), model)
        settle(owed, (asked + answered) / requests, requests)
