"""Passthrough transactions whose usage is recorded. Nothing of what is forwarded differs, and nothing waits for it.

A copy of the payload passes by (`teed.py`), of which the beginning and the end are kept (`gateway.usage.ring_buffer`).
They are read once, when the account of the transaction is closed: that happens exactly once, however the transaction
ends. A short answer that comes whole with its head waits, to be counted and read with others (`unread.py`), a
compressed one until it is decoded (`gateway.usage.decompression`): if megabytes of it are not, no more is read of it
meanwhile.

Two ways cost less, because nearly all answers take them. One that comes whole with its head is kept as the bytes that
came, and read from there. Of a stream whose chunks go past the splice (`UpstreamConnection.relay`), the last ones are
kept as they are, in a ring: once the beginning is there, nobody needs those between.
"""

import logging
import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import ceil
from time import perf_counter
from types import MappingProxyType
from typing import Final

from gateway.contracts.errors import GatewayError
from gateway.http.body import Body
from gateway.http.response_head import ResponseHead
from gateway.lanes.generating import computes, generates
from gateway.lanes.passthrough.accounting import Accounting
from gateway.lanes.passthrough.balanced import Balanced
from gateway.lanes.passthrough.by_model import ByModel
from gateway.lanes.passthrough.hedging import Hedging
from gateway.lanes.passthrough.splice import Splice
from gateway.lanes.passthrough.teed import TeedLengthBody, teed_body_of
from gateway.lanes.passthrough.unread import MOST, tell
from gateway.lanes.plan import Plan
from gateway.lanes.spelling import may_end_with
from gateway.lanes.transaction import Client, Clients
from gateway.limits.holds import give_back, leave, owe, settle
from gateway.usage.decompression import AnswerDecoder, DecodingQueue, build_answer_decoder, is_plain
from gateway.usage.response_parser import (
    SHORT_BYTES,
    clean_model_name,
    has_id,
    of_native,
    of_stream,
    of_whole,
    text_tokens,
)
from gateway.usage.ring_buffer import AnswerBuffer
from gateway.usage.tokens import BYTES_A_TOKEN, Recorded, RequestUsage, Times, TokenCounts, build_times

log = logging.getLogger("gateway")

