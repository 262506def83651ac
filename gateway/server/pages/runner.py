"""The aiohttp runner of our own pages: its handlers get single requests from our own connections."""

from aiohttp import web

from gateway.api.ops_pages import Site, build_page_log

#: aiohttp's own bounds of a head, out of the way: the gateway's were applied before a handler sees it.
HEAD_BOUND_BYTES, FIELDS_BOUND = 1 << 20, 10_000


async def build_runner(pages: Site) -> web.AppRunner:
    """Return a runner whose `server` makes handlers for the pages. Clean it up at the end."""
    runner = web.AppRunner(
        pages.build_application(),
        access_log=None,
        logger=build_page_log(),
        auto_decompress=False,
        handler_cancellation=True,
        keepalive_timeout=0,
        tcp_keepalive=False,
        max_line_size=HEAD_BOUND_BYTES,
        max_field_size=HEAD_BOUND_BYTES,
        max_headers=FIELDS_BOUND,
    )
    await runner.setup()
    return runner
