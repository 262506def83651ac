"""A link shows its call when it is opened, decides once, and counts as one key."""

from functools import partial

import pytest

from gateway.api.decisions import resume_runs
from gateway.approvals.approvals import Decision
from gateway.approvals.link_desk import FORM_S, LinkDesk
from gateway.approvals.links import Links
from gateway.approvals.view import build_approval_view
from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.tools.decision_rules import ApprovalRequirement, DecisionRules
from tests.agent.doubles import Clock, samples

from .room import BINDING, BOSS, Room
from .test_links import URL, entry

ANNA = Caller("anna", "acme", frozenset(("approve",)))


class Desk:
    """A desk on the approvals of a room, and the link to its approval `ap_1`."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.links = Links(room.store, lambda: [entry()])
        self.resumed: list[str] = []
        self.desk = LinkDesk(
            room.store,
            self.links,
            approvals=lambda: room.approvals,
            go_on=partial(resume_runs, self.resume),
            counters=room.counters,
            clock=Clock(room.clock),
        )

    async def resume(self, run_id: str) -> None:
        self.resumed.append(run_id)
        raise RuntimeError("it goes on later")

    async def link(self) -> str:
        await self.links.prepare()
        found = await self.room.store.get_approval("ap_1", tenant="acme")
        assert found is not None
        return str(self.links.build_address(URL, entry(), build_approval_view(found), tenant="acme")).partition("=")[2]

    async def state(self, link: str) -> str:
        return (await self.desk.get_linked_call(link)).state

    async def decide(self, link: str, *, approve: bool = True) -> str:
        page = await self.desk.get_linked_call(link)
        return (await self.desk.decide(link, page.form_token, approve=approve, reason=None)).state

    async def refused(self, link: str) -> str:
        with pytest.raises(GatewayError) as error:
            await self.decide(link)
        return error.value.code


async def test_link_decision_stands_when_its_run_cannot_resume_yet(room: Room) -> None:
    await room.ask(1)
    desk = Desk(room)
    link = await desk.link()
    assert (await desk.state(link), await desk.decide(link)) == ("open", "approved")
    assert (desk.resumed, await desk.state(link), await desk.refused(link)) == (["run_1"], "used", "link_used")
    assert samples(room.counters)["gateway_approval_links_total", ("decided",)] == 1


async def test_link_stays_used_after_its_call_was_edited_back(room: Room) -> None:
    room.judges.rules = DecisionRules(requirements=(ApprovalRequirement(approvals=3),))
    await room.ask(1, required=3)
    desk = Desk(room)
    link = await desk.link()
    assert await desk.decide(link) == "pending"
    for caller, command in ((BOSS, "make -n"), (ANNA, "make")):
        edit = Decision(approve=True, via="rest", arguments={"command": command})
        assert (await room.approvals.decide("ap_1", edit, caller=caller)).state == "pending"
    assert (await desk.state(link), await desk.refused(link)) == ("used", "link_used")


async def test_approver_of_an_edited_call_approves_again_by_newer_link(room: Room) -> None:
    """The approval of the first call counts no more, so the link to the call that waits now is not used up."""
    room.judges.rules = DecisionRules(requirements=(ApprovalRequirement(approvals=2),))
    await room.ask(1, required=2)
    desk = Desk(room)
    link = await desk.link()
    assert await desk.decide(link) == "pending"
    edit = Decision(approve=True, via="rest", arguments={"command": "make -n"})
    assert (await room.approvals.decide("ap_1", edit, caller=BOSS)).state == "pending"
    newer = await desk.link()
    assert (await desk.state(link), await desk.state(newer)) == ("used", "open")
    assert (await desk.decide(newer), await desk.state(newer)) == ("approved", "used")


async def test_link_is_bound_to_the_displayed_call(room: Room) -> None:
    """Somebody changes it, or the tool changes: the link decides nothing, also if its page was open."""
    room.judges.rules = DecisionRules(requirements=(ApprovalRequirement(approvals=2),))
    await room.ask(1, required=2)
    desk = Desk(room)
    link = await desk.link()
    page = await desk.desk.get_linked_call(link)
    edit = Decision(approve=True, via="rest", arguments={"command": "make -n"})
    await room.approvals.decide("ap_1", edit, caller=BOSS)
    with pytest.raises(GatewayError, match="changed"):
        await desk.desk.decide(link, page.form_token, approve=True, reason=None)
    newer = await desk.link()
    assert newer != link and await desk.state(newer) == "open"
    room.judges.bound = None
    assert await desk.state(newer) == "changed"
    room.judges.bound = BINDING
    assert await desk.decide(newer) == "approved"


async def test_link_page_form_expires_after_an_hour(room: Room) -> None:
    await room.ask(1)
    desk = Desk(room)
    link = await desk.link()
    page = await desk.desk.get_linked_call(link)
    room.clock.advance(FORM_S - 1)
    with pytest.raises(GatewayError, match="open for too long"):
        await desk.desk.decide(link, page.form_token + "\u00e9", approve=True, reason=None)
    assert (await desk.desk.decide(link, page.form_token, approve=False, reason="no")).state == "rejected"


async def test_link_expires_with_its_approval(room: Room) -> None:
    await room.ask(1)
    desk = Desk(room)
    link = await desk.link()
    room.clock.advance(3601)
    assert (await desk.state(link), await desk.refused(link), await room.state()) == ("ended", "link_used", "expired")
