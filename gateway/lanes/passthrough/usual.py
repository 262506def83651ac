"""The usage in short answers as most upstreams write it, read by a typed decoder: it makes only the values that count.

What the decoder refuses, and what says its tokens by other names, is for the account's own reader. That says the same
of all that is read here, but of what it cannot read: an answer with a number that no double holds, or one that is
nested deeper than a thousand times. Import this module only where answers are read, for it loads the decoder's library.
"""

from collections.abc import Iterable
from operator import sub
from typing import TYPE_CHECKING, Annotated, Final

from msgspec import DecodeError, Meta, Struct
from msgspec.json import Decoder

from gateway.lanes.passthrough.unread import tell
from gateway.lanes.plan import Plan
from gateway.limits.holds import Owed, Share, end_together, is_urgent, owe_together, settle
from gateway.usage.response_parser import clean_model_name
from gateway.usage.tokens import MOST, RequestUsage, Times, TokenCounts

if TYPE_CHECKING:
    from gateway.lanes.passthrough.metered import MeteredAccounting

_Count = Annotated[int, Meta(ge=0, lt=MOST)]


class _Asked(Struct, gc=False):
    cached_tokens: _Count | None = None
    audio_tokens: _Count | None = None


class _Answered(Struct, gc=False):
    reasoning_tokens: _Count | None = None
    audio_tokens: _Count | None = None


class _Usage(Struct, gc=False):
    prompt_tokens: _Count = 0
    completion_tokens: _Count = 0
    prompt_tokens_details: _Asked | None = None
    completion_tokens_details: _Answered | None = None
    prompt_cache_hit_tokens: _Count | None = None


class _Answer(Struct, gc=False):
    usage: _Usage | None = None
    model: str = ""


def _has_audio(usage: _Usage) -> bool:
    """Return whether some of the tokens are audio, which has a price of its own."""
    asked, answered = usage.prompt_tokens_details, usage.completion_tokens_details
    return bool(asked and asked.audio_tokens) or bool(answered and answered.audio_tokens)


_decode: Final = Decoder(_Answer).decode
_NOTHING: Final = _Answer()
#: Input tokens, those of them that were cached, output tokens, and those of them that are reasoning.
_NO_SUMS: Final = 0, 0, 0, 0


class Usual:
    """The sums of answers that came whole with their heads: neighbours with the same plan and model make one.

    `most`: so many answers are recorded without being asked to, and what their requests owe where that is urgent.
    """

    __slots__ = ("_model", "_most", "_owed", "_plan", "_requests", "_sums", "_times")

    def __init__(self, *, most: int) -> None:
        self._most = most
        self._plan: Plan | None = None
        self._model: str | None = None
        self._requests = 0
        self._sums = _NO_SUMS
        self._owed: Owed = []
        self._times: list[float] = []  # of each answer: when its request was sent, when it came, when it ended

    def read(self, accounts: Iterable["MeteredAccounting"]) -> None:
        """Read answers, and add what they used to the sum. Another sum is recorded before."""
        plan, model, requests, owed, times = self._plan, self._model, self._requests, self._owed, self._times
        asked, cached, answered, reasoning = self._sums
        share: Share | None = None  # of the latest answers, which are so many, and used so much of it
        sharing = used_of_it = 0
        for account in accounts:
            try:
                answer = _decode(account.beginning[-account.sent_bytes :])
            except (DecodeError, ValueError, RecursionError):  # a model's name may be no UTF-8
                answer = _NOTHING
            usage, its_plan, its_model = answer.usage, account.plan, answer.model
            if usage is None or not (its_asked := usage.prompt_tokens) or _has_audio(usage):
                account.read_late()
                continue
            if its_model != model or its_plan is not plan:
                if not clean_model_name(its_model):
                    account.read_late()
                    continue
                self._requests, self._sums = requests, (asked, cached, answered, reasoning)
                self.record()
                self._plan, self._model = plan, model = its_plan, its_model
                owed, times = self._owed, self._times
                requests = asked = cached = answered = reasoning = 0
            requests += 1
            times += account.sent_at, account.came, account.forwarded
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
            if account.share is not share:
                if share is not None:
                    end_together(share, used_of_it, sharing, owed)
                share, sharing, used_of_it = account.share, 0, 0
            if share is not None:
                sharing += 1
                used_of_it += its_asked + its_answered
            elif account.hold is not None:
                owe_together(account.hold, its_asked + its_answered, 1, owed)
        if share is not None:
            end_together(share, used_of_it, sharing, owed)
        self._requests, self._sums = requests, (asked, cached, answered, reasoning)
        if requests >= self._most or is_urgent(owed):
            self.record()

    def record(self) -> None:
        """Record the sum, if there is one, and settle what its requests owe."""
        if not self._requests:
            return
        assert self._plan is not None
        assert self._model is not None
        asked, cached, answered, reasoning = self._sums
        requests, self._requests = self._requests, 0
        owed, self._sums, self._owed = self._owed, _NO_SUMS, []
        times, self._times = self._times, []
        sent, came, ended = times[::3], times[1::3], times[2::3]
        taken = Times([*map(sub, came, sent)], [*map(sub, ended, sent)])
        tell(
            self._plan,
            RequestUsage(TokenCounts(asked, cached, 0, answered, reasoning), requests=requests),
            self._model,
            taken,
        )
        settle(owed)
