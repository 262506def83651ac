"""One model answer as it streams: prose flows on at once, tool calls are found and never shown. Sans-I/O.

Invariants: the shown text and the calls found do not depend on how the answer was cut into pieces. Each character is
looked at a bounded number of times. At most `max_call_bytes` characters are held. Text that may be code or thought is
not a call: inline code, thoughts between tags (gateway/agent/output/reasoning_tags.py), and fenced blocks that are not
JSON. They flow on. A fenced block of any language that is exactly one call counts as that call. No text is shown behind
an attempt that cannot be read: it may be the rest of it.

Theory of operation. `feed` adds a piece and returns the text that may be shown by now. Ordinary text takes a short cut
past everything else. All other text goes through `_scan`, which calls one reader after the other. Each reader takes
text from `at` on and returns the offset behind it. A reader that cannot decide yet calls `_hold`, which puts a bounded
rest into `_pending` for the next piece. `finish` sets `_final`: then nothing waits any more.

The state has three parts:
- `_mode`: `prose`, `think` (between tags of thought), `code` (a fenced block that is not JSON), `drop` (behind an
  attempt that cannot be read; nothing is shown).
- `_attempt`: an object that may be a call, still growing. `_closed` is its outcome where it stands in code: only the
  text behind it decides whether it is a call or an example.
- `_view`: the text that is shown or held. Text that opens a call (a tag, the first line of a fence) and white space
  around a call are held, and shown only if no call follows.

1. Prose runs up to a character of `_SPECIAL`. A brace whose first `HEAD_CHARS` characters can begin a call starts an
   attempt. Backticks and tildes open code. Tags open and close thought and `<tool_call>`.
2. An attempt grows until its braces close, its fence ends, or it reaches the limit. `parse_calls` then decides: calls,
   malformed, or prose. Prose is shown as it came.
3. In code (`_mode` is `code`, or `_blocks.coded` backticks stand in front), `_behind` waits for the closing backticks.
   A block with one call and nothing else is a call. In inline code, an object is a call only if the backticks never
   close on its line. Everything else is code and is shown.
4. A closing mark of thought without an opening one means that all text so far was thought, which a template began in
   the prompt: calls found in it are forgotten (`_end_thought`, `View.is_thought`). In code it may be a part of
   the code, so they ask.
5. At the end, an unclosed attempt is malformed if it looks like a call. Otherwise its first character is shown and the
   rest is read again, at most `RESCANS` times.

`has_tool` returns whether a tool exists: an object with nothing but the name of one is an attempt at a call.
`ScanResult` collects the calls of the text, `NativeCalls` collects calls in the API's own format. Native calls go
first.

Dangers.
- A reader that waits without a bound holds back the whole answer. Each wait has its limit: `HEAD_CHARS`,
  `INLINE_CHARS`, `RUN_CHARS`, the length of a tag, `max_call_bytes`.
- Quadratic time: the end of a fence is searched once in a piece (`_Blocks.json_end`), not once for each attempt in it.
- An example that runs. If you let more text count as a call, add the case to the tests of examples first.
"""

import re
from collections.abc import Sequence
from typing import Any, Literal

from gateway.agent.output import reasoning_tags, tool_calls
from gateway.agent.output.candidate import HEAD_CHARS, Candidate, could_be_call
from gateway.agent.output.fence import RUN_CHARS, Fence, Kind, find_run_end, may_open, read_code_line, read_line
from gateway.agent.output.native_calls import NativeCalls
from gateway.agent.output.scan_result import ScanResult
from gateway.agent.output.tool_calls import CUTS, CallGroup, HasTool, MalformedCall, Outcome, Prose
from gateway.agent.output.visible_text import LINE_CHARS, VisibleText
from gateway.contracts.calls import FoundCall

__all__ = ["AnswerScanner", "CallGroup", "FoundCall", "MalformedCall", "Outcome", "Prose"]

