"""The use of a lane: it is over once."""

from contextlib import suppress

from gateway.context.lane_refcount import LaneUse


async def test_lane_use_ends_with_its_block() -> None:
    over: list[str] = []

    async def note() -> None:
        over.append("over")

    use = LaneUse(note)
    with suppress(KeyError):
        async with use:
            assert over == []
            raise KeyError
    assert over == ["over"]


async def test_lane_use_ended_twice_is_counted_once() -> None:
    over: list[str] = []

    async def note() -> None:
        over.append("over")

    use = LaneUse(note)
    async with use:
        await use.end()
        assert over == ["over"]
    await use.end()
    assert over == ["over"]
