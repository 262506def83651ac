"""The usage of a passthrough exchange. Nothing of what is forwarded differs, and nothing waits for it.

A copy of the payload passes by (`tee.py`), of which the beginning and the end are kept (`gateway.usage.ring_buffer`).
They are read once, when the exchange closes: that happens exactly once, however it ends. A short answer that comes
whole with its head waits, to be counted and read with others (`usage_batch.py`), a compressed one until it is decoded
(`gateway.usage.decompression`): if megabytes of it are not, no more is read of it meanwhile.

Two ways cost less, because nearly all answers take them. One that comes whole with its head is kept as the bytes that
came, and read from there. Of a stream whose chunks go past the exchange (`UpstreamConnection.relay`), the last ones are
kept as they are, in a ring: once the beginning is there, those between are not needed.

The observer gives the places of the request in its limits back, with the tokens that it used.
"""

import logging
from collections.abc import Callable
from functools import partial
from math import ceil
from typing import Final

from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.features.usage.observer_batch import MOST, UsageBatch
from gateway.features.usage.observer_meter import UsageMeter, build_meter
from gateway.lanes.passthrough.access_record import AccessRecord
from gateway.lanes.passthrough.observers.observer import Observer, ObserverFactory, PassthroughFeature, PlannedRequest
from gateway.lanes.passthrough.observers.tee import LAST_CHUNKS, Keep, PayloadSink, read_content_coding
from gateway.lanes.path_normalization import may_act_as_post
from gateway.limits.reservation import LATER
from gateway.usage.decompression import AnswerDecoder, build_answer_decoder, is_uncompressed
from gateway.usage.response_parser import (
    SHORT_BYTES,
    clean_model_name,
    estimate_stream_tokens,
    has_id,
    parse_native,
    parse_stream,
    parse_whole,
)
from gateway.usage.ring_buffer import AnswerBuffer
from gateway.usage.tokens import BYTES_A_TOKEN, Recorded, RequestUsage, Times, TokenCounts, build_times

log = logging.getLogger("gateway")

#: Below 300, statuses of answers without content.
_NO_CONTENT: Final = (204, 205)


class UsageFeature(PassthroughFeature):
    """The usage of one configuration. `recorded` takes it; None: only other features need tokens.

    `batch` is the worker's: short answers wait in it for each other, unless a feature needs their tokens at once.
    """

    def __init__(self, recorded: Recorded | None, batch: UsageBatch) -> None:
        self._recorded = recorded
        self._batch = batch

    def needs_tokens(self, caller: Caller) -> bool:
        del caller
        return self._recorded is not None

    def choose_observer(self, request: PlannedRequest) -> ObserverFactory | None:
        """Return what makes the observers of requests whose tokens are recorded, or needed by another feature."""
        if not request.reads_tokens:
            return None
        recorded = self._recorded or _record_nothing
        makes = may_act_as_post(request.head.method, has_body=request.head.has_body)
        meter = build_meter(recorded, self._batch.undecoded, makes=makes, path=request.path)
        return ObserverFactory(UsageObserver, meter, self._batch if meter.waits and not request.reads_at_once else None)


class AnswerSink:
    """Keeps the payload of one answer."""

    __slots__ = ("_kept", "keep", "skip")

    chunks = LAST_CHUNKS
    is_late = False

    def __init__(self, kept: AnswerBuffer, keep: Keep) -> None:
        self._kept = kept
        self.keep = keep
        self.skip = kept.skip_bytes

    @property
    def takes_ends(self) -> bool:
        """Return whether the beginning of the answer is there, so that its last chunks are enough."""
        return self._kept.is_begun


class CodedAnswerSink:
    """Keeps the payload of one answer with a Content-Encoding, if it can be decoded."""

    __slots__ = ("_decoding", "keep", "skip")

    chunks = 1  # what cannot be decoded is known by the chunk
    takes_ends = False

    def __init__(self, kept: AnswerBuffer, keep: Keep, decoding: AnswerDecoder | None) -> None:
        self.keep = keep
        self.skip = kept.skip_bytes
        self._decoding = decoding

    @property
    def is_late(self) -> bool:
        """Return whether much of the answer is not decoded yet."""
        return self._decoding is not None and self._decoding.is_late


