"""The way from a response to the usage in it, for all requests of a plan."""

import re
from dataclasses import dataclass
from typing import Final, Protocol

from gateway.lanes.billable_paths import computes, generates
from gateway.lanes.passthrough.access_record import AccessRecord
from gateway.lanes.passthrough.plan_records import PlanTarget
from gateway.lanes.path_normalization import may_end_with
from gateway.usage.decompression import DecodingQueue
from gateway.usage.tokens import BYTES_A_TOKEN, Recorded, RequestUsage, Times

#: Ends of the paths whose requests are files: sounds that become text, and images.
_HEARD: Final = (b"/audio/transcriptions", b"/audio/translations")
_FILES: Final = (*_HEARD, b"/images/edits", b"/images/variations")
#: Bytes of a file for one token: 25 minutes of sound, which are 15,000 tokens, and most images have some of that size.
FILE_BYTES_A_TOKEN: Final = 1024
LANE: Final = "passthrough"
#: The last name in a path, or the one whose request is cancelled: it may be the id of a stored answer.
_STORED: Final = re.compile(rb"/([\w-]+)(?:/cancel)?/?\Z")


@dataclass(frozen=True, slots=True)
class UsageMeter:
    """The reading of the usage of a plan's requests.

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

    def record(self, target: PlanTarget, usage: RequestUsage, model: str, times: Times | None = None) -> None:
        """Record the usage of requests to a target, and the times of what a model answered."""
        caller, endpoint = target.identity.caller, target.member.pool.endpoint
        self.recorded(usage, caller.name, caller.tenant, model, endpoint.name, LANE, times)


class PendingUsage(Protocol):
    """An exchange whose usage waits to be read with that of others."""

    record: AccessRecord
    meter: UsageMeter

    def read_late(self, *, cut: bool = False) -> None:
        """Read the usage by itself, record it, and settle what was reserved for the request."""
        ...


def build_meter(recorded: Recorded, undecoded: DecodingQueue, *, makes: bool, path: bytes) -> UsageMeter:
    """Return the meter of requests to a path, however that is spelled: an upstream may read it as we do not.

    `makes`: they may make tokens (`may_act_as_post`). GET may repeat an answer that was counted.
    """
    writes = makes and generates(path)
    asks = writes or (makes and computes(path))
    answers = writes or (makes and may_end_with(path, _HEARD))
    if asks:
        return UsageMeter(recorded, undecoded, makes, asks, BYTES_A_TOKEN, answers)
    asked_bytes = FILE_BYTES_A_TOKEN if makes and may_end_with(path, _FILES) else 0
    stored = _STORED.search(path) if makes and not asked_bytes else None
    return UsageMeter(recorded, undecoded, makes, asks, asked_bytes, answers, stored[1] if stored else b"")


def is_model_path(path: bytes, *, makes: bool) -> bool:
    """Return whether requests to a path, however that is spelled, are texts for a model. `makes`: see `build_meter`."""
    return makes and (generates(path) or computes(path))
