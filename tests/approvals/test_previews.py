"""Previews of calls: what the tool says, within bounds; everything else has a reason."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from gateway.approvals.previews import AT_ONCE, PREVIEW_BYTES, Previews
from gateway.contracts.tools import NoPreview, Preview, ToolCall
from gateway.tools.catalog import Catalog, ConfiguredSource, load_catalog
from tests.plugins.stores.records import approval
from tests.tools.doubles import Source, spec

SEEN = Preview(before="a\n", after="b\n", label="notes.txt")


class Showing(Source):
    """A tool that shows what its calls change, by `shows`."""

    shows: Callable[[ToolCall], Awaitable[Preview | NoPreview]]

    async def preview(self, call: ToolCall) -> Preview | NoPreview:
        return await self.shows(call)


async def catalog(shows: Callable[[ToolCall], Awaitable[Preview | NoPreview]]) -> Catalog:
    source = Showing(spec("execute_command"))
    source.shows = shows
    return await load_catalog({"s": ConfiguredSource(source)})


async def test_preview_returns_the_tools_own_preview_or_its_reason() -> None:
    """The call as it waits, by its tool's own name; what the tool says against it is the reason."""
    asked: list[ToolCall] = []

    async def shows(call: ToolCall) -> Preview | NoPreview:
        asked.append(call)
        return SEEN if len(asked) == 1 else NoPreview("It is binary.")

    tools, previews = await catalog(shows), Previews()
    assert await previews.preview_call(approval(), tools) == SEEN
    assert await previews.preview_call(approval(), tools) == NoPreview("It is binary.")
    assert (asked[0].tool, asked[0].arguments) == ("execute_command", {"command": "make"})


async def test_missing_preview_reports_a_reason() -> None:
    """A decided approval, a tool that is gone, a tool that shows nothing."""

    async def never(_call: ToolCall) -> Preview:
        raise AssertionError

    plain = await load_catalog({"s": ConfiguredSource(Source(spec("execute_command")))})
    for waiting, tools, part in (
        (approval(state="done"), await catalog(never), "is done"),
        (approval(tool="gone"), await catalog(never), "not there"),
        (approval(), plain, "cannot show"),
    ):
        found = await Previews().preview_call(waiting, tools)
        assert isinstance(found, NoPreview) and part in found.reason


@pytest.mark.parametrize(
    "text",
    [
        Preview(before="é" * PREVIEW_BYTES, after="", label="x"),
        Preview(before=None, after="x" * (PREVIEW_BYTES + 1), label="x"),
    ],
)
async def test_too_large_preview_is_not_shown(text: Preview) -> None:
    """By bytes, on either side."""

    async def shows(_call: ToolCall) -> Preview:
        return text

    found = await Previews().preview_call(approval(), await catalog(shows))
    assert isinstance(found, NoPreview) and "larger than 262144 bytes" in found.reason


async def test_failed_or_slow_preview_reports_a_reason() -> None:
    """Slow ones count until they have answered, so that no more than a few wait at once."""
    answered = asyncio.Event()

    async def fails(_call: ToolCall) -> Preview:
        raise OSError("SECRET")

    async def waits(_call: ToolCall) -> Preview:
        await answered.wait()
        return SEEN

    previews = Previews(limit_s=0.0)
    failed = await Previews().preview_call(approval(), await catalog(fails))
    assert isinstance(failed, NoPreview) and "failed" in failed.reason and "SECRET" not in failed.reason
    tools = await catalog(waits)
    for _ in range(AT_ONCE):
        slow = await previews.preview_call(approval(), tools)
        assert isinstance(slow, NoPreview) and "too long" in slow.reason
    more = await previews.preview_call(approval(), tools)
    assert isinstance(more, NoPreview) and "Too many" in more.reason
    answered.set()
    for _ in range(3):
        await asyncio.sleep(0)
    assert await Previews().preview_call(approval(), tools) == SEEN
    assert "Too many" not in str(await previews.preview_call(approval(), tools))