class UsageObserver(Observer):
    """The usage of one exchange, with what is kept of its answer."""

    kept: AnswerBuffer | None = None
    decoding: AnswerDecoder | None = None  # of the answer, if it is compressed

    def __init__(self, meter: UsageMeter, batch: UsageBatch | None, record: AccessRecord) -> None:
        """`batch`: the answer may wait in it; None: it does not wait."""
        self.meter = meter
        self._batch = batch
        self.record = record

    def on_response_head(self, content_coding: Callable[[], bytes]) -> PayloadSink | None:
        return None if _has_no_model_answer(self.record.status) else self._begin_keeping(content_coding())

    def on_closed(self, outcome: str, error: GatewayError | None) -> bool:
        """Queue a short answer for a batch, or read its usage now. Return whether a batch counts it."""
        record, batch = self.record, self._batch
        if record.forwarded:  # whole with its head: what was kept is of an attempt before
            self.kept = self.decoding = None
        if record.requested_model:
            record.asked_model = clean_model_name(record.requested_model)
        if batch is None or not record.forwarded or record.status != 200 or record.sent_bytes > SHORT_BYTES:
            self._read_at_end(outcome, is_refused=error is not None)
            return False
        waiting = batch.waiting
        waiting.append(self)
        reservation = record.reservation
        if reservation is not None and not reservation.is_shared:
            record.reservation = rest = reservation.close(outcome, LATER)
            if rest.is_urgent:
                batch.read()
                return True
        if len(waiting) >= MOST:
            batch.sum_up()
        if not batch.is_timed:
            batch.read_soon(record.client.listener.loop)
        return True

    def _read_at_end(self, outcome: str, *, is_refused: bool) -> None:
        """Read what is kept of the answer, and give the places of the request back."""
        record = self.record
        reservation, is_whole = record.reservation, outcome in ("ok", "error")
        answered = record.status if record.answered_status is None else record.answered_status
        if is_refused or (record.status >= 400 and outcome != "cancelled"):
            self._note_usage(RequestUsage(rejected=True))
        elif not self.meter.reads or not record.sent_at or _has_no_model_answer(answered):
            self._note_usage(RequestUsage(cut=not is_whole))
        elif self._is_undecoded():
            self.read_late(cut=not is_whole)
            return
        else:
            self.read(cut=not is_whole)
        if reservation is not None:
            reservation.close(outcome, 0 if is_refused or not record.sent_at else record.tokens)

    def read(self, *, cut: bool = False) -> int:
        """Read the answer, which may have been cut, and record what it used. Return its tokens."""
        try:
            usage, model = self._read_usage(cut)
        except Exception:  # the request for which it is read may be another one, and must not suffer
            log.exception("the usage in an answer could not be read, so it is estimated by the request")
            usage, model = RequestUsage(self._estimate_request_tokens(), cut=cut, estimated=True), ""
        return self._note_usage(usage, model, self._build_times(usage) if model and self.record.came else None)

    def _build_times(self, usage: RequestUsage) -> Times:
        """Return the times of an answer of a model."""
        record = self.record
        is_told = record.streaming and not (usage.cut or usage.estimated)
        streamed = usage.tokens.output if is_told else 0
        return build_times(record.sent_at, record.came, record.forwarded or record.ended, streamed_tokens=streamed)

    def read_late(self, *, cut: bool = False) -> None:
        """Read the answer after it has waited, and settle what was reserved for its request.

        That is later still if it is compressed, and not decoded yet. The request leaves its places now.
        """
        record = self.record
        if record.reservation is not None:
            record.reservation = record.reservation.close("ok", LATER)
        if self._is_undecoded():
            assert self.decoding is not None
            self.decoding.call_when_done(partial(self.read_late, cut=cut))
            return
        used = self.read(cut=cut)
        if record.reservation is not None:
            record.reservation.close("ok", used)

    def _note_usage(self, usage: RequestUsage, model: str = "", times: Times | None = None) -> int:
        """Record what was used. Return its tokens."""
        record = self.record
        record.used = usage, model
        if not model and record.asked_model:
            usage, model = usage._replace(asked=True), record.asked_model
        record.tokens = usage.tokens.input + usage.tokens.output
        try:
            self.meter.record(record.target, usage, model, times)
        except Exception:  # the limits must not wait for it, nor the requests behind this one
            log.exception("the usage of a request could not be recorded")
        return record.tokens

    def _read_usage(self, cut: bool) -> tuple[RequestUsage, str]:
        """Return what an answer used, which may have been cut, and the model that it names."""
        meter = self.meter
        head, tail, length = self._read_answer()
        is_stream = not head.lstrip().startswith((b"{", b"["))  # whatever its content type says
        found = parse_stream(head, tail) if is_stream else parse_whole(head, tail)
        if found.tokens is None:
            found = parse_native(head, tail) or found
        tokens = found.tokens
        if tokens is not None and meter.stored and not is_stream and has_id(head, meter.stored):
            return RequestUsage(cut=cut), found.model  # it was counted when it was made
        # No prompt has no tokens: what says so has counted nothing.
        if tokens is not None and not found.partial and (tokens.input or not meter.asked_bytes):
            return RequestUsage(tokens, False, cut), found.model
        if not meter.asked_bytes:
            return RequestUsage(cut=cut), found.model
        answered = 0
        if meter.answers:
            answered = estimate_stream_tokens(head, tail, length) if is_stream else ceil(length / BYTES_A_TOKEN)
            if self.kept is not None:
                answered += self.kept.unread  # a compressed byte is a token
        if tokens is None or not tokens.input:
            counted = 0 if tokens is None or found.partial else tokens.output
            return RequestUsage(
                self._estimate_request_tokens()._replace(output=counted or answered), cut=cut, estimated=True
            ), found.model
        tokens = tokens._replace(output=max(tokens.output, answered))
        return RequestUsage(tokens, cut=cut, estimated=True), found.model

    def _estimate_request_tokens(self) -> TokenCounts:
        """Return an estimate of the tokens of the request."""
        meter = self.meter
        return TokenCounts(ceil(self.record.received_bytes / meter.asked_bytes)) if meter.asked_bytes else TokenCounts()

    def _read_answer(self) -> tuple[bytes, bytes | None, int]:
        """Return the beginning and the end of the answer, or all of it and None, and its length."""
        kept = self._keep_beginning()
        if kept is None:
            body = self.record.beginning[len(self.record.beginning) - self.record.sent_bytes :]
            return body, None, len(body)
        return *kept.get_ends(), kept.length

    def _is_undecoded(self) -> bool:
        """Return whether the answer is compressed, and not decoded yet."""
        self._keep_beginning()
        return self.decoding is not None and self.decoding.waits

    def _keep_beginning(self) -> AnswerBuffer | None:
        """Return what is kept, also of an answer that came whole with its head; None: one of JSON, kept as it came."""
        if self.kept is None:
            beginning = self.record.beginning
            start = len(beginning) - self.record.sent_bytes
            if not beginning.startswith(b"{", start):
                self._begin_keeping(read_content_coding(beginning[:start])).keep(beginning[start:])
        return self.kept

    def _begin_keeping(self, coding: bytes) -> AnswerSink | CodedAnswerSink:
        """Begin to keep an answer with this Content-Encoding. Return the sink for its payload."""
        self.kept = kept = AnswerBuffer()
        self.decoding = decoding = build_answer_decoder(kept, coding, self.meter.undecoded)
        if not coding:
            return AnswerSink(kept, kept.keep_piece)
        if decoding is not None:
            return CodedAnswerSink(kept, decoding.keep_piece, decoding)
        return CodedAnswerSink(
            kept, kept.keep_piece if is_uncompressed(coding) else lambda piece: kept.skip_undecodable(len(piece)), None
        )


def _has_no_model_answer(status: int) -> bool:
    """Return whether a status shows that no model answered: an error, a redirect or no content."""
    return status >= 300 or status in _NO_CONTENT


def _record_nothing(*_: object) -> None:
    """Record nothing: the tokens are for limits alone."""
