"""The plugins that docs/plugins.md prints, saved as they stand there, in a gateway."""

import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.clients.snippets import snippets_of

from .models import CUT, Json, calls, says
from .talking import desk, talking


def saved(name: str, folder: Path) -> Json:
    """Saves the files of that name; returns the printed settings, and where the plugins are."""
    settings: Json = {}
    for snippet in snippets_of("docs/plugins.md"):
        if snippet.name == name and snippet.file == "gateway.yaml":
            settings = yaml.safe_load(snippet.code)
        elif snippet.name == name:
            assert snippet.file is not None
            file = folder / snippet.file
            file.parent.mkdir(parents=True)
            file.write_text(snippet.code)
            file.chmod(stat.S_IRUSR | stat.S_IWUSR)
    return settings | {"plugins": {"folder": str(folder / "plugins")}}


@asynccontextmanager
async def service(status: int = 200, text: str = "") -> AsyncIterator[tuple[TestServer, list[str]]]:
    """A service over HTTP, and the cities that it was asked for."""
    asked: list[str] = []

    async def now(request: web.Request) -> web.Response:
        asked.append(request.query["city"])
        return web.Response(text=text or f"Rain in {asked[-1]}.", status=status)

    app = web.Application()
    app.router.add_get("/now", now)
    async with TestServer(app, host="127.0.0.1") as server:
        yield server, asked


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        (["From Bie", "lef", "eld to Bielefeld", "."], "From *** to ***."),
        (["Bielefeld"], "***"),
        (["Hi."], "Hi."),
        (["to Bielefel"], "to Bielefel"),
        (list("In Bielefeld, Bielefelder"), "In ***, ***er"),
    ],
)
async def test_redact_stage_changes_the_answer(pieces: list[str], text: str, tmp_path: Path, *, stream: bool) -> None:
    """In whatever pieces it comes, and before the finish reason."""
    async with talking(says(*pieces), **saved("redact", tmp_path)) as world:
        if not stream:
            assert (await world.chat()).text == text
            return
        streamed = await world.stream()
        assert (streamed.text, streamed.finishes) == (text, ["stop"])
        assert streamed.frames[-1]["choices"][0]["finish_reason"] == "stop"


async def test_upstream_error_passes_through_a_redacting_stage(tmp_path: Path) -> None:
    """What was held back of it does not hide the error."""
    async with talking(says("From Bielef", CUT), **saved("redact", tmp_path)) as world:
        streamed = await world.stream()
        assert b'"upstream_error"' in streamed.events[-1] and "From".startswith(streamed.text.strip())


@pytest.mark.parametrize("stream", [False, True])
async def test_http_tool_result_reaches_the_model(tmp_path: Path, *, stream: bool) -> None:
    """Its answer reaches the model, in two conversations on one session."""
    settings = saved("weather", tmp_path)
    async with service() as (server, asked):
        settings["tools"]["weather"]["with"]["url"] = str(server.make_url("/now"))
        answers = (calls("weather", city="Köln"), says("It rains."))
        async with talking(*answers, *answers, **settings) as world:
            ask = world.stream if stream else world.chat
            for number in range(2):
                assert (await ask(f"The weather of Köln? {number}")).text == "It rains."
                assert world.model.asked[-1]["messages"][-1]["content"] == "Rain in Köln."
    assert asked == ["Köln", "Köln"]


@pytest.mark.parametrize(
    ("status", "text", "told"), [(200, "x" * 100_000, "too long"), (503, "busy", "busy"), (0, "", "did not answer")]
)
async def test_http_tool_failure_is_reported_to_the_model(status: int, text: str, told: str, tmp_path: Path) -> None:
    """The model reads why, and the conversation goes on."""
    settings = saved("weather", tmp_path)
    async with service(status or 200, text) as (server, _):
        settings["tools"]["weather"]["with"]["url"] = str(server.make_url("/now"))
        if not status:
            await server.close()
        async with talking(calls("weather", city="Ulm"), says("Nobody knows."), **settings) as world:
            answer = await world.chat("The weather of Ulm?")
            assert answer.text == "Nobody knows."
            assert told in world.model.asked[-1]["messages"][-1]["content"]
            run = await world.run(answer.headers["X-Context-Run-Id"], state="completed")
            assert [step["state"] for step in run["steps"]] == ["failed"]


WRITE: Json = {"operation": "write", "path": "drafts/a.txt", "content": "Hello"}
READ: Json = {"operation": "read", "path": "notes.txt"}


@pytest.mark.parametrize(
    ("arguments", "adds", "asks"),
    [
        (WRITE, True, False),
        (READ, True, False),  # the built-in assessor
        (READ, False, True),
        (WRITE | {"path": "a.txt"}, True, True),
        (WRITE | {"path": "drafts/../a.txt"}, True, True),
        (WRITE | {"content": "x" * 2001}, True, True),
    ],
)
async def test_additional_assessor_allows_its_own_harmless_calls(
    arguments: Json, tmp_path: Path, *, adds: bool, asks: bool
) -> None:
    """Harmless is what either assessor knows; everything else asks as before."""
    settings = saved("drafts", tmp_path)
    settings["tools"] = {"file_operations": desk(tmp_path, write=True)["file_operations"]}
    settings["risk"]["assessors"]["file_operations"]["adds"] = adds
    (tmp_path / "work/drafts").mkdir()
    async with talking(calls("file_operations", **arguments), says("Done."), **settings) as world:
        answer = await world.chat("Do it.")
        assert bool(answer.json.get("context", {}).get("approvals")) is asks
        assert asks or answer.text == "Done."
        assert (tmp_path / "work/drafts/a.txt").exists() is (arguments == WRITE)
