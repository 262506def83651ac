"""The native tool calls of one answer, collected from the pieces they stream in; also the older `function_call`."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import orjson

from gateway.agent.output.tool_calls import CUTS, CallGroup, MalformedCall, Outcome, Prose, require_text
from gateway.contracts.calls import FoundCall
from gateway.contracts.risk import RISK_LEVEL
from gateway.dialects.extra_message_fields import OF_CALLS, FieldAccumulator
from gateway.jsontext import strict_json
from gateway.tools.risk_level import find_outer_level

#: The size of a native call besides its name and arguments.
_CALL_CHARS = 64
#: Fields that are read here. Anything else goes back to its model as it came.
_USUAL = OF_CALLS | {RISK_LEVEL}


@dataclass(slots=True)
class _CallBuilder:
    """A native call; `beside` is the strictest risk level that its pieces contained outside of the arguments."""

    index: int
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    beside: object = None
    further: FieldAccumulator | None = None

    @property
    def has_arguments(self) -> bool:
        """Return whether the model wrote any: an answer that was cut may end behind the name of its call."""
        return any(map(str.strip, self.arguments))

    def build_call(self) -> FoundCall | MalformedCall:
        """Return the call, with {} for empty arguments, or the reason why it cannot be read."""
        if not self.name.strip():
            return MalformedCall("A tool call has no name.")
        text = "".join(self.arguments)
        try:
            arguments = strict_json.loads(text) if text.strip() else {}
        except strict_json.StrictJsonError as error:
            return MalformedCall(f"The arguments of {self.name[:64]!r} are not valid JSON: {error}.")
        if not isinstance(arguments, dict):
            return MalformedCall(f"The arguments of {self.name[:64]!r} must be a JSON object.")
        further = {} if self.further is None else self.further.get_whole()
        return FoundCall(
            self.name,
            arguments,
            False,
            id=self.id or None,
            beside=self.beside,
            further=further,
            written=text if text.strip() else "",
        )


class NativeCalls:
    """The native calls of one answer, collected from their pieces; at most `limit` characters of them.

    A `function_call` counts where there are no `tool_calls`: some upstreams send the same call in both.
    """

    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._calls: list[_CallBuilder] = []
        self._by_index: dict[int, _CallBuilder] = {}
        self._by_id: dict[str, _CallBuilder] = {}
        self._older: _CallBuilder | None = None

    def feed(self, delta: object) -> None:
        """Add one piece of one call. It is whole, or continues a call by its `index`, its `id`, or neither."""
        if not isinstance(delta, dict) or self._size > self._limit:
            return
        function = delta.get("function")
        function = function if isinstance(function, dict) else {}
        name = require_text(function.get("name"))
        call = self._find_or_add_call(delta.get("index"), id=require_text(delta.get("id")), name=name)
        call.beside = find_outer_level({RISK_LEVEL: call.beside}, delta)
        self._append_piece(call, function, name=name)
        if further := delta.keys() - _USUAL:
            call.further = call.further or FieldAccumulator()
            for key in further:
                self._size += len(repr(delta[key]))
                call.further.add(key, delta[key])

    def feed_legacy_call(self, function: object) -> None:
        """Add one piece of a `function_call`."""
        if not isinstance(function, dict) or self._size > self._limit:
            return
        if self._older is None:
            self._older = _CallBuilder(0)
            self._size += _CALL_CHARS
        self._append_piece(self._older, function, name=require_text(function.get("name")))

    def _append_piece(self, call: _CallBuilder, function: Mapping[str, object], *, name: str) -> None:
        """Append the name and the arguments of one piece to its call."""
        arguments = _encode_arguments(function.get("arguments"))
        if name != call.name:  # some upstreams repeat it with every piece
            call.name += name
            self._size += len(name)
        if arguments:
            call.arguments.append(arguments)
            self._size += len(arguments)
        call.beside = find_outer_level({RISK_LEVEL: call.beside}, function)

    def get_outcome(self, *, finish_reason: str | None) -> Outcome:
        """Return the calls, or Prose if there are none; of two calls with one id, the second gets none."""
        if self._size > self._limit:
            return MalformedCall(f"The tool calls are longer than {self._limit} characters.")
        calls: list[FoundCall] = []
        ids: set[str | None] = set()
        older = [self._older] if self._older is not None and not self._calls else []
        for collected in sorted(self._calls, key=lambda call: call.index) or older:
            found = collected.build_call()
            cut = CUTS.get(finish_reason)
            if cut is not None and (isinstance(found, MalformedCall) or not collected.has_arguments):
                return MalformedCall(cut, cut=collected.name or None)
            if isinstance(found, MalformedCall):
                return found
            calls.append(replace(found, id=None) if found.id in ids else found)
            ids.add(found.id)
        return CallGroup(tuple(calls)) if calls else Prose()

    def _find_or_add_call(self, index: object, *, id: str, name: str) -> _CallBuilder:  # noqa: A002
        """Return the call that a piece continues by its index, id or name, or begin a new one."""
        if isinstance(index, int):
            known = self._by_index.get(index)
            # Parallel calls that all have the index 0: a new one brings its own id and name.
            if known and not (name and id and known.id and id != known.id):
                known.id = known.id or id
                return known
        elif known := self._by_id.get(id) if id else self._find_open_call(name):
            return known
        number = index if isinstance(index, int) else max(self._by_index, default=-1) + 1
        call = self._by_index[number] = _CallBuilder(number, id)
        self._calls.append(call)
        self._size += _CALL_CHARS
        if id:
            self._by_id[id] = call
        return call

    def _find_open_call(self, name: str) -> _CallBuilder | None:
        """Return the call that a piece without index and id belongs to."""
        last = self._calls[-1] if self._calls else None
        return None if last and name and last.arguments else last


def _encode_arguments(value: object) -> str:
    """Return arguments as text: some upstreams send the object itself.

    It is never {} for a value of another type.
    """
    if value is None or isinstance(value, str):
        return value or ""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return "(nested too deep)"
