"""The agent loop as a state machine: the next action after each answer of the model. No I/O, no clock.

Invariants: a call runs only after it was validated and judged. The model sees a call as a pair: an assistant message
with `tool_calls`, and one result for each of them. A malformed answer never stays in the history.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import orjson

from gateway.agent.output.requested_format import has_format
from gateway.agent.output.scanner import CallGroup, MalformedCall, Outcome
from gateway.contracts.calls import CallOutcome, FoundCall, PlannedCall
from gateway.contracts.errors import GatewayError
from gateway.contracts.plugin import LoopLimits
from gateway.contracts.storage.store import Json
from gateway.dialects.chat_request import build_unforced_fields
from gateway.dialects.merged_messages import append_own_messages
from gateway.dialects.message_identity import is_random

CALL_WISH = "Your last answer called no tool and was dropped. Call one of the tools now, and write nothing else."
#: The same call with the same arguments so often in a row: a note goes to the model; the run is stopped.
REPEATED_TOLD, REPEATED_STOP = 3, 5
_FINISH = frozenset(("stop", "length", "content_filter"))
FORMAT_WISH = "Give this answer as JSON in the format that is asked for, and nothing else. Call no tool."
FORMAT_REMINDER = (
    'To call a tool, answer with one JSON object only: {"tool": "<name>", "parameters": {...}, "terminate": false}. '
    "Otherwise answer in plain text without such an object."
)


@dataclass(frozen=True, slots=True)
class AskAction:
    """The action to call the model again, with these messages behind the client's."""

    messages: tuple[Json, ...]


@dataclass(frozen=True, slots=True)
class Execute:
    """The action to run these calls in order, and then to call `executed`."""

    planned: tuple[PlannedCall, ...]


@dataclass(frozen=True, slots=True)
class Finish:
    """The end of the turn.

    `text` comes behind the streamed text. `tool_calls` are the client's own, for the client to run.
    """

    text: str
    reason: Literal["stop", "length", "content_filter", "tool_calls", "function_call"]
    tool_calls: tuple[Json, ...] = ()


Action = AskAction | Execute | Finish
#: Judges one call: (name towards the model, parameters) -> what is planned.
Plan = Callable[[FoundCall, str], PlannedCall]


@dataclass(slots=True)
class _Wishes:
    """The messages of the gateway's own behind the conversation, which the model reads once."""

    complaints: list[Json] = field(default_factory=list)
    is_urged: bool = False  # to call a tool
    draft: tuple[Json, ...] = ()
    is_formatting: bool = False  # the next answer is the one in the format


@dataclass(slots=True)
class _CallTurn:
    """The last answer with calls: its text, its other fields, and the calls of the client's own tools."""

    content: str = ""
    beside: Json = field(default_factory=dict)
    theirs: tuple[Json, ...] = ()


@dataclass(slots=True)
class _Repeats:
    """The last call, and how often it came in a row."""

    last: tuple[str, bytes] | None = None
    n: int = 0