#: Chunks of a stream that are kept as they pass; each is shorter than 2 KiB.
LAST_CHUNKS: Final = 32
#: Ends of the paths whose requests are files: sounds that become text, and images.
_HEARD: Final = (b"/audio/transcriptions", b"/audio/translations")
_FILES: Final = (*_HEARD, b"/images/edits", b"/images/variations")
#: Bytes of a file for one token: 25 minutes of sound, which are 15,000 tokens, and most images have some of that size.
FILE_BYTES_A_TOKEN: Final = 1024
#: The last name in a path, or the one whose request is cancelled: it may be the id of a stored answer.
_STORED: Final = re.compile(rb"/([\w-]+)(?:/cancel)?/?\Z")
#: Below 300, statuses of answers without content.
_NO_CONTENT: Final = (204, 205)
_CODING = re.compile(rb"\r\ncontent-encoding:([^\r\n]*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Meter:
    """The way to the usage of a plan's requests.

    `reads`: the answer may say it. What it does not say is estimated: the input by the bytes of the request, so many of
    which are a token (`asked_bytes`; 0: it is not), and with `answers` the output. `asks`: the requests are texts.
    `stored` is the id of the answer that they may repeat. `undecoded` are the compressed answers of the worker.
    """

    recorded: Recorded
    undecoded: DecodingQueue
    reads: bool
    asks: bool
    asked_bytes: int
    answers: bool
    stored: bytes = b""

    @property
    def waits(self) -> bool:
        """Return whether short answers may be read together."""
        return self.reads and not self.stored


def meter_of(recorded: Recorded, undecoded: DecodingQueue, *, makes: bool, path: bytes) -> Meter:
    """Return the meter of requests to a path, however that is spelled: an upstream may read it as we do not.

    `makes`: they may make tokens (`may_make`). GET may repeat an answer that was counted.
    """
    writes = makes and generates(path)
    asks = writes or (makes and computes(path))
    answers = writes or (makes and may_end_with(path, _HEARD))
    if asks:
        return Meter(recorded, undecoded, makes, asks, BYTES_A_TOKEN, answers)
    asked_bytes = FILE_BYTES_A_TOKEN if makes and may_end_with(path, _FILES) else 0
    stored = _STORED.search(path) if makes and not asked_bytes else None
    return Meter(recorded, undecoded, makes, asks, asked_bytes, answers, stored[1] if stored else b"")


class MeteredAccounting(Accounting):
    """The account of one transaction, with what is kept of its answer."""

    kept: AnswerBuffer | None = None
    decoding: AnswerDecoder | None = None  # of the answer, if it is compressed
    _left: int | None = None  # the status that the answer had when the client left
    came = ended = 0.0  # its first byte, and its end
    forwarded = 0.0  # of a short whole answer, which is counted later (`Unread`)

    def __init__(self, plan: Plan, client: Client, began: float) -> None:
        # Each request makes one and asks for its hold, so this neither calls the base class nor looks there for it.
        self.plan = plan
        self._client = client
        self.began = began
        self.hold = None

    def head_forwarded(self, came: float) -> None:
        self.came = came
        if self.status == 200 and self.beginning and self.sent_bytes <= SHORT_BYTES and self.plan.unread is not None:
            self.forwarded = perf_counter()
        else:
            Accounting.head_forwarded(self, came)

    def client_left(self, listener: Clients) -> None:
        self._left = self.status
        super().client_left(listener)

    def close(
        self,
        outcome: str,
        listener: Clients,
        error: GatewayError | None = None,
        request_id: str | None = None,
    ) -> None:
        if not self.forwarded:
            self.ended = perf_counter()
            Accounting.close(self, outcome, listener, error, request_id)
            self._read_at_end(outcome, is_refused=error is not None)
            return
        unread = self.plan.unread
        assert unread is not None
        waiting = unread.waiting
        waiting.append(self)
        if listener.access_log is not None:
            self.log(outcome, listener.access_log, self.forwarded - self.began)
        if self.hold is not None and leave(self.hold):
            unread.read()
            return
        if len(waiting) >= MOST:
            unread.sum_up()
        if not unread.is_timed:
            unread.read_soon(listener.loop)

    def _read_at_end(self, outcome: str, *, is_refused: bool) -> None:
        """Read what is kept of the answer, and give the places of the request back."""
        hold, meter, is_whole = self.held(), self.plan.meter, outcome in ("ok", "error")
        assert meter is not None
        if is_refused or (self.status >= 400 and outcome != "cancelled"):
            self._record(RequestUsage(rejected=True))
        elif not meter.reads or not self.sent_at or _makes_nothing(self.status if self._left is None else self._left):
            self._record(RequestUsage(cut=not is_whole))
        elif self._waits():
            if hold is not None:
                leave(hold)
            self.read_late(cut=not is_whole)
            return
        else:
            self.read(cut=not is_whole)
        if hold is not None:
            give_back(hold, outcome, 0 if is_refused or not self.sent_at else self.tokens)

    def read(self, *, cut: bool = False) -> int:
        """Read the answer, which may have been cut, and record what it used. Return its tokens."""
        try:
            usage, model = self._usage(cut)
        except Exception:  # it may be read for somebody else, who is not to suffer from it
            log.exception("the usage in an answer could not be read, so it is estimated by the request")
            usage, model = RequestUsage(self._asked_tokens(), cut=cut, estimated=True), ""
        return self._record(usage, model, self._times(usage) if model and self.came else None)

    def _times(self, usage: RequestUsage) -> Times:
        """Return the times of an answer of a model."""
        is_told = self.streaming and not (usage.cut or usage.estimated)
        streamed = usage.tokens.output if is_told else 0
        return build_times(self.sent_at, self.came, self.forwarded or self.ended, streamed_tokens=streamed)

    def read_late(self, *, cut: bool = False) -> None:
        """Read the answer after it has waited, and settle what was reserved for its request.

        That is later still if it is compressed, and not decoded yet. A request that shares its places leaves them now.
        """
        if self.share is not None and (shared := self.held()) is not None:
            leave(shared)
        if self._waits():
            assert self.decoding is not None
            self.decoding.when_done(partial(self.read_late, cut=cut))
            return
        used = self.read(cut=cut)
        if (hold := self.held()) is not None:
            settle(owe(hold, used))

    def _record(self, usage: RequestUsage, model: str = "", times: Times | None = None) -> int:
        self.used = usage, model
        if not model and self.asked_model:
            usage, model = usage._replace(asked=True), self.asked_model
        self.tokens = usage.tokens.input + usage.tokens.output
        tell(self.plan, usage, model, times)
        return self.tokens

    def _usage(self, cut: bool) -> tuple[RequestUsage, str]:
        """Return what an answer used, which may have been cut, and the model that it names."""
        meter = self.plan.meter
        assert meter is not None
        head, tail, length = self._answer()
        is_stream = not head.lstrip().startswith((b"{", b"["))  # whatever its content type says
        said = of_stream(head, tail) if is_stream else of_whole(head, tail)
        if said.tokens is None:
            said = of_native(head, tail) or said
        tokens = said.tokens
        if tokens is not None and meter.stored and not is_stream and has_id(head, meter.stored):
            return RequestUsage(cut=cut), said.model  # it was counted when it was made
        # No prompt has no tokens: what says so has counted nothing.
        if tokens is not None and not said.partial and (tokens.input or not meter.asked_bytes):
            return RequestUsage(tokens, False, cut), said.model
        if not meter.asked_bytes:
            return RequestUsage(cut=cut), said.model
        answered = 0
        if meter.answers:
            answered = text_tokens(head, tail, length) if is_stream else ceil(length / BYTES_A_TOKEN)
            if self.kept is not None:
                answered += self.kept.unread  # a compressed byte is a token
        if tokens is None or not tokens.input:
            counted = 0 if tokens is None or said.partial else tokens.output
            return RequestUsage(
                self._asked_tokens()._replace(output=counted or answered), cut=cut, estimated=True
            ), said.model
        tokens = tokens._replace(output=max(tokens.output, answered))
        return RequestUsage(tokens, cut=cut, estimated=True), said.model

    def _asked_tokens(self) -> TokenCounts:
        """Return an estimate of the tokens of the request."""
        meter = self.plan.meter
        assert meter is not None
        return TokenCounts(ceil(self.received_bytes / meter.asked_bytes)) if meter.asked_bytes else TokenCounts()

    def _answer(self) -> tuple[bytes, bytes | None, int]:
        """Return the beginning and the end of the answer, or all of it and None, and its length."""
        kept = self._kept_of_beginning()
        if kept is None:
            body = self.beginning[len(self.beginning) - self.sent_bytes :]
            return body, None, len(body)
        return *kept.ends(), kept.length

    def _waits(self) -> bool:
        """Return whether the answer is compressed, and not decoded yet."""
        self._kept_of_beginning()
        return self.decoding is not None and self.decoding.waits

    def _kept_of_beginning(self) -> AnswerBuffer | None:
        """Return what is kept, also of an answer that came whole with its head; None: one of JSON, kept as it came."""
        if self.kept is None:
            start = len(self.beginning) - self.sent_bytes
            if not self.beginning.startswith(b"{", start):
                self.begin(_coding_in(self.beginning[:start]))(self.beginning[start:])
        return self.kept

    def begin(self, coding: bytes) -> Callable[[bytes], None]:
        """Begin to keep an answer with this Content-Encoding. Return what takes its pieces."""
        self.kept = kept = AnswerBuffer()
        meter = self.plan.meter
        assert meter is not None
        self.decoding = build_answer_decoder(kept, coding, meter.undecoded)
        if self.decoding is not None:
            return self.decoding.keep
        return kept.keep if is_plain(coding) else lambda piece: kept.give_up(len(piece))


class Metering(Splice):
    """A splice whose usage is recorded."""

    _accounts = MeteredAccounting
    _account: MeteredAccounting

    _tee: Callable[[bytes], None] | None = None
    _is_plain = False  # the answer is not compressed
    _run: list[bytes] | None = None  # whole chunks that went past us, to be kept together
    _ring: deque[bytes] | None = None  # the last ones, once the beginning is there

    def _rest_of(self, data: bytes, left: int) -> Body:
        if _makes_nothing(self._account.status):
            return super()._rest_of(data, left)
        start = len(data) - self._account.sent_bytes
        keep = self._begin_to_keep(_coding_in(data[:start]))
        keep(data[start:])
        return TeedLengthBody(left, keep)

    def _body_of(self, head: ResponseHead, *, payload_only: bool) -> Body:
        if _makes_nothing(head.status):
            return super()._body_of(head, payload_only=payload_only)
        keep = self._begin_to_keep(head.value(b"content-encoding") or b"")
        return teed_body_of(head, keep, payload_only=payload_only)

    def _begin_to_keep(self, coding: bytes) -> Callable[[bytes], None]:
        self._tee = self._account.begin(coding)
        self._is_plain = not coding
        return self._tee

    def _go_on(self, body: Body) -> None:
        super()._go_on(body)
        upstream = self._upstream
        if upstream is not None and upstream.relay is not None and self._tee is not None:
            upstream.relay = self._relaying()
        if upstream is not None and self._is_late():
            upstream.yield_turn(self._is_late)

    def _answer_on(self) -> bool:
        return self._is_late() or super()._answer_on() or self._is_late()

    def _is_late(self) -> bool:
        """Return whether no more of the answer should be read before some of it is decoded."""
        decoding = self._account.decoding
        if decoding is None or self._upstream is None or not decoding.is_late:
            return False
        self._moved = None  # the upstream may not go on, so it is not silent
        return True

    def _relaying(self) -> Callable[[bytes], None]:
        """Return what takes whole chunks: their last ones are enough if the beginning of the answer is there."""
        write, kept = self._client.transport.write, self._account.kept
        assert kept is not None
        if not (self._is_plain and kept.is_begun):
            if self._run is None:
                self._run = []
            run, add = self._run, self._run.append
            most = LAST_CHUNKS if self._is_plain else 1  # what cannot be decoded is known by the chunk

            def relay_all(data: bytes) -> None:
                write(data)
                add(data)
                if len(run) == most:
                    self._keep_all(run)

            return relay_all

        if self._ring is None:
            self._ring = deque(maxlen=LAST_CHUNKS)
        remember = self._ring.append

        def relay(data: bytes) -> None:
            write(data)
            remember(data)

        return relay

    def _take_back(self) -> None:
        before = self._account.sent_bytes
        super()._take_back()
        if self._run:
            self._keep_all(self._run)
        if not self._ring:
            return
        kept = self._account.kept
        assert kept is not None
        if (missing := self._account.sent_bytes - before - sum(map(len, self._ring))) > 0:
            kept.skip(missing)
        self._keep_all(self._ring)

    def _keep_all(self, chunks: list[bytes] | deque[bytes]) -> None:
        """Keep the payload of chunks that went past us, and forget them."""
        assert self._tee is not None
        self._tee(b"".join([chunk[chunk.index(b"\n") + 1 : -2] for chunk in chunks]))
        chunks.clear()


# `Balanced` stands before `Metering`, which so hears only of the answer that goes to the client.


class MeteredBalanced(Balanced, Metering):
    """A balanced transaction whose usage is recorded."""


class MeteredHedging(Hedging, Metering):
    """A hedging transaction whose usage is recorded."""


class MeteredByModel(ByModel, Metering):
    """A transaction by model whose usage is recorded."""

    def _choose(self, model: str | None, pieces: list[bytes]) -> None:
        self._account.asked_model = clean_model_name(model or "")
        super()._choose(model, pieces)


#: The class of transactions whose usage is recorded, by the one that it takes the place of.
METERED: Final[Mapping[type[Splice], type[Splice]]] = MappingProxyType(
    {Splice: Metering, Balanced: MeteredBalanced, Hedging: MeteredHedging, ByModel: MeteredByModel}
)


def _makes_nothing(status: int) -> bool:
    """Return whether no model made an answer with this status: an error, a way elsewhere, or no content."""
    return status >= 300 or status in _NO_CONTENT


def _coding_in(head: bytes) -> bytes:
    found = _CODING.search(head)
    return found[1].strip() if found is not None else b""
