"""The part of a model's answer that the client sees, and the part that is held around a possible call."""

from itertools import chain

from gateway.agent.output import reasoning_tags
from gateway.agent.output.example_detection import SENTENCE_CHARS
from gateway.agent.output.scan_result import ScanResult

#: So much of a line decides whether a fence may stand there.
LINE_CHARS = 40
#: Longer white space around a call is shown.
SPACE_CHARS = 4096


class VisibleText:
    """The text of one answer without its calls: all of it, in its order, except the held text when a call comes."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self._out: list[str] = []
        self.held = ""  # what opened a call, or white space behind one: shown only if text follows
        self.tagged = False  # a <tool_call> is held
        self.after_call = False
        self.line = ""  # the first characters of the line so far
        self.inline = 0  # length of the run of backticks that is open on this line
        self.fence_called = self.fence_shown = False
        self._n_looked = self._n_out = 0  # so many pieces, shown and out, were looked at for marks of thought
        self._thought = reasoning_tags.OpenThought()
        self._ends = (0, 0)

    @property
    def text(self) -> str:
        """Return all text that was shown so far."""
        return "".join(self.shown)

    def is_thought(self, taken: ScanResult) -> bool:
        """Return whether what comes next is within a thought that a mark other than the usual tags began.

        Calls in front of the end of a thought that began in no text are thought: they are forgotten. In front of a
        stray closing tag, which stands in code, they are doubted.
        """
        pieces = [*self.shown[self._n_looked :], *self._out[self._n_out :]]
        self._n_looked, self._n_out = len(self.shown), len(self._out)
        is_open = self._thought.feed(pieces)
        before, self._ends = self._ends, (self._thought.n_swallowed, self._thought.n_stray)
        if before[0] < self._ends[0]:
            taken.drop_calls()
        elif before[1] < self._ends[1]:
            taken.mark_doubtful()
        return is_open

    def get_shown_tail(self) -> str:
        """Return the last part of the shown text, at most SENTENCE_CHARS characters."""
        pieces: list[str] = []
        left = SENTENCE_CHARS
        for piece in chain(reversed(self._out), reversed(self.shown)):
            pieces.append(piece[-left:])
            left -= len(pieces[-1])
            if left == 0:
                break
        return "".join(reversed(pieces))

    def hold_call_text(self, text: str) -> None:
        """Hold text that belongs to a call if one follows, and is shown otherwise."""
        if len(self.held) + len(text) > SPACE_CHARS:
            self.release()
        self.held += text
        self.note_line_start(text)

    def show(self, text: str) -> None:
        """Show text that does not belong to a call."""
        if not text:
            return
        if self.held or self.after_call:
            if text.isspace() and len(self.held) + len(text) <= SPACE_CHARS:
                self.hold_call_text(text)
                return
            self.release()
        self._out.append(text)
        self.note_line_start(text)

    def release(self) -> None:
        """Show the held text, because no call follows it."""
        self._out.append(self.held)
        self.held, self.tagged, self.after_call = "", False, False
        self.fence_shown = self.fence_shown or not self.fence_called

    def note_line_start(self, text: str) -> None:
        """Store the beginning of the line. Inline code does not reach beyond it."""
        newline = text.rfind("\n")
        if newline >= 0:
            self.inline = 0
            self.line = text[newline + 1 : newline + 1 + LINE_CHARS]
        elif len(self.line) < LINE_CHARS:
            self.line = (self.line + text)[:LINE_CHARS]

    def flush(self) -> str:
        """Return the text that was shown since the last time."""
        out = "".join(self._out)
        is_looked_at = self._n_out > 0
        if is_looked_at:
            self._thought.feed(self._out[self._n_out :])
        self._out.clear()
        self._n_out = 0
        if out:
            self.shown.append(out)
        if is_looked_at:
            self._n_looked = len(self.shown)
        return out
