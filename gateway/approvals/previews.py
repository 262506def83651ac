"""Previews of calls that wait for a person: the change that a call would make, as its tool describes it, within bounds.

A preview reads what the call itself may read, and changes nothing. One that takes too long is given up, and counts as
under way until its tool has answered, so that slow tools cannot take all threads.
"""

import asyncio
import logging
from typing import Final

import orjson

from gateway.contracts.storage.endorsements import get_waiting_arguments
from gateway.contracts.storage.journal import Approval
from gateway.contracts.tools import NoPreview, Preview, Previewer, ToolCall
from gateway.tools.catalog import Catalog

log = logging.getLogger("gateway")

#: Bytes of the text before, and of the text after.
PREVIEW_BYTES: Final = 256 << 10
PREVIEW_S: Final = 5.0
#: Previews of one worker at one moment.
AT_ONCE: Final = 4


class Previews:
    """The previews of one worker."""

    def __init__(self, *, limit_s: float = PREVIEW_S) -> None:
        self._limit_s = limit_s
        self._under_way: set[asyncio.Task[Preview | NoPreview]] = set()

    async def preview_call(self, approval: Approval, catalog: Catalog) -> Preview | NoPreview:
        """Return the change that a waiting call would make, or why there is no preview."""
        if approval.state != "pending":
            return NoPreview(f"The approval is {approval.state}: only a pending one has a preview.")
        entry = catalog.find_by_name(approval.tool)
        if entry is None:
            return NoPreview("The tool of this approval is not there.")
        if not isinstance(source := entry.source, Previewer):
            return NoPreview("This tool cannot show what a call would change.")
        if len(self._under_way) >= AT_ONCE:
            return NoPreview("Too many previews are under way: try again in a moment.")
        call = ToolCall(id=approval.id, tool=approval.tool, arguments=orjson.loads(get_waiting_arguments(approval)))
        task = asyncio.ensure_future(source.preview(call))
        self._under_way.add(task)
        task.add_done_callback(self._finish_preview)
        done, _ = await asyncio.wait({task}, timeout=self._limit_s)
        if not done:
            return NoPreview("The tool takes too long to show what this call would change: try again later.")
        if task.cancelled() or task.exception() is not None:
            return NoPreview("The tool failed to show what this call would change; the gateway's log says why.")
        return _limit_preview(task.result())

    def _finish_preview(self, task: "asyncio.Task[Preview | NoPreview]") -> None:
        self._under_way.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a tool failed to preview a call", exc_info=error)


def _limit_preview(preview: Preview | NoPreview) -> Preview | NoPreview:
    """Return the preview, or a note in its place if one of its texts is too large."""
    if isinstance(preview, NoPreview):
        return preview
    texts = {"now": preview.before or "", "after the call": preview.after}
    for when, text in texts.items():
        if len(text.encode(errors="surrogatepass")) > PREVIEW_BYTES:
            return NoPreview(f"The text {when} is larger than {PREVIEW_BYTES} bytes.")
    return preview
