"""The question that every client is asked, and what came of it."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.clients.provider import PROVIDER_KEY


def turns(count: int) -> list[dict[str, str]]:
    """Return the messages of so many earlier turns, each with a text of its own."""
    return [{"role": role, "content": f"{role} {number}"} for number in range(count) for role in ("user", "assistant")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One prompt for the model `demo`; `root` is the base URL without `/v1`.

    `usage` asks for it in a stream; `timeout_s` is the client's own limit of silence, where it has one. `history`
    counts the turns before the prompt.
    """

    root: str
    prompt: str
    stream: bool = False
    usage: bool = False
    api_key: str = PROVIDER_KEY
    headers: Mapping[str, str] = field(default_factory=dict)
    retries: int = 0
    timeout_s: float = 60.0
    history: int = 0

    @property
    def messages(self) -> list[dict[str, str]]:
        """The turns before the prompt, and the prompt."""
        return [*turns(self.history), {"role": "user", "content": self.prompt}]


@dataclass(frozen=True, slots=True)
class Failure:
    """The exception of the client library; `status` and `headers` where it knows an answer."""

    kind: str
    message: str
    status: int | None
    headers: Mapping[str, str]


class Usage(NamedTuple):
    """The tokens that the client's caller is told of."""

    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """The pieces of text that came (none is empty), when, in seconds since any moment, and how it failed if it did."""

    pieces: tuple[str, ...]
    times_s: tuple[float, ...]
    failure: Failure | None
    usage: Usage | None = None

    @property
    def text(self) -> str:
        """The whole answer; a failure is the test's failure."""
        assert self.failure is None, self.failure
        return "".join(self.pieces)

    @property
    def failed(self) -> Failure:
        """The failure; a success is the test's failure."""
        assert self.failure is not None, f"no error, but {len(self.pieces)} pieces that end in {self.pieces[-1:]!r}"
        return self.failure


Client = Callable[[Ask], Outcome]


def observed(pieces_of: Callable[[Ask], Iterator[str | Usage]]) -> Client:
    """A client from the generator of its pieces of text, among which it may tell the usage."""

    def client(ask: Ask) -> Outcome:
        pieces: list[str] = []
        times_s: list[float] = []
        failure = usage = None
        try:
            for piece in pieces_of(ask):
                if isinstance(piece, Usage):
                    usage = piece
                elif piece:
                    pieces.append(piece)
                    times_s.append(time.monotonic())
        except Exception as error:
            failure = _failure(error)
        return Outcome(tuple(pieces), tuple(times_s), failure, usage)

    return client


def _failure(error: Exception) -> Failure:
    status = getattr(error, "status_code", None)
    headers = getattr(error, "headers", None) or getattr(getattr(error, "response", None), "headers", {})
    return Failure(type(error).__name__, str(error), status, dict(headers))
