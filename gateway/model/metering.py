"""The tokens of model calls: counters by the key of the caller, and what features make of them.

A request to an upstream costs its caller, whether or not the answer arrives. So each try counts that was sent and not
refused with an error answer: with the tokens that the upstream stated, or an estimate. It counts when it ends, whatever
ends it: its answer, a failure, another try in its place, a client that leaves, the end of the process.
"""

from collections.abc import Sequence
from math import ceil
from time import perf_counter

from gateway.contracts.exchange import AnsweredBy, Chunk, Emit, Exchange, Pause
from gateway.contracts.plugin import Counters
from gateway.contracts.storage.store import Json
from gateway.model.hooks import CallObserver, ContextHook
from gateway.upstream.call import UpstreamCall
from gateway.usage.response_parser import clean_model_name, estimate_text_tokens
from gateway.usage.tokens import BYTES_A_TOKEN, RequestUsage, Times, TokenCounts, build_times, parse_tokens


class ModelUsageRecorder:
    """The counts of all calls of models. `hooks` take the usage of each: a run calls its model once a round."""

    def __init__(self, counters: Counters | None = None, hooks: Sequence[ContextHook] = ()) -> None:
        self._counters = counters
        self._hooks = hooks

    def record(
        self,
        exchange: Exchange,
        usage: RequestUsage,
        *,
        model: str = "",
        upstream: str = "",
        times: Times | None = None,
    ) -> None:
        """Count one try, or a call that went to no upstream, of the model and upstream that served it."""
        for hook in self._hooks:
            hook.record_usage(exchange, usage, model=model, upstream=upstream, times=times)
        if self._counters is not None:
            for kind, tokens in (("prompt", usage.tokens.input), ("completion", usage.tokens.output)):
                if tokens:
                    self._counters.count("tokens", tokens, key=exchange.caller.name, type=kind)


class _SentRequest:
    """A request to an upstream, and the usage that its answer states. What it does not state is estimated."""

    __slots__ = ("call", "came", "is_read", "model", "said", "sent", "sent_bytes", "streams", "texts")

    def __init__(self, call: UpstreamCall, sent_bytes: int) -> None:
        self.call = call
        self.sent_bytes = sent_bytes
        self.said: TokenCounts | None = None  # its last report: some servers report with every chunk
        self.texts = 0.0  # the tokens of its texts
        self.is_read = False  # some of it
        self.model = ""
        self.streams = False  # its answer is a stream
        self.sent, self.came = perf_counter(), 0.0  # the request, and the first of its answer

    def read(self, chunk: Json) -> None:
        """Read a chunk that is more than a text."""
        self.is_read = True
        said = parse_tokens(chunk.get("usage"))
        if said is not None and said.input:  # every prompt has some: a 0 means that nothing was counted
            self.said = said
        elif self.said is None:
            self.texts += estimate_text_tokens(chunk)
        if isinstance(named := chunk.get("model"), str):
            self.model = clean_model_name(named) or self.model

    def measure_times(self, *, cut: bool) -> Times | None:
        """Return the times of the answer, which ends now; None: nothing of it came."""
        if not self.came:
            return None
        streamed = self.said.output if self.streams and self.said is not None and not cut else 0
        return build_times(self.sent, self.came, perf_counter(), streamed_tokens=streamed)

    def count_tokens(self) -> TokenCounts:
        """Return the upstream's counts, or an estimate. All of an unreadable answer may be text."""
        if self.said is not None:
            return self.said
        is_read = self.is_read or self.texts > 0
        answered = self.texts if is_read else self.call.kept_bytes / BYTES_A_TOKEN
        return TokenCounts(ceil(self.sent_bytes / BYTES_A_TOKEN), output=ceil(answered))


class CallMeter:
    """The meter of one call of a model, counted once, and of its tries. `by` is the current model and upstream."""

    def __init__(
        self, metering: ModelUsageRecorder, exchange: Exchange, by: AnsweredBy, observers: Sequence[CallObserver]
    ) -> None:
        self._metering = metering
        self._exchange = exchange
        self._by = by
        self._observers = observers
        self._asked: _SentRequest | None = None  # of the try under way
        self._is_counted = False  # by its last try
        self._is_over = False

    def begin_try(self) -> None:
        """Begin a try, of which nothing is sent yet."""
        self._is_counted = False

    def note_start(self, call: UpstreamCall, request: bytes) -> None:
        """Note that `call` sends this request now."""
        self._asked = _SentRequest(call, len(request) - request.find(b"\r\n\r\n") - 4)

    def note_refusal(self) -> None:
        """Note that the request has an error answer, so that nothing was made for it."""
        self._asked = None

    def wrap_emit(self, emit: Emit, *, streams: bool) -> Emit:
        """Return an `emit` that reads what passes. `streams`: the answer is a stream."""
        asked = self._asked
        if asked is None:  # it was given up
            return emit
        asked.streams = streams

        def take(chunk: Chunk) -> Pause | None:
            if not asked.came:
                asked.came = perf_counter()
            if isinstance(chunk, str):
                size = len(chunk) if chunk.isascii() else len(chunk.encode(errors="replace"))
                if size > BYTES_A_TOKEN:
                    asked.texts += size / BYTES_A_TOKEN
                elif size:
                    asked.texts += 1
            else:
                asked.read(chunk)
            return emit(chunk)

        return take

    def end_try(self, *, cut: bool) -> None:
        """Count the try under way, if its request was sent. `cut`: its answer is not whole. Idempotent."""
        asked, self._asked = self._asked, None
        if asked is None or not asked.call.sent:
            return
        self._is_counted = True
        usage = RequestUsage(asked.count_tokens(), cut=cut, estimated=asked.said is None)
        self._metering.record(
            self._exchange,
            usage,
            model=asked.model or self._by.model,
            upstream=self._by.upstream,
            times=asked.measure_times(cut=cut),
        )
        for observer in self._observers:
            observer.on_try_ended(usage.tokens.input + usage.tokens.output)

    def end(self, *, rejected: bool = False) -> None:
        """Count the call, unless its last try did, and close its observers. Idempotent.

        `rejected`: it ends with an error; else it was given up.
        """
        if self._is_over:
            return
        self._is_over = True
        self.end_try(cut=True)
        if not self._is_counted:
            usage = RequestUsage(rejected=rejected, cut=not rejected)
            self._metering.record(self._exchange, usage, model=self._by.model, upstream=self._by.upstream)
        for observer in self._observers:
            observer.on_closed()
