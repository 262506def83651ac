"""The use of a lane by one request or run, which keeps the lane's tools open."""

from collections.abc import Awaitable, Callable


class LaneUse:
    """A use, from the time when it is made until the end of `async with`, or until `end`. `over` is awaited then, once.

    It is a class, because a generator costs each request more.
    """

    __slots__ = ("_over",)

    def __init__(self, over: Callable[[], Awaitable[None]]) -> None:
        self._over: Callable[[], Awaitable[None]] | None = over

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, *_: object) -> None:
        await self.end()

    async def end(self) -> None:
        """End the use. Idempotent."""
        over, self._over = self._over, None
        if over is not None:
            await over()
