"""The runner of our own pages: its bounds of a head are wider than ours, which were applied before."""

from functional.through import ask, get, through


async def test_head_limits_of_gateway_pages_follow_the_configuration() -> None:
    """aiohttp's bounds, 8190 bytes of a field and of the target, refuse nothing that `limits` allows."""
    async with through(limits={"head": "64KiB"}) as (gateway, _):
        long = await ask(gateway, get(b"/health/live?x=" + b"y" * 20_000, b"x-note: " + b"z" * 20_000))
        assert (long.status, long.payload) == (200, b'{"status": "ok"}')
        over = await ask(gateway, get(b"/health/live", b"x-note: " + b"z" * 70_000))
        assert over.status == 431
