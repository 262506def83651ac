"""The result of scanning one answer of a model so far: calls, an attempt that cannot be read, or nothing."""

from dataclasses import replace

from gateway.agent.output.example_detection import announces_example
from gateway.agent.output.tool_calls import CallGroup, MalformedCall, Outcome, Prose
from gateway.contracts.calls import FoundCall

#: More calls in separate tags are not a group.
GROUP_CALLS = 32
_SEVERAL = MalformedCall("One tool call per answer; several belong into one JSON array.")


class ScanResult:
    """The calls in the text of one answer. The same call twice is one; others are a group if each has its tag."""

    def __init__(self) -> None:
        self.drop_calls()

    def drop_calls(self) -> None:
        """Drop all calls and attempts so far: the text that contained them was reasoning."""
        self._calls: list[FoundCall] = []
        self._known: set[str] = set()
        self._tagged = True
        self._several = False
        self._malformed: MalformedCall | None = None
        self._announced: list[str] = []  # the text before each call
        self._is_doubted = False

    @property
    def has_calls(self) -> bool:
        return bool(self._calls)

    def mark_doubtful(self) -> None:
        """Mark the calls so far, if any, as doubtful: they may be part of the model's reasoning."""
        self._is_doubted = self._is_doubted or self.has_calls

    def record_find(self, outcome: CallGroup | MalformedCall, *, tagged: bool, before: str) -> None:
        """Record a call, a group, or an attempt. `before` is the text in front of it."""
        if isinstance(outcome, MalformedCall):
            self._malformed = outcome
            return
        spelled = repr(outcome)  # for Python, 1 and true are the same
        if spelled in self._known:
            return
        self._tagged = self._tagged and tagged
        self._several = self._several or (bool(self._known) and not self._tagged) or len(self._known) >= GROUP_CALLS
        if not self._several:
            self._known.add(spelled)
            self._calls += outcome.calls
            self._announced.append(before)

    def get_outcome(self, native: Outcome, *, before_native: str) -> Outcome:
        """Return the outcome of the answer. Native calls go before calls in the text."""
        if isinstance(native, MalformedCall):
            return native
        found = native.calls if isinstance(native, CallGroup) else ()
        if not found:
            if self._malformed is not None:
                return self._malformed
            if self._several:
                return _SEVERAL
            found = tuple(self._calls)
        if not found:
            return Prose()
        announced = [*self._announced, before_native] if isinstance(native, CallGroup) else self._announced
        is_doubted = self._is_doubted and not isinstance(native, CallGroup)
        if is_doubted or any(map(announces_example, dict.fromkeys(announced))):
            found = tuple(replace(call, doubt="example") for call in found)
        return CallGroup(found)
