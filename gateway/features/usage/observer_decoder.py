"""The usage in short answers as most upstreams write it, read by a typed decoder: it makes only the values that count.

What the decoder refuses, and what says its tokens by other names, is for the observer's own reader. That says the same
of all that is read here, but of what it cannot read: an answer with a number that no double holds, or one that is
nested deeper than a thousand times. Import this module only where answers are read, for it loads the decoder's library.
"""

from collections.abc import Iterable
from operator import sub
from typing import Annotated, Final

from msgspec import DecodeError, Meta, Struct
from msgspec.json import Decoder

from gateway.features.usage.observer_meter import PendingUsage, UsageMeter
from gateway.lanes.passthrough.plan_records import PlanTarget
from gateway.limits.reservation import AnyReservation, Settlement
from gateway.usage.response_parser import clean_model_name
from gateway.usage.tokens import MOST, RequestUsage, Times, TokenCounts

_Count = Annotated[int, Meta(ge=0, lt=MOST)]


class _PromptDetails(Struct, gc=False):
    cached_tokens: _Count | None = None
    audio_tokens: _Count | None = None


class _CompletionDetails(Struct, gc=False):
    reasoning_tokens: _Count | None = None
    audio_tokens: _Count | None = None


class _Usage(Struct, gc=False):
    prompt_tokens: _Count = 0
    completion_tokens: _Count = 0
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None
    prompt_cache_hit_tokens: _Count | None = None
    cache_creation_input_tokens: _Count | None = None


class _Answer(Struct, gc=False):
    usage: _Usage | None = None
    model: str = ""


def _has_other_prices(usage: _Usage) -> bool:
    """Return whether some of the tokens are audio, or were written to a cache: these have prices of their own."""
    asked, answered = usage.prompt_tokens_details, usage.completion_tokens_details
    if usage.cache_creation_input_tokens:
        return True
    return bool(asked and asked.audio_tokens) or bool(answered and answered.audio_tokens)


_decode: Final = Decoder(_Answer).decode
_NOTHING: Final = _Answer()
#: Input tokens, those of them that were cached, output tokens, and those of them that are reasoning.
_NO_SUMS: Final = 0, 0, 0, 0


class UsageDecoder:
    """The sums of answers that came whole with their heads: neighbours with the same target and model make one.

    `most`: so many answers are recorded at once, and their reservations settled; sooner where that is urgent.
    """

    __slots__ = ("_meter", "_model", "_most", "_requests", "_settlement", "_sums", "_target", "_times")

    def __init__(self, *, most: int) -> None:
        self._most = most
        self._target: PlanTarget | None = None
        self._meter: UsageMeter | None = None
        self._model: str | None = None
        self._requests = 0
        self._sums = _NO_SUMS
        self._settlement = Settlement()
        self._times: list[float] = []  # of each answer: when its request was sent, when it came, when it ended

    def read(self, pending: Iterable[PendingUsage]) -> None:
        """Read answers, and add what they used to the sum. Another sum is recorded before."""
        target, model, requests, times = self._target, self._model, self._requests, self._times
        settlement = self._settlement
        asked, cached, answered, reasoning = self._sums
        latest: AnyReservation | None = None  # of the latest answers, which are so many, and used so much of it
        sharing = used_of_it = 0
        for one in pending:
            record = one.record
            try:
                answer = _decode(record.beginning[-record.sent_bytes :])
            except (DecodeError, ValueError, RecursionError):  # a model's name may be no UTF-8
                answer = _NOTHING
            usage, its_target, its_model = answer.usage, record.target, answer.model
            if usage is None or not (its_asked := usage.prompt_tokens) or _has_other_prices(usage):
                one.read_late()
                continue
            if its_model != model or its_target is not target:
                if not clean_model_name(its_model):
                    one.read_late()
                    continue
                self._requests, self._sums = requests, (asked, cached, answered, reasoning)
                self.record()
                target, model = its_target, its_model
                self._target, self._model, self._meter = target, model, one.meter
                settlement, times = self._settlement, self._times
                requests = asked = cached = answered = reasoning = 0
            requests += 1
            times += record.sent_at, record.came, record.forwarded
            asked += its_asked
            its_answered = usage.completion_tokens
            answered += its_answered
            prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
            its_cached = None if prompt is None else prompt.cached_tokens
            if its_cached is None:
                its_cached = usage.prompt_cache_hit_tokens
            if its_cached:
                cached += its_cached if its_cached < its_asked else its_asked
            if completion is not None and (its_reasoning := completion.reasoning_tokens):
                reasoning += its_reasoning if its_reasoning < its_answered else its_answered
            if record.reservation is not latest:
                if latest is not None:
                    settlement.close(latest, used_of_it, sharing)
                latest, sharing, used_of_it = record.reservation, 0, 0
            sharing += 1
            used_of_it += its_asked + its_answered
        if latest is not None:
            settlement.close(latest, used_of_it, sharing)
        self._requests, self._sums = requests, (asked, cached, answered, reasoning)
        if requests >= self._most or settlement.is_urgent:
            self.record()

    def record(self) -> None:
        """Record the sum, if there is one, and settle what its requests owe."""
        if not self._requests:
            return
        assert self._target is not None
        assert self._meter is not None
        assert self._model is not None
        asked, cached, answered, reasoning = self._sums
        requests, self._requests = self._requests, 0
        settlement, self._sums, self._settlement = self._settlement, _NO_SUMS, Settlement()
        times, self._times = self._times, []
        sent, came, ended = times[::3], times[1::3], times[2::3]
        taken = Times([*map(sub, came, sent)], [*map(sub, ended, sent)])
        usage = RequestUsage(TokenCounts(asked, cached, 0, answered, reasoning), requests=requests)
        self._meter.record(self._target, usage, self._model, taken)
        settlement.settle()