@dataclass(slots=True)
class Loop:
    """One run. `plan` validates and judges a call; `client_tools` are the names of the client's own tools.

    A client that brought its tools as `functions` gets one call at a time. `is_lowered`: the limit of calls is the
    client's, so calls up to it run. The model learns of it once, and its next call ends the turn without an error.
    `wanted_format`: the last answer has this format. The model answers in text and calls tools without it, and then
    gives its answer in the format, unless its text has that already. `must_call`: the first answer is a call. A model
    that answers in text is called once more. `answered` and `executed` raise GatewayError where the run must end
    (agent_malformed_tool_call, agent_iteration_limit).
    """

    limits: LoopLimits
    plan: Plan
    client_tools: frozenset[str]
    new_id: Callable[[], str]
    run_id: str
    functions_only: bool = False
    is_lowered: bool = False
    wanted_format: Json | None = None
    must_call: bool = False
    #: The hidden turns so far, which the client never sees.
    hidden: list[Json] = field(default_factory=list)
    #: Calls requested, executed or answered with an error.
    asked: int = 0
    malformed: int = 0
    _wishes: _Wishes = field(default_factory=_Wishes)
    _called: _CallTurn = field(default_factory=_CallTurn)
    _repeats: _Repeats = field(default_factory=_Repeats)

    def begin(self) -> Action:
        """Return the first action of a run, or of a stored run that continues between two rounds."""
        return AskAction(self.messages)

    def build_request(self, body: Json, conversation: Sequence[Json]) -> Json:
        """Return the body of the next model call."""
        changed = build_unforced_fields(body) if self.hidden or self._wishes.is_formatting else {}
        asked = {**body, **changed, "messages": append_own_messages(conversation, self.messages)}
        if self.holds_back:
            del asked["response_format"]
        return asked

    def handle_answer(self, content: str, outcome: Outcome, *, finish_reason: str | None) -> Action:
        """Return the action that follows from one answer. `content` is its text without the call."""
        is_theirs = isinstance(outcome, MalformedCall) and outcome.cut in self.client_tools
        if isinstance(outcome, MalformedCall) and not is_theirs:
            return self._reject_malformed_answer(outcome.reason)
        if isinstance(outcome, CallGroup):
            return self._take_calls(content, outcome)
        self._wishes.complaints.clear()
        finish = Finish("", finish_reason if finish_reason in _FINISH else "stop")  # type: ignore[arg-type]
        if self._lacks_call and not is_theirs and finish.reason == "stop":
            return self._demand_tool_call()
        if is_theirs or self._lacks_call:  # a limit, or a filter: its client knows what to do about that
            return replace(finish, text=content) if self.hides_text else finish
        return self._bring_into_format(content, finish) if self.holds_back else finish

    def handle_results(self, planned: Sequence[PlannedCall], results: Sequence[CallOutcome]) -> Action:
        """Return the action that follows from the results of `planned`, one for each."""
        outcome = self._format_repetition_note(planned)
        self.hidden += self._build_round_messages(planned, [result.shown + outcome for result in results])
        ended = [r.whole for p, r in zip(planned, results, strict=True) if p.call.terminate and p.refusal is None]
        if ended and not self._called.theirs and not self._called.beside.get("added"):
            finish = Finish("\n".join(ended), "stop")
            return self._bring_into_format(finish.text, finish) if self.holds_back else finish
        if self._called.theirs:
            return self._finish_with_client_calls()
        return AskAction(self.messages)

    def add(self, messages: Sequence[Json]) -> None:
        """Add messages of the user, which the model reads behind the results of the calls under way."""
        self._called.beside = {**self._called.beside, "added": [*self._called.beside.get("added", ()), *messages]}

    def take_snapshot(self) -> Json:
        """Return the state that `restore` needs besides the calls and their results."""
        last = None if self._repeats.last is None else [self._repeats.last[0], self._repeats.last[1].decode()]
        return {
            "asked": self.asked,
            "content": self._called.content,
            "beside": self._called.beside,
            "theirs": list(self._called.theirs),
            "last": last,
            "repeated": self._repeats.n,
        }

    def restore(self, snapshot: Json, rounds: Iterable[tuple[str, Json, Sequence[PlannedCall], Sequence[str]]]) -> None:
        """Restore the state of a stored run. `rounds` are the rounds that have all of their results."""
        for content, beside, planned, shown in rounds:
            self._called.content, self._called.beside = content, beside
            self.hidden += self._build_round_messages(planned, shown)
        self._called.beside = snapshot.get("beside", {})  # an earlier version did not write it
        self.asked, self._called.content = snapshot["asked"], snapshot["content"]
        self._called.theirs, self._repeats.n = tuple(snapshot["theirs"]), snapshot["repeated"]
        self._repeats.last = None if snapshot["last"] is None else (snapshot["last"][0], snapshot["last"][1].encode())

    @property
    def content(self) -> str:
        """Return the text of the answer that contained the last calls."""
        return self._called.content

    @property
    def extra_fields(self) -> Json:
        """Return the other fields of that answer, which its model must see again.

        `message` holds fields of the message, `calls` fields of each call by its id. `added` are messages of the user
        that came with decisions on its calls.
        """
        return self._called.beside

    @property
    def messages(self) -> tuple[Json, ...]:
        """Return the messages behind the client's in the next model call."""
        return (*self.hidden, *self._wishes.draft, *self._wishes.complaints)

    @property
    def is_formatting(self) -> bool:
        """Return whether the next answer is the one in the format."""
        return self._wishes.is_formatting

    @property
    def _lacks_call(self) -> bool:
        """Return whether the answer must still be a call."""
        return self.must_call and not self.asked and not self.hidden

    @property
    def hides_text(self) -> bool:
        """Return whether the client gets no text of the next answer while it comes."""
        return self.holds_back or self._lacks_call

    @property
    def holds_back(self) -> bool:
        """Return whether the next answer comes without its requested format, and is not shown."""
        return self.wanted_format is not None and not self._wishes.is_formatting

    def _bring_into_format(self, text: str, finish: Finish) -> Action:
        """Return the end of a turn whose answer is this text, or the call that brings the text into its format."""
        if finish.reason == "content_filter" or has_format(text, self.wanted_format or {}):
            return Finish(text, finish.reason)
        self._wishes.is_formatting = True
        said = ({"role": "assistant", "content": text},) if text.strip() and text != finish.text else ()
        self._wishes.draft = (*said, {"role": "user", "content": FORMAT_WISH}) if said or self.hidden else ()
        return AskAction(self.messages)

    def _demand_tool_call(self) -> Action:
        """Ask the model again for the call that `tool_choice` demands. Raises GatewayError the second time."""
        if self._wishes.is_urged:
            raise GatewayError(
                "agent_malformed_tool_call",
                "The model answered twice in text, and 'tool_choice' wants a call of a tool. Use another model, or let "
                f"'tool_choice' be auto (run {self.run_id}).",
            )
        self._wishes.is_urged = True
        self._wishes.complaints.append({"role": "user", "content": CALL_WISH})
        return AskAction(self.messages)

    def _reject_malformed_answer(self, reason: str) -> Action:
        """Ask again after an unreadable call, with the reason. Raises GatewayError after too many in a row."""
        self.malformed += 1
        if self.malformed >= self.limits.max_malformed:
            raise GatewayError(
                "agent_malformed_tool_call",
                f"The model answered {self.malformed} times in a row with a tool call that cannot be read: {reason} "
                f"Nothing ran for these answers. Try again, or use another model (run {self.run_id}).",
            )
        text = f"Your last answer was not understood and was dropped. {reason} {FORMAT_REMINDER}"
        self._wishes.complaints.append({"role": "user", "content": text})
        return AskAction(self.messages)

    def _take_calls(self, content: str, found: CallGroup) -> Action:
        """Return the action for these calls: run the gateway's, return the client's, or stop at the limit."""
        self.malformed = 0
        self._wishes.complaints.clear()
        self._wishes.is_formatting, self._wishes.draft = False, ()
        calls = found.calls
        self._called.content = content
        ours = [call for call in calls if call.tool not in self.client_tools]
        self._called.theirs = tuple(
            _build_client_call(i, call, self.new_id(), is_renamed=bool(ours or self.hidden))
            for i, call in enumerate(call for call in calls if call.tool in self.client_tools)
        )
        if not ours:
            return self._finish_with_client_calls()
        most = self.limits.max_tool_calls
        if self.asked >= most + self.is_lowered:
            return self._stop_at_limit(most)
        planned = tuple(self.plan(call, call.id or self.new_id()) for call in ours)
        further = {p.call.id: call.further for p, call in zip(planned, ours, strict=True) if call.further}
        self._called.beside = {"message": found.beside, "calls": further} if found.beside or further else {}
        if self.asked + len(planned) > most:
            run = max(0, most - self.asked) if self.is_lowered else 0
            self.asked = most + self.is_lowered
            planned = (*planned[:run], *(_refuse_beyond_limit(p, alone=self.is_lowered) for p in planned[run:]))
        else:
            self.asked += len(planned)
        self._count_repetition(planned)
        return Execute(planned)

    def _stop_at_limit(self, most: int) -> Action:
        """Return the end of a turn whose model calls more tools than its client wants.

        Raises GatewayError (agent_iteration_limit) where the limit is the operator's.
        """
        if not self.is_lowered:
            raise GatewayError(
                "agent_iteration_limit",
                f"The model wanted to call more than {most} tools in one turn and was stopped. "
                f"Ask for less at once, or raise 'max_tool_calls' of the agent_loop (run {self.run_id}).",
            )
        if self._called.theirs:
            return self._finish_with_client_calls()
        text = f"[The model was stopped: it called more tools than 'max_tool_calls' ({most}) allows.]"
        finish = Finish(text, "stop")
        return self._bring_into_format(text, finish) if self.holds_back else finish

    def _finish_with_client_calls(self) -> Finish:
        if self.functions_only:
            return Finish("", "function_call", self._called.theirs[:1])
        return Finish("", "tool_calls", self._called.theirs)

    def _count_repetition(self, planned: Sequence[PlannedCall]) -> None:
        """Count equal calls in a row. Raises GatewayError (agent_iteration_limit) at REPEATED_STOP."""
        for p in planned:
            key = p.call.tool, orjson.dumps(p.call.arguments, option=orjson.OPT_SORT_KEYS)
            self._repeats.n = self._repeats.n + 1 if key == self._repeats.last else 1
            self._repeats.last = key
            if self._repeats.n >= REPEATED_STOP:
                raise GatewayError(
                    "agent_iteration_limit",
                    f"The model called {p.call.tool!r} with the same arguments {self._repeats.n} times in a row, so it "
                    f"was stopped (run {self.run_id}).",
                )

    def _format_repetition_note(self, planned: Sequence[PlannedCall]) -> str:
        if not planned or self._repeats.n < REPEATED_TOLD:
            return ""
        return (
            f"\n[This is call number {self._repeats.n} with the same arguments. Do something else, or answer in text.]"
        )

    def _build_round_messages(self, planned: Sequence[PlannedCall], contents: Sequence[str]) -> list[Json]:
        """Return one round as messages for the next model call: the answer, its calls and their results."""
        added = self._called.beside.get("added", ())
        if self.limits.result_role == "user":
            calls = [{"tool": p.call.tool, "parameters": p.call.arguments, "terminate": False} for p in planned]
            said = orjson.dumps(calls if len(calls) > 1 else calls[0]).decode()
            outcome = "\n\n".join(
                f"Result of the tool {p.call.tool}:\n{text}" for p, text in zip(planned, contents, strict=True)
            )
            return [
                self._build_answer_message(f"{self._called.content}\n{said}".strip()),
                {"role": "user", "content": outcome},
                *added,
            ]
        further = self._called.beside.get("calls", {})
        return [
            {
                **self._build_answer_message(self._called.content or None),
                "tool_calls": [
                    {**_build_model_call(p.call.id, p.call.tool, p.call.arguments), **further.get(p.call.id, {})}
                    for p in planned
                ],
            },
            *(
                {"role": "tool", "tool_call_id": p.call.id, "name": p.call.tool, "content": text}
                for p, text in zip(planned, contents, strict=True)
            ),
            *added,
        ]

    def _build_answer_message(self, content: str | None) -> Json:
        """Return the model's answer as the model sees it again, with its other fields."""
        beside = self._called.beside.get("message", {})
        message = {"role": "assistant", **beside, "content": content}
        if parts := beside.get("content"):
            message["content"] = [*parts, {"type": "text", "text": content}] if content else parts
        return message


def _refuse_beyond_limit(planned: PlannedCall, *, alone: bool) -> PlannedCall:
    """Return a call beyond the limit as refused; `alone`: other calls of its group run."""
    what = "this call is beyond" if alone else "this group of calls crosses"
    refusal = f"Not run: {what} the limit of this turn. Answer with what you know."
    return PlannedCall(planned.call, planned.spec, planned.verdict, refusal)


def _build_model_call(call_id: str, name: str, arguments: Mapping[str, object]) -> Json:
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": orjson.dumps(arguments).decode()},
    }


def _build_client_call(index: int, call: FoundCall, new_id: str, *, is_renamed: bool) -> Json:
    """Return a call of the client's own tool, with the arguments byte for byte where its model wrote them alone.

    `is_renamed`: something is hidden in front of it, which its id finds again, so a random id is the gateway's own. A
    model server may give one twice. An id of another form stays, as some servers accept no other one.
    """
    call_id = new_id if call.id is None or (is_renamed and is_random(call.id)) else call.id
    told = _build_model_call(call_id, call.tool, call.parameters)
    if call.written:
        told["function"]["arguments"] = call.written
    return {"index": index, **told, **call.further}