#: Text that needs a look: code, tags, and braces that a part of a call may follow. One set of characters stands in
#: front, because ordinary text is searched for a set several times as fast as for alternatives.
_SPECIAL = re.compile(
    r"[`~<{\[](?:(?<=[`~])|(?<=<)(?=[/trTR]|\Z)|"
    r"""(?<=\{)(?=\s*+(?:["'`“”„‘’«»＂＇\\tp]|\Z))|(?<=\[)(?=\s*+(?:\{|\Z)))"""
)
_NAMES = (*reasoning_tags.NAMES, "tool_call")
_TAG = re.compile(f"<(/?)({'|'.join(_NAMES)})>", re.ASCII | re.IGNORECASE)
_TAGS = tuple(f"<{slash}{name}>" for slash in ("", "/") for name in _NAMES)
#: Longer inline code is not waited for.
INLINE_CHARS = 1000
#: How often the rest of an answer is looked through again behind a brace that never closed. No call can be in it (its
#: keys would have made the whole an attempt), only another attempt that cannot be read.
RESCANS = 2
_INCOMPLETE = "The tool call is not valid JSON: it is not complete."
_NO_CALL = (
    "What is in <tool_call> is no tool call: it needs 'tool', 'parameters' and 'terminate', or 'name' and 'arguments'."
)


class _Blocks:
    """The blocks of code of an answer, as far as one is open."""

    __slots__ = ("code", "coded", "fresh", "json", "json_end")

    def __init__(self) -> None:
        self.json: Fence | None = None  # the block of JSON that is open
        self.json_end: tuple[int, bool] | None = None  # where in the piece it ends; whether that is certain
        self.code = Fence("`", 3)
        self.fresh = False  # nothing but its first line is known of the block of code
        self.coded = 0  # length of the run of backticks in front of the attempt


