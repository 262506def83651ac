"""Results of tools as the model reads them: cleaned, capped, and the rest of a long one readable by `read_result`.

Results are data: control characters are taken out, and nothing in them is ever read as a tool call.
"""

import re
import secrets
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from gateway.aio.cooperative import Work, run_at_once
from gateway.contracts.exchange import Exchange
from gateway.contracts.risk import Verdict
from gateway.contracts.storage.store import Json
from gateway.contracts.tools import ToolCall, ToolResult, ToolSpec

READ_RESULT: Final = "read_result"
#: Whose a result is: the tenant and the name of the key, and the end user.
Owner: TypeAlias = tuple[str, str, str | None]
#: Whose room a result takes: the tenant and the name of the key.
Holder: TypeAlias = tuple[str, str]
#: Characters of long results that are stored, of all runs together; the oldest of the key that has most go first.
KEPT_CHARS = 32 << 20
CONTROL = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff"
    "\ud800-\udfff"  # no UTF-8 holds these, so no message could
    "\U000e0000-\U000e0fff]+"  # tags: text that only a model sees
)
_ASCII_CONTROL: Final = {code: None for code in range(128) if CONTROL.match(chr(code))}
#: So many characters take 2 ms at most.
_PART_CHARS: Final = 16 << 10
_SPEC = ToolSpec(
    name=READ_RESULT,
    description="Reads more of a tool result that was too long to show whole.",
    parameters={
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": "The id that the shortened result names (res_...)"},
            "offset": {"type": "integer", "minimum": 0, "description": "First character to read (default 0)"},
            "length": {"type": "integer", "minimum": 1, "description": "How many characters (default 16384)"},
        },
        "required": ["id"],
        "additionalProperties": False,
    },
    category="results",
    idempotent=True,
)


@dataclass(frozen=True, slots=True)
class _KeptResult:
    text: str
    untrusted: bool


def clean(text: str) -> str:
    """Return `text` without control and invisible formatting characters; line ends and tabs stay."""
    return run_at_once(clean_stepwise(text))


def clean_stepwise(text: str) -> Work[str]:
    """Clean a text, which may be long, in parts."""
    text = text.replace("\r\n", "\n")
    if text.isascii():
        return text.translate(_ASCII_CONTROL)  # forty times as fast
    parts = []
    for start in range(0, len(text), _PART_CHARS):
        parts.append(CONTROL.sub("", text[start : start + _PART_CHARS]))
        yield
    return "".join(parts)


def get_owner(exchange: Exchange) -> Owner:
    """Return the owner of a run's results: no other user can read on in them."""
    return exchange.caller.tenant, exchange.caller.name, exchange.user


class Results:
    """The temporary storage of long results, by their owner and id; the tool source of `read_result`."""

    def __init__(self, *, kept_chars: int = KEPT_CHARS) -> None:
        self._kept: dict[Holder, OrderedDict[tuple[Owner, str], _KeptResult]] = {}
        self._sizes: Counter[Holder] = Counter()
        self._kept_chars = kept_chars

    def shorten(self, text: str, *, owner: Owner, limit_chars: int, untrusted: bool = False) -> str:
        """Return `text`, or its head and tail with the id of the stored whole; `untrusted`: of its source."""
        if len(text) <= limit_chars:
            return text
        result_id = "res_" + secrets.token_hex(8)
        self._kept.setdefault(owner[:2], OrderedDict())[owner, result_id] = _KeptResult(text, untrusted)
        self._sizes[owner[:2]] += len(text)
        self._make_room((owner, result_id))
        head = limit_chars * 3 // 4
        tail = limit_chars - head
        omitted = len(text) - head - tail
        return f"{text[:head]}\n[... {omitted} characters omitted; id {result_id}]\n{text[-tail:]}"

    def is_untrusted(self, result_id: object, *, owner: Owner) -> bool:
        """Return whether the result of this id is untrusted: reading it taints a run as the tool itself does."""
        kept = self._find_kept(owner, result_id) if isinstance(result_id, str) else None
        return kept is not None and kept.untrusted

    def _find_kept(self, owner: Owner, result_id: str) -> _KeptResult | None:
        kept = self._kept.get(owner[:2])
        return None if kept is None else kept.get((owner, result_id))

    def _make_room(self, newest: tuple[Owner, str]) -> None:
        """Remove old results while all together are too long: a key with fewer results loses none."""
        while self._sizes.total() > self._kept_chars:
            holders = [holder for holder, kept in self._kept.items() if kept.keys() != {newest}]
            if not holders:
                return
            holder = max(holders, key=self._sizes.__getitem__)
            _, gone = self._kept[holder].popitem(last=False)
            self._sizes[holder] -= len(gone.text)
            if not self._kept[holder]:
                del self._kept[holder], self._sizes[holder]

    async def list_tools(self) -> Sequence[ToolSpec]:
        return (_SPEC,)

    async def refusal(self, call: ToolCall, exchange: Exchange) -> str | None:
        del call, exchange  # reading again needs no consent; the call reports an id that is gone
        return None

    async def call(self, call: ToolCall, exchange: Exchange) -> ToolResult:
        """Return a part of a stored result, by id, offset and length; a failure if it is gone."""
        kept = self._find_kept(get_owner(exchange), call.arguments["id"])
        if kept is None:
            return ToolResult("There is no such result, or it is gone by now. Call the tool again.", ok=False)
        text = kept.text
        offset, length = call.arguments.get("offset", 0), call.arguments.get("length", 16384)
        return ToolResult(text[offset : offset + length] or f"The result has {len(text)} characters only.")

    async def close(self) -> None:
        """Do nothing: the results of a run stay available to it, also past a reload."""


class ReadsOnly:
    """The assessor of `read_result`: it shows what the run was shown before."""

    def assess(self, arguments: Json) -> Verdict:
        del arguments  # whichever they are
        return Verdict("auto", "whitelist", "read_result")
