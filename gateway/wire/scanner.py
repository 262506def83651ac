"""One model answer as it streams: prose flows on at once, tool calls are found and never shown. Sans-I/O.

Invariants: what is shown and what is found do not depend on how the answer was cut into pieces; each character is
looked at a bounded number of times; at most `max_call_bytes` characters are held. What may be code or thought is no
call: fenced blocks of a language other than JSON, inline code, and `<think>`, `<thinking>`, `<reasoning>` blocks, which
flow on. Behind an attempt that cannot be read nothing is shown: it may be the rest of it.
"""

import re
from collections.abc import Sequence
from typing import Any, Literal

from gateway.wire.attempt import HEAD_CHARS, Attempt, could_be_call
from gateway.wire.fence import LINE_CHARS, RUN_CHARS, Fence, Kind, may_open, read_code_line, read_line, run_end
from gateway.wire.toolcalls import (
    CUT,
    Calls,
    FoundCall,
    Json,
    Malformed,
    NativeCalls,
    Outcome,
    Prose,
    as_text,
    judge,
    looks_like_call,
)

__all__ = ["AnswerScanner", "Calls", "FoundCall", "Malformed", "Outcome", "Prose", "read_message"]

#: What needs a look: code, tags, and braces that something of a call may follow.
_SPECIAL = re.compile(r"""[`~]|<(?=[/trTR]|\Z)|\{(?=\s*+(?:["'`“”„‘’«»＂＇\\tp]|\Z))|\[(?=\s*+(?:\{|\Z))""")
_TAG = re.compile(r"<(/?)(think|thinking|reasoning|tool_call)>", re.ASCII | re.IGNORECASE)
_TAGS = tuple(f"<{slash}{name}>" for slash in ("", "/") for name in ("think", "thinking", "reasoning", "tool_call"))
_THOUGHT_ENDS = ("</think>", "</thinking>", "</reasoning>")
_THOUGHT_BEGIN = re.compile(r"<(?:think|thinking|reasoning)>", re.ASCII | re.IGNORECASE)
_THOUGHT_END = re.compile("|".join(_THOUGHT_ENDS), re.ASCII | re.IGNORECASE)
#: Longer inline code is not waited for; longer white space around a call is shown.
INLINE_CHARS, SPACE_CHARS = 1000, 4096
#: How often the rest of an answer is looked through again behind a brace that never closed. No call can be in it (its
#: keys would have made the whole an attempt), only another attempt that cannot be read.
RESCANS = 2
_INCOMPLETE = "The tool call is not valid JSON: it is not complete."
_NO_CALL = "What is in <tool_call> is no tool call: it needs 'tool', 'parameters' and 'terminate'."


