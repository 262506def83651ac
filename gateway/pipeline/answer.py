"""One answer of the model as it streams: its text for the client, and what the loop needs of it afterwards.

No id of an approval in it reaches the client: only the gateway's own text shows one (gateway/wire/imitation.py).
"""

from collections.abc import Callable, Iterator

from gateway.contracts import Chunk, Json, Pause, Reply, Tell
from gateway.errors import GatewayError
from gateway.pipeline.usage import Usage
from gateway.runs import chunks
from gateway.runs.transcript import ANSWER_CHARS
from gateway.wire.imitation import Defuser
from gateway.wire.scanner import AnswerScanner, Outcome, Prose


class Answer:
    """Reads one reply. `spoken` is told of each text for the client, and says how it begins."""

    def __init__(self, *, usage: Usage, spoken: Callable[[str], str]) -> None:
        self.reason: str | None = None
        self._usage = usage
        self._spoken = spoken
        self._scanner = AnswerScanner()
        self._defuser = Defuser()
        self._thoughts: dict[str, Defuser] = {}

    @property
    def content(self) -> str:
        """The text without the call."""
        return self._scanner.text

    async def read(self, reply: Reply, tell: Tell) -> None:
        """Tells what of it is the client's: text that is certainly no call, and thoughts."""
        said, feed = self._usage.said, self._scanner.feed

        def take(chunk: Chunk) -> Pause | None:
            pause = None
            if not isinstance(chunk, str):
                thoughts, chunk = self._opened(chunk)
                if thoughts:
                    pause = tell(chunks.delta(thoughts))
            if chunk:
                said(chunk)
                if (shown := feed(chunk)) and (shown := self._defuser.feed(shown)):
                    pause = tell(self._spoken(shown)) or pause
            return pause

        await reply.stream(take)

    def finish(self) -> tuple[str, Outcome]:
        """What was held back and is text after all, and what the answer is."""
        rest, found = self._scanner.finish(finish_reason=self.reason)
        rest = self._defuser.feed(rest) + self._defuser.finish()
        return self._spoken(rest) if rest else "", found

    def _opened(self, chunk: Json) -> tuple[Json, str]:
        """Thoughts and text of a chunk. Native tool calls are for the scanner."""
        self._usage.read(chunk)
        thoughts: Json = {}
        texts: list[str] = []
        for reason, delta in _parts(chunk):
            self.reason = reason or self.reason
            if calls := delta.get("tool_calls"):
                self._scanner.feed_native(calls)
            if call := delta.get("function_call"):
                self._scanner.feed_function_call(call)
            said = ((key, delta.get(key)) for key in ("reasoning_content", "reasoning"))
            thoughts |= {
                key: shown for key, text in said if isinstance(text, str) and (shown := self._thought(key).feed(text))
            }
            if isinstance(text := delta.get("content"), str):
                texts.append(text)
        return thoughts, "".join(texts)

    def _thought(self, key: str) -> Defuser:
        return self._thoughts.setdefault(key, Defuser())


class PlainAnswer:
    """Reads one reply for its text alone, whatever it looks like. Nobody is told of it: a workflow's result is."""

    def __init__(self, *, usage: Usage) -> None:
        self.reason: str | None = None
        self._usage = usage
        self._content: list[str] = []
        self._chars = 0

    @property
    def content(self) -> str:
        return "".join(self._content)

    async def read(self, reply: Reply, tell: Tell) -> None:
        """Raises GatewayError (upstream_error) for an answer that is too long to be kept."""
        del tell

        def take(chunk: Chunk) -> None:
            if isinstance(chunk, str):
                self._keep(chunk)
                return
            self._usage.read(chunk)
            for reason, delta in _parts(chunk):
                self.reason = reason or self.reason
                if isinstance(text := delta.get("content"), str):
                    self._keep(text)

        await reply.stream(take)

    def _keep(self, text: str) -> None:
        self._usage.said(text)
        self._content.append(text)
        self._chars += len(text)
        if self._chars > ANSWER_CHARS:
            raise GatewayError(
                "upstream_error",
                f"The answer of the model grew over {ANSWER_CHARS} characters and was stopped: ask it for less.",
            )

    def finish(self) -> tuple[str, Outcome]:
        """Nothing was held back, and it asks for nothing."""
        return "", Prose()


def _parts(chunk: Json) -> Iterator[tuple[str | None, Json]]:
    """Finish reason and delta of each choice of a chunk that is of the one answer."""
    for choice in chunk.get("choices") or ():
        if choice.get("index", 0) == 0:
            yield choice.get("finish_reason"), choice.get("delta") or {}