class AnswerScanner:
    """The scanner of one answer. It reads native tool calls and calls in the text: a model may use either."""

    def __init__(self, *, max_call_bytes: int = 1 << 20, has_tool: HasTool | None = None) -> None:
        self._has_tool = has_tool
        self._limit = max(max_call_bytes, 1)
        self._mode: Literal["prose", "think", "code", "drop"] = "prose"
        self._view = VisibleText()
        self._pending = ""  # a beginning, too short to decide of what
        self._begun = False
        self._idle = False  # ordinary text needs no reading: nothing is open, held or awaited
        self._final = False
        self._blocks = _Blocks()
        self._thought_end = reasoning_tags.END
        self._attempt: Candidate | None = None
        self._closed: CallGroup | MalformedCall | None = None  # what the attempt is if it stands in no code
        self._taken = ScanResult()
        self._native = NativeCalls(limit=self._limit)

    @property
    def text(self) -> str:
        """Return the text that was shown so far."""
        return self._view.text

    def feed(self, text: str) -> str:
        """Add a piece of the answer's text. Return the text that may be shown by now."""
        view = self._view
        if self._idle and _SPECIAL.search(text) is None:
            if len(view.line) < LINE_CHARS or "\n" in text:
                view.note_line_start(text)
            view.shown.append(text)
            return text  # ordinary text goes on at once
        if not self._begun and text:
            self._begun = True
            text = text.removeprefix("\ufeff")
        self._scan(self._pending + text)
        is_prose = self._begun and self._mode == "prose" and self._attempt is None
        self._idle = is_prose and not (self._pending or view.held or view.after_call)
        return view.flush()

    def feed_native(self, deltas: Sequence[Any]) -> None:
        """Add the `tool_calls` of one chunk."""
        for delta in deltas:
            self._native.feed(delta)

    def feed_function_call(self, delta: object) -> None:
        """Add the `function_call` of one chunk, the older form of `tool_calls`."""
        self._native.feed_legacy_call(delta)

    def finish(self, *, finish_reason: str | None) -> tuple[str, Outcome]:
        """Return the rest of the text that may be shown, and the outcome of the answer."""
        self._final = True
        self._scan(self._pending)
        rescans = 0
        while self._attempt is not None:
            rescans += 1
            self._end_attempt(self._attempt, cut=CUTS.get(finish_reason), again=rescans <= RESCANS)
        if not self._view.after_call or self._view.held.strip():
            self._view.release()
        if self._taken.has_calls:
            self._view.is_thought(self._taken)
        rest = self._view.flush()
        native = self._native.get_outcome(finish_reason=finish_reason)
        before_native = self._view.get_shown_tail() if isinstance(native, CallGroup) else ""
        return rest, self._taken.get_outcome(native, before_native=before_native)

    # Reading: each step takes something from `at` on and returns the offset behind it.

    def _scan(self, data: str) -> None:
        """Read all of `data`: pass each part to the reader of the current mode, until none is left."""
        self._pending, self._blocks.json_end = "", None
        at = 0
        while at < len(data):
            if self._attempt is not None and self._closed is not None:
                at = self._decide_in_code(self._attempt, self._closed, data, at)
            elif self._attempt is not None:
                at = self._read_attempt(self._attempt, data, at)
            elif self._mode == "prose":
                at = self._read_prose(data, at)
            elif self._mode == "code":
                at = self._read_code(data, at)
            else:
                at = self._read_thought(data, at)
        if self._final and self._attempt is not None and self._closed is not None:
            self._decide_in_code(self._attempt, self._closed, "", 0)

    def _hold(self, data: str, at: int) -> int:
        """Keep the text from `at` on for the next piece, and return the end of `data`."""
        self._pending = data[at:]
        return len(data)

    def _read_prose(self, data: str, at: int) -> int:
        """Show text up to the next tag, brace or fence, and read that. Return the offset behind it."""
        found = _SPECIAL.search(data, at)
        if found is None:
            self._view.show(data[at:])
            return len(data)
        start = found.start()
        self._view.show(data[at:start])
        match found[0]:
            case "<":
                return self._read_tag(data, start)
            case "{" | "[":
                return self._read_brace(data, start)
            case character:
                return self._read_fence_run(data, start, character)

    def _read_brace(self, data: str, at: int) -> int:
        """Begin an attempt at a brace that can be a call, or show it. Return the next offset."""
        head = data[at : at + HEAD_CHARS]
        verdict = could_be_call(head)
        if verdict is None and len(head) < HEAD_CHARS and not self._final:
            return self._hold(data, at)
        if not verdict:
            self._view.show(data[at])
            return at + 1
        if self._view.inline:
            return self._read_inline_brace(data, at)
        self._attempt = Candidate()
        return at

    def _read_inline_brace(self, data: str, at: int) -> int:
        """Read a brace in inline code: it is code if the backticks close on this line, behind the object if whole."""
        window = data[at : at + INLINE_CHARS]
        line, newline, _ = window.partition("\n")
        known = bool(newline) or len(window) == INLINE_CHARS or self._final
        behind = Candidate().feed(line, 0, len(line))
        if behind is None and not known:
            return self._hold(data, at)
        end = _build_backtick_pattern(self._view.inline).search(line, behind or 0)
        if (end is None or end.end() == len(line)) and not known:
            return self._hold(data, at)
        if end is None:
            self._attempt, self._blocks.coded, self._view.inline = Candidate(), self._view.inline, 0
            return at
        self._view.inline = 0
        self._view.show(line[: end.end()])
        return at + end.end()

    def _read_tag(self, data: str, at: int) -> int:
        """Read a tag of a call or of reasoning; show any other `<` as text. Return the next offset."""
        found = _TAG.match(data, at)
        if self._view.inline or found is None:
            start = data[at : at + len("</tool_call>")].lower()
            if not self._view.inline and not self._final and any(tag.startswith(start) for tag in _TAGS):
                return self._hold(data, at)
            self._view.show("<")
            return at + 1
        closing, name = found[1], found[2].lower()
        if name == "tool_call":
            if not closing:
                self._view.hold_call_text(found[0])
                self._view.tagged = True
            elif not self._view.after_call:
                self._view.show(found[0])
        elif closing:
            self._end_thought(found[0])
        else:
            self._mode, self._thought_end = "think", reasoning_tags.build_end_pattern(name)
            self._view.show(found[0])
        return found.end()

    def _read_thought(self, data: str, at: int) -> int:
        """Show thought. Text behind a broken attempt is not shown, and may turn out to be thought."""
        dropped = self._mode == "drop"
        found = (reasoning_tags.END if dropped else self._thought_end).search(data, at)
        end = (
            len(data) - (0 if self._final else reasoning_tags.get_partial_end_length(data[max(at, len(data) - 12) :]))
            if found is None
            else found.start()
        )
        if not dropped:
            self._view.show(data[at:end])
        if found is None:
            return self._hold(data, end)
        if dropped:
            self._end_thought(found[0])
        else:
            self._view.show(found[0])
        self._mode = "prose"
        return found.end()

    def _end_thought(self, tag: str) -> None:
        """Treat all text so far as thought: a template ate the opening tag."""
        self._taken.drop_calls()
        self._blocks.json, self._view.inline = None, 0
        self._view.show(tag)

    # Code: runs of backticks or tildes open and close it.

    def _read_fence_run(self, data: str, at: int, character: str) -> int:
        """Read a run of backticks or tildes: it opens or closes a block, or is text. Return the next offset."""
        starts = may_open(self._view.line)
        if character == "~" and not starts:
            self._view.show("~")
            return at + 1
        end = find_run_end(data, at)
        if end == len(data) and end - at < RUN_CHARS and not self._final:
            return self._hold(data, at)
        kind, after = ("none", end) if self._view.inline else self._read_fence_line(data, at, starts=starts)
        match kind:
            case "wait":
                return self._hold(data, at)
            case "json":
                self._blocks.json, self._blocks.json_end = Fence(character, end - at), None
                self._view.fence_called = self._view.fence_shown = False
                self._view.hold_call_text(data[at:after])
                self._view.tagged = self._view.tagged or "tool_call" in data[end:after].lower()
            case "close":
                self._blocks.json = None
                if not self._view.fence_called or self._view.fence_shown:
                    self._view.show(data[at:after])
                elif self._view.held.isspace():
                    self._view.held = ""
            case "code":
                self._mode, self._blocks.code, self._blocks.json = "code", Fence(character, end - at), None
                self._blocks.fresh = True
                self._view.hold_call_text(data[at:after])
            case _:
                self._view.show(data[at:after])
                if character == "`":
                    self._view.inline = 0 if self._view.inline == end - at else self._view.inline or end - at
        return after

    def _read_fence_line(self, data: str, at: int, *, starts: bool) -> tuple[Kind, int]:
        return read_line(
            data, at, starts=starts, inside=self._blocks.json, called=self._view.fence_called, final=self._final
        )

    def _read_code(self, data: str, at: int) -> int:
        """Show a block of code up to its closing fence, or begin an attempt in it. Return the next offset."""
        if self._blocks.fresh and (after := self._read_fresh_code(data, at)) is not None:
            return after
        start = data.find(self._blocks.code.character, at)
        if start < 0:
            self._view.show(data[at:])
            return len(data)
        self._view.show(data[at:start])
        kind, after = read_code_line(data, start, self._view.line, inside=self._blocks.code, final=self._final)
        if kind == "wait":
            return self._hold(data, start)
        if kind == "close":
            self._mode = "prose"
        self._view.show(data[start:after])
        return after

    def _read_fresh_code(self, data: str, at: int) -> int | None:
        """Read the first characters of a block. Return None if they begin no call."""
        window = data[at : at + 2 * HEAD_CHARS]
        start = at + len(window) - len(window.lstrip())
        head = data[start : start + HEAD_CHARS]
        verdict = could_be_call(head) if head else None
        if start == at + 2 * HEAD_CHARS:
            verdict = False
        if verdict is None and len(head) < HEAD_CHARS and not self._final:
            return self._hold(data, at)
        self._blocks.fresh = False
        if not verdict:
            return None
        self._view.show(data[at:start])
        self._attempt = Candidate()
        return start

    # Attempts.

    def _read_attempt(self, attempt: Candidate, data: str, at: int) -> int:
        """Extend an attempt until it closes, its fence ends or it is too long. Return the next offset."""
        most = at + self._limit - attempt.size
        in_code = self._mode == "code"
        fence = self._blocks.code if in_code else self._blocks.json
        stop, certain = self._find_fence_end(fence, data, at) if fence else (len(data), False)
        end = min(most, stop)
        close = attempt.feed(data, at, end)
        if close is not None:
            outcome = tool_calls.parse_calls(
                attempt.text, named=self._view.tagged, meant=not in_code, has_tool=self._has_tool
            )
            if (in_code or self._blocks.coded) and not isinstance(outcome, Prose):
                self._closed = outcome
            else:
                self._decide(attempt.text, outcome)
            return close
        if in_code and (end == most or certain):
            self._decide(attempt.text, Prose())
        elif end == most:
            self._decide_broken(attempt.text, f"The tool call is longer than {self._limit} characters.")
        elif certain:
            self._decide_broken(attempt.text, _INCOMPLETE)
        elif end < len(data):
            return self._hold(data, end)
        return end

    def _decide_in_code(self, attempt: Candidate, outcome: CallGroup | MalformedCall, data: str, at: int) -> int:
        """Decide after an attempt in code: it stays code if its backticks close or its block contains more."""
        if self._mode == "code":
            window = data[at : at + 2 * HEAD_CHARS]
            start = at + len(window) - len(window.lstrip())
            kind, after = "wait", at
            if start < len(data):
                kind, after = read_code_line(data, start, "", inside=self._blocks.code, final=self._final)
            if kind == "wait" and not self._final and start < at + 2 * HEAD_CHARS:
                return self._hold(data, at)
            is_call = kind == "close" or (self._final and start == len(data))
        else:
            window = data[at : at + INLINE_CHARS]
            line, newline, _ = window.partition("\n")
            end = _build_backtick_pattern(self._blocks.coded).search(line)
            known = bool(newline) or len(window) == INLINE_CHARS or self._final
            if (end is None or end.end() == len(line)) and not known:
                return self._hold(data, at)
            is_call, after = end is None, at if end is None else at + end.end()
        self._closed = None
        if is_call:
            self._mode = "prose"
            self._decide(attempt.text, outcome)
            return after
        after = at if self._mode == "code" else after
        self._decide(attempt.text + data[at:after], Prose())
        return after

    def _find_fence_end(self, fence: Fence, data: str, at: int) -> tuple[int, bool]:
        """Return the end of a fence, searched once in a piece and not once for each attempt in it."""
        if self._blocks.json_end is None or self._blocks.json_end[0] < at:
            self._blocks.json_end = fence.find_candidate_end(data, at, final=self._final)
        return self._blocks.json_end

    def _end_attempt(self, attempt: Candidate, *, cut: str | None, again: bool) -> None:
        """End an attempt that the end of the answer cuts off."""
        text, self._attempt = attempt.text, None
        self._blocks.coded = 0
        ends = list(reasoning_tags.END.finditer(text))
        if ends and not reasoning_tags.BEGIN.search(text):
            thinking = text[: ends[-1].start()]
            if not tool_calls.looks_like_call(thinking):
                self._view.show(thinking)
            self._end_thought(ends[-1][0])
            self._scan(text[ends[-1].end() :])
        elif self._view.tagged or tool_calls.looks_like_call(text):
            tool = None if cut is None else tool_calls.find_truncated_tool(text, named=self._view.tagged)
            self._record_outcome(MalformedCall(cut or _INCOMPLETE, cut=tool))
        else:
            self._view.show(text[0])
            go_on = self._scan if again else self._view.show
            go_on(text[1:])

    def _decide_broken(self, text: str, reason: str) -> None:
        self._decide(text, MalformedCall(reason) if tool_calls.looks_like_call(text) else Prose())

    def _decide(self, text: str, outcome: Outcome) -> None:
        """End the open attempt: record its calls, or show its text if it is prose."""
        self._attempt, self._blocks.coded = None, 0
        if self._view.tagged and isinstance(outcome, Prose):
            outcome = MalformedCall(_NO_CALL)
        if isinstance(outcome, Prose) or self._view.is_thought(self._taken):
            self._view.show(text)
        else:
            self._record_outcome(outcome)

    def _record_outcome(self, outcome: CallGroup | MalformedCall) -> None:
        """Record a call or a malformed attempt; after a malformed one, drop the rest of the answer."""
        self._taken.record_find(outcome, tagged=self._view.tagged, before=self._view.get_shown_tail())
        self._view.held, self._view.tagged, self._view.after_call = "", False, True
        self._view.fence_called = self._blocks.json is not None
        self._view.line = "{"
        if isinstance(outcome, MalformedCall):
            self._mode = "drop"


def _build_backtick_pattern(length: int) -> re.Pattern[str]:
    """Return a pattern for exactly so many backticks."""
    return re.compile(rf"(?<!`)`{{{length}}}(?!`)")