class AnswerScanner:
    """One answer; its native tool calls and those in its text are both read: a model may answer in either."""

    def __init__(self, *, max_call_bytes: int = 1 << 20) -> None:
        self._limit = max(max_call_bytes, 1)
        self._mode: Literal["prose", "think", "code", "drop"] = "prose"
        self._out: list[str] = []
        self._pending = ""  # a beginning of something, too short to tell what
        self._begun = False
        self._final = False
        self._line = ""  # the first characters of the line so far
        self._inline = 0  # length of the run of backticks that is open on this line
        self._fence: Fence | None = None  # the block of JSON that is open
        self._fence_called = self._fence_shown = False
        self._fence_end: tuple[int, bool] | None = None  # where in the piece it ends; whether that is certain
        self._code = Fence("`", 3)
        self._thought_end = re.compile("")
        self._attempt: Attempt | None = None
        self._held = ""  # what opened a call, or white space behind one: shown only if text follows
        self._tagged = False  # a <tool_call> is held
        self._after_call = False
        self._calls: Calls | None = None
        self._several = False
        self._malformed: Malformed | None = None
        self._native = NativeCalls(limit=self._limit)

    def feed(self, text: str) -> str:
        """A piece of the answer's text; what of it may be shown by now."""
        if not self._begun and text:
            self._begun = True
            text = text.removeprefix("\ufeff")
        idle = self._mode == "prose" and self._attempt is None
        if idle and not (self._pending or self._held or self._after_call) and _SPECIAL.search(text) is None:
            if len(self._line) < LINE_CHARS or "\n" in text:
                self._note(text)
            return text  # ordinary text goes on at once
        self._read(self._pending + text)
        return self._flushed()

    def feed_native(self, deltas: Sequence[Any]) -> None:
        """The `tool_calls` of one chunk."""
        for delta in deltas:
            self._native.feed(delta)

    def finish(self, *, finish_reason: str | None) -> tuple[str, Outcome]:
        """The rest of what may be shown, and what the answer was."""
        self._final = True
        self._read(self._pending)
        rescans = 0
        while self._attempt is not None:
            rescans += 1
            self._end_attempt(self._attempt, cut=finish_reason == "length", again=rescans <= RESCANS)
        if not self._after_call or self._held.strip():
            self._release()
        return self._flushed(), self._outcome(finish_reason)

    def _outcome(self, finish_reason: str | None) -> Outcome:
        native = self._native.outcome(finish_reason=finish_reason)
        if not isinstance(native, Prose):
            return native
        if self._malformed is not None:
            return self._malformed
        if self._several:
            return Malformed("One tool call per answer; several belong into one JSON array.")
        return self._calls or Prose()

    # Reading: each step takes something from `at` on and returns the offset behind it.

    def _read(self, data: str) -> None:
        self._pending, self._fence_end = "", None
        at = 0
        while at < len(data):
            if self._attempt is not None:
                at = self._in_attempt(self._attempt, data, at)
            elif self._mode == "prose":
                at = self._in_prose(data, at)
            elif self._mode == "code":
                at = self._in_code(data, at)
            else:
                at = self._in_thought(data, at)

    def _wait(self, data: str, at: int) -> int:
        """More is needed to tell what this is. Only ever for a bounded number of characters."""
        self._pending = data[at:]
        return len(data)

    def _in_prose(self, data: str, at: int) -> int:
        found = _SPECIAL.search(data, at)
        if found is None:
            self._show(data[at:])
            return len(data)
        start = found.start()
        self._show(data[at:start])
        match found[0]:
            case "<":
                return self._tag(data, start)
            case "{" | "[":
                return self._brace(data, start)
            case character:
                return self._run(data, start, character)

    def _brace(self, data: str, at: int) -> int:
        head = data[at : at + HEAD_CHARS]
        verdict = could_be_call(head)
        if verdict is None and len(head) < HEAD_CHARS and not self._final:
            return self._wait(data, at)
        if not verdict:
            self._show(data[at])
            return at + 1
        if self._inline:
            return self._in_inline(data, at)
        self._attempt = Attempt()
        return at

    def _in_inline(self, data: str, at: int) -> int:
        """It is code if the backticks are closed on this line, behind the object if that is whole."""
        window = data[at : at + INLINE_CHARS]
        line, newline, _ = window.partition("\n")
        known = bool(newline) or len(window) == INLINE_CHARS or self._final
        behind = Attempt().feed(line, 0, len(line))
        if behind is None and not known:
            return self._wait(data, at)
        end = re.compile(rf"(?<!`)`{{{self._inline}}}(?!`)").search(line, behind or 0)
        if (end is None or end.end() == len(line)) and not known:
            return self._wait(data, at)
        self._inline = 0
        if end is None:
            self._attempt = Attempt()
            return at
        self._show(line[: end.end()])
        return at + end.end()

    def _tag(self, data: str, at: int) -> int:
        found = _TAG.match(data, at)
        if self._inline or found is None:
            start = data[at : at + len("</tool_call>")].lower()
            if not self._inline and not self._final and any(tag.startswith(start) for tag in _TAGS):
                return self._wait(data, at)
            self._show("<")
            return at + 1
        closing, name = found[1], found[2].lower()
        if name == "tool_call":
            if not closing:
                self._hold(found[0])
                self._tagged = True
            elif not self._after_call:
                self._show(found[0])
        elif closing:
            self._end_thought(found[0])
        else:
            self._mode, self._thought_end = "think", re.compile(f"</{name}>", re.ASCII | re.IGNORECASE)
            self._show(found[0])
        return found.end()

    def _in_thought(self, data: str, at: int) -> int:
        """Thought is shown; what stands behind a broken attempt is not, and may turn out to be thought."""
        dropped = self._mode == "drop"
        found = (_THOUGHT_END if dropped else self._thought_end).search(data, at)
        end = (
            len(data) - (0 if self._final else _beginning(data[max(at, len(data) - 12) :]))
            if found is None
            else found.start()
        )
        if not dropped:
            self._show(data[at:end])
        if found is None:
            return self._wait(data, end)
        if dropped:
            self._end_thought(found[0])
        else:
            self._show(found[0])
        self._mode = "prose"
        return found.end()

    def _end_thought(self, tag: str) -> None:
        """The opening tag was eaten by a template: what came before was thought."""
        self._calls, self._several, self._malformed = None, False, None
        self._fence, self._inline = None, 0
        self._show(tag)

    # Code: runs of backticks or tildes open and close it.

    def _run(self, data: str, at: int, character: str) -> int:
        starts = may_open(self._line)
        if character == "~" and not starts:
            self._show("~")
            return at + 1
        end = run_end(data, at)
        if end == len(data) and end - at < RUN_CHARS and not self._final:
            return self._wait(data, at)
        kind, after = ("none", end) if self._inline else self._fence_line(data, at, starts=starts)
        match kind:
            case "wait":
                return self._wait(data, at)
            case "json":
                self._fence, self._fence_end = Fence(character, end - at), None
                self._fence_called = self._fence_shown = False
                self._hold(data[at:after])
            case "close":
                self._fence = None
                if not self._fence_called or self._fence_shown:
                    self._show(data[at:after])
                elif self._held.isspace():
                    self._held = ""
            case "code":
                self._mode, self._code, self._fence = "code", Fence(character, end - at), None
                self._show(data[at:after])
            case _:
                self._show(data[at:after])
                if character == "`":
                    self._inline = 0 if self._inline == end - at else self._inline or end - at
        return after

    def _fence_line(self, data: str, at: int, *, starts: bool) -> tuple[Kind, int]:
        return read_line(data, at, starts=starts, inside=self._fence, called=self._fence_called, final=self._final)

    def _in_code(self, data: str, at: int) -> int:
        start = data.find(self._code.character, at)
        if start < 0:
            self._show(data[at:])
            return len(data)
        self._show(data[at:start])
        kind, after = read_code_line(data, start, self._line, inside=self._code, final=self._final)
        if kind == "wait":
            return self._wait(data, start)
        if kind == "close":
            self._mode = "prose"
        self._show(data[start:after])
        return after

    # Attempts.

    def _in_attempt(self, attempt: Attempt, data: str, at: int) -> int:
        most = at + self._limit - attempt.size
        stop, certain = self._end_of_fence(self._fence, data, at) if self._fence else (len(data), False)
        end = min(most, stop)
        close = attempt.feed(data, at, end)
        if close is not None:
            self._decide(attempt.text, judge(attempt.text))
            return close
        if end == most:
            self._broken(attempt.text, f"The tool call is longer than {self._limit} characters.")
        elif certain:
            self._broken(attempt.text, _INCOMPLETE)
        elif end < len(data):
            return self._wait(data, end)
        return end

    def _end_of_fence(self, fence: Fence, data: str, at: int) -> tuple[int, bool]:
        """Looked for once in a piece, not once for each attempt in it."""
        if self._fence_end is None or self._fence_end[0] < at:
            self._fence_end = fence.end_of_attempt(data, at, final=self._final)
        return self._fence_end

    def _end_attempt(self, attempt: Attempt, *, cut: bool, again: bool) -> None:
        """The answer ends within an attempt."""
        text, self._attempt = attempt.text, None
        ends = list(_THOUGHT_END.finditer(text))
        if ends and not _THOUGHT_BEGIN.search(text):
            thought = text[: ends[-1].start()]
            if not looks_like_call(thought):
                self._show(thought)
            self._end_thought(ends[-1][0])
            self._read(text[ends[-1].end() :])
        elif self._tagged or looks_like_call(text):
            self._take(Malformed(CUT if cut else _INCOMPLETE))
        else:
            self._show(text[0])
            if again:
                self._read(text[1:])
            else:
                self._show(text[1:])

    def _broken(self, text: str, reason: str) -> None:
        self._decide(text, Malformed(reason) if looks_like_call(text) else Prose())

    def _decide(self, text: str, outcome: Outcome) -> None:
        self._attempt = None
        if self._tagged and isinstance(outcome, Prose):
            outcome = Malformed(_NO_CALL)
        if isinstance(outcome, Prose):
            self._show(text)
        else:
            self._take(outcome)

    def _take(self, outcome: Calls | Malformed) -> None:
        self._held, self._tagged, self._after_call = "", False, True
        self._fence_called = self._fence is not None
        self._line = "{"
        if isinstance(outcome, Malformed):
            self._malformed, self._mode = outcome, "drop"
            return
        # As text: for Python, 1 and true are the same.
        self._several = self._several or repr(self._calls or outcome) != repr(outcome)
        self._calls = outcome

    # Showing.

    def _hold(self, text: str) -> None:
        """What belongs to a call if one follows, and else is shown."""
        if len(self._held) + len(text) > SPACE_CHARS:
            self._release()
        self._held += text
        self._note(text)

    def _show(self, text: str) -> None:
        if not text:
            return
        if self._held or self._after_call:
            if text.isspace() and len(self._held) + len(text) <= SPACE_CHARS:
                self._hold(text)
                return
            self._release()
        self._out.append(text)
        self._note(text)

    def _release(self) -> None:
        self._out.append(self._held)
        self._held, self._tagged, self._after_call = "", False, False
        self._fence_shown = self._fence_shown or not self._fence_called

    def _note(self, text: str) -> None:
        """Keeps the beginning of the line; inline code does not reach beyond it."""
        newline = text.rfind("\n")
        if newline >= 0:
            self._inline = 0
            self._line = text[newline + 1 : newline + 1 + LINE_CHARS]
        elif len(self._line) < LINE_CHARS:
            self._line = (self._line + text)[:LINE_CHARS]

    def _flushed(self) -> str:
        out = "".join(self._out)
        self._out.clear()
        return out


def read_message(message: Json, *, finish_reason: str | None = None) -> tuple[str, Outcome]:
    """A whole message: what of it may be shown, and what it is."""
    scanner = AnswerScanner()
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    shown = "".join(scanner.feed(as_text(part.get("text"))) for part in parts if isinstance(part, dict))
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        scanner.feed_native([{**call, "index": i} for i, call in enumerate(calls) if isinstance(call, dict)])
    rest, outcome = scanner.finish(finish_reason=finish_reason)
    return shown + rest, outcome


def _beginning(text: str) -> int:
    """The length of the longest end of `text` that may begin the end of a thought."""
    lengths = range(min(len("</reasoning"), len(text)), 0, -1)
    return next((n for n in lengths if any(tag.startswith(text[-n:].lower()) for tag in _THOUGHT_ENDS)), 0)
