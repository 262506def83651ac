"""The state that connections share: a listener has all of it."""

from lanes.assembled import assembled

from gateway.lanes.client import Clients
from gateway.lanes.listener_state import ListenerState

MEMBERS = {name for kind in (Clients, ListenerState) for name in (*vars(kind), *kind.__annotations__) if name[0] != "_"}


async def test_listener_has_all_shared_state_members() -> None:
    async with assembled() as lane:
        assert len(MEMBERS) >= 20
        assert [name for name in sorted(MEMBERS) if not hasattr(lane.listener, name)] == []
