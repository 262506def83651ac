"""The gateway's errors as its clients get them, what each client library does on each, and the table that says so.

`python -m tests.clients.refusing` measures, and writes the table of docs/errors.md. test_errors_page.py compares it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple

from aiohttp import web

from gateway.contracts.errors import GatewayError
from gateway.http.error_response import build_error_answer
from tests.clients.ask import Ask, Client
from tests.clients.conftest import running
from tests.clients.in_thread import InThread
from tests.clients.lane import KEEPALIVE_S, configuration
from tests.clients.libraries import Libraries
from tests.clients.page_table import PageTable, render
from tests.clients.provider import Provider
from tests.clients.worker import ROOT, worker_of

TABLE: Final = PageTable(ROOT / "docs/errors.md", "tests.clients.refusing")
#: Columns: a library as the page names it, its client of the tests, and that of its Responses API.
CLIENTS: Final[Mapping[str, tuple[str, str | None]]] = {
    "openai-python": ("python openai", "python openai responses"),
    "openai-node": ("node openai", "node openai responses"),
    "AI SDK": ("node ai-sdk", None),
    "anthropic-python": ("python anthropic", None),
    "@anthropic-ai/sdk": ("node anthropic", None),
    "LangChain": ("python langchain-openai", None),
    "LangChain JS": ("node langchain", None),
    "pydantic-ai": ("python pydantic-ai", None),
}
#: Anthropic's clients do not speak to the context lane.
PASSTHROUGH_ONLY: Final = ("anthropic-python", "@anthropic-ai/sdk")
IN_CHAT: Final = "an error in a stream of chat completions"
IN_RESPONSES: Final = "an error in a stream of a response"
WORDS: Final = "Words of the gateway."
_CUT: Final = ("cut, drip 2, long 20", "in the middle of its answer")
#: As the libraries have it when nobody sets another number.
_RETRIES: Final = 2
_MARK: Final = "X-Test-Client"


def _errors() -> Iterator[tuple[str, GatewayError]]:
    """Yield each kind with the fields that the gateway sends with it, by the words of its row."""
    too_long = GatewayError("upstream_rejected", WORDS)
    too_long.upstream_code = "context_length_exceeded"
    yield "400 `context_length_exceeded`", too_long
    for code in ("model_not_allowed", "unknown_route", "request_too_large"):
        yield _title(error := GatewayError(code, WORDS)), error
    for code in ("idempotency_in_use", "rate_limit_exceeded", "overloaded"):
        error = GatewayError(code, WORDS, retry_after_s=0.01)
        yield f"{_title(error)}, `Retry-After`", error
    for code in ("invalid_api_key", "run_interrupted", "insufficient_quota"):
        error = GatewayError(code, WORDS)
        error.settled = True
        yield f"{_title(error)}, `x-should-retry: false`", error
    for code in ("internal_error", "upstream_error", "upstream_timeout"):
        yield _title(error := GatewayError(code, WORDS)), error


def _title(error: GatewayError) -> str:
    return f"{error.facts.status} `{error.code}`"


ERRORS: Final[Mapping[str, GatewayError]] = dict(sorted(_errors()))


class Refusing(InThread):
    """A server that answers each request below `/N/` with the error of row N, and counts those of each client."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[tuple[str, str]] = Counter()

    def _app(self) -> web.Application:
        app = web.Application()
        app.add_routes([web.route("*", "/{row}/{rest:.*}", self._answer)])
        return app

    async def _answer(self, request: web.Request) -> web.Response:
        title = list(ERRORS)[int(request.match_info["row"])]
        self.asked[title, request.headers[_MARK]] += 1
        content = build_error_answer(ERRORS[title], request_id="req_1", close=False)
        head, _, body = content.partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines if not line.startswith("Content-Length"))
        return web.Response(status=int(status.split(" ")[1]), headers=headers, body=body)


class Cell(NamedTuple):
    """The conduct of a library: the exception that its caller gets, how often it asked, whether the words are in it."""

    kind: str
    tries: int
    has_words: bool

    def __str__(self) -> str:
        tries = "" if self.tries == 1 else f" x{self.tries}"
        return f"`{self.kind}`{tries}{'' if self.has_words else ' (no words)'}"


@dataclass(frozen=True, slots=True)
class Errors:
    """All that answers with an error: the server of refusals, and a context lane whose model breaks off."""

    refusing: Refusing
    provider: Provider
    root: str

    def column(self, name: str, client: Client, of_responses: Client | None) -> Sequence[Cell | None]:
        """Return what a library does on each error; None: it has no such stream."""
        cells: list[Cell | None] = []
        for row, title in enumerate(ERRORS):
            ask = Ask(root=f"{self.refusing.base_url}/{row}", prompt="Hi", headers={_MARK: name}, retries=_RETRIES)
            failed = client(ask).failed
            cells.append(Cell(failed.kind, self.refusing.asked[title, name], WORDS in failed.message))
        cells.append(None if name in PASSTHROUGH_ONLY else self._broken_off(client, f"{name} chat"))
        cells.append(None if of_responses is None else self._broken_off(of_responses, f"{name} responses"))
        return cells

    def _broken_off(self, client: Client, mark: str) -> Cell:
        prompt, words = _CUT
        ask = Ask(root=self.root, prompt=prompt, stream=True, headers={_MARK: mark}, retries=_RETRIES)
        failed = client(ask).failed
        tries = sum(seen.headers.get(_MARK) == mark for seen in self.provider.seen)
        return Cell(failed.kind, tries, words in failed.message)


@contextmanager
def serving_errors() -> Iterator[Errors]:
    with (
        Refusing() as refusing,
        Provider() as provider,
        running(configuration(provider.base_url, tools={}, keepalive_s=KEEPALIVE_S)) as process,
    ):
        yield Errors(refusing, provider, f"{process.base_url}/context")


def _column(errors: Errors, name: str) -> Sequence[Cell | None]:
    """From a process or a loop of its own."""
    chat, responses = CLIENTS[name]
    language, _, of_tests = chat.partition(" ")
    with Libraries() if language == "python" else worker_of(language) as own:
        other = None if responses is None else own.client(responses.partition(" ")[2])
        return errors.column(name, own.client(of_tests), other)


def measure() -> str:
    """Return the table, measured by all libraries at the same time."""
    with serving_errors() as errors, ThreadPoolExecutor(len(CLIENTS)) as threads:
        columns = threads.map(lambda name: _column(errors, name), CLIENTS)
        by_row = zip((*ERRORS, IN_CHAT, IN_RESPONSES), *columns, strict=True)
        rows = [[title, *("" if cell is None else str(cell) for cell in cells)] for title, *cells in by_row]
    return render(["error", *CLIENTS], *rows)


if __name__ == "__main__":
    TABLE.write(measure())
