"""`gateway approvals`: what waits is shown as it would run, and decisions arrive."""

import json
from collections.abc import Iterator

import pytest
from api.approval_pages import opened
from cli_cases import remote, told

from gateway.cli.operator.approvals import decide_approvals, list_approvals, list_groups, show_approval
from gateway.cli.operator.remote import RemoteError
from gateway.contracts.api_bounds import LIMIT_MOST
from gateway.contracts.storage.journal import Change
from tests.plugins.stores.records import approval, new, parked, run, step, write

HASH = "a" * 64


def group(*ids: str) -> Change:
    """A run that waits for several approvals."""
    return new(
        run(state="awaiting_approval"),
        steps=tuple(step(i, state="requested", approval_id=one) for i, one in enumerate(ids)),
        approvals=tuple(approval(one, step=i, created_s=100.0 + i) for i, one in enumerate(ids)),
    )


async def test_approvals_list_shows_pending_calls() -> None:
    """With the call, why it is held, and until when; oldest first."""
    async with opened(parked(), parked("run_2", approval_id="ap_2", created_s=90.0, rule="")) as desk:
        assert await told(lambda: list_approvals(remote(desk), status="pending", as_json=False)) == [
            "ap_2  pending, until 1970-01-01 00:16:40 UTC",
            '  execute_command {"command":"make"}',
            "  held because: make is not on the list.",
            "",
            "ap_1  pending, until 1970-01-01 00:16:40 UTC",
            '  execute_command {"command":"make"}',
            "  held because: make is not on the list. [unknown_command]",
        ]


async def test_approvals_list_filters_by_state() -> None:
    """And says so when it is empty."""
    async with opened(parked(), parked("run_2", approval_id="ap_2")) as desk:
        await desk.office.store.decide_approval(write("ap_2"))
        for status, ids in (("approved", ["ap_2"]), (None, ["ap_1", "ap_2"])):
            lines = await told(lambda status=status: list_approvals(remote(desk), status=status, as_json=True))
            assert [json.loads(line)["id"] for line in lines] == ids
        assert await told(lambda: list_approvals(remote(desk), status="expired", as_json=False)) == ["none"]
        assert await told(lambda: list_approvals(remote(desk), status="expired", as_json=True)) == []


async def test_approvals_list_filters_and_groups_calls() -> None:
    """By tool, caller and text; a group says how many calls there are, and which expires first."""
    async with opened(
        parked(), parked("run_2", approval_id="ap_2"), parked("run_3", approval_id="ap_3", caller="bob")
    ) as desk:
        for which, count in (({"caller": "ann"}, 2), ({"search": "MAKE"}, 3), ({"tool": "look"}, 0)):
            lines = await told(
                lambda which=which: list_approvals(remote(desk), status="pending", as_json=True, **which)
            )
            assert len(lines) == count
        assert await told(lambda: list_groups(remote(desk), by="call", as_json=False)) == [
            '3 approvals, 1 different: execute_command {"command":"make"}',
            "  the first until 1970-01-01 00:16:40 UTC: ap_1",
        ]
        lines = await told(lambda: list_groups(remote(desk), by="caller", as_json=True))
        assert [(found["count"], found["asked_by"]) for found in map(json.loads, lines)] == [(2, "ann"), (1, "bob")]


async def test_approvals_list_shows_more_than_one_page() -> None:
    """More than a gateway sends at once."""
    async with opened(group(*(f"ap_{i}" for i in range(LIMIT_MOST + 1)))) as desk:
        lines = await told(lambda: list_approvals(remote(desk), status="pending", as_json=True))
        assert [json.loads(line)["id"] for line in lines] == [f"ap_{i}" for i in range(LIMIT_MOST + 1)]


async def test_approvals_show_prints_the_whole_approval() -> None:
    """And how to decide on exactly what is shown."""
    async with opened() as desk:
        assert await told(lambda: show_approval(remote(desk), "ap_1", as_json=False)) == [
            "ap_1  pending",
            "  execute_command",
            '    command: "make"',
            "held because  make is not on the list. [unknown_command]",
            "basis         default",
            "run           run_1, step 1",
            "conversation  c1",
            f"sha256        {HASH}",
            "asked         1970-01-01 00:01:40 UTC",
            "expires       1970-01-01 00:16:40 UTC",
            f"to approve    gateway approvals approve ap_1 --sha256 {HASH}",
            "to reject     gateway approvals reject ap_1",
        ]
        (line,) = await told(lambda: show_approval(remote(desk), "ap_1", as_json=True))
        assert json.loads(line)["arguments"] == {"command": "make"}


async def test_approve_command_resumes_the_run() -> None:
    """The decision is made with all that was said, and the run goes on."""
    async with opened() as desk:
        lines = await told(
            lambda: decide_approvals(remote(desk), ["ap_1"], decision="approve", sha256=HASH, remember="run")
        )
        assert lines == ['ap_1  approved  execute_command {"command":"make"}']
        assert desk.office.resumed == ["run_1"]
        _, view = await desk.get("/context/approvals/ap_1")
        assert (view["state"], view["decided_by"], view["remember"]) == ("approved", "bob", "run")


async def test_first_of_two_approvals_is_reported_as_1_of_2() -> None:
    """In its outcome, in the list, and on the page of the call; a changed call is shown first."""
    async with opened(parked(required=2)) as desk:
        changed = {"command": "make -n"}
        lines = await told(lambda: decide_approvals(remote(desk), ["ap_1"], decision="approve", arguments=changed))
        assert lines == ['ap_1  pending (1 of 2, approved by bob)  execute_command {"command":"make -n"}']
        assert "  approvals: 1 of 2, approved by bob" in await told(
            lambda: list_approvals(remote(desk), status="pending", as_json=False)
        )
        shown = await told(lambda: show_approval(remote(desk), "ap_1", as_json=False))
        assert "approvals     1 of 2, approved by bob" in shown
        assert shown.index('    command: "make -n"') < shown.index('    command: "make"')
        with pytest.raises(RemoteError, match="has approved this call already"):
            await told(lambda: decide_approvals(remote(desk), ["ap_1"], decision="approve", sha256=shown_hash(shown)))


def shown_hash(lines: list[str]) -> str:
    (line,) = [line for line in lines if line.startswith("sha256 ")]
    return line.split()[1]


async def test_approve_command_applies_edited_arguments() -> None:
    """What is told is what runs."""
    async with opened() as desk:
        lines = await told(
            lambda: decide_approvals(remote(desk), ["ap_1"], decision="approve", arguments={"command": "make -n"})
        )
        assert lines == ['ap_1  approved  execute_command {"command":"make -n"}']
        assert (await told(lambda: show_approval(remote(desk), "ap_1", as_json=False)))[-4:] == [
            "decided       1970-01-01 00:03:20 UTC by bob (cli)",
            "edited: what was approved is",
            "  execute_command",
            '    command: "make -n"',
        ]


async def test_reject_gives_the_reason() -> None:
    """Which the run is told."""
    async with opened() as desk:
        lines = await told(lambda: decide_approvals(remote(desk), ["ap_1"], decision="reject", reason="not today"))
        assert lines == ['ap_1  rejected  execute_command {"command":"make"}']
        assert "reason        not today" in await told(lambda: show_approval(remote(desk), "ap_1", as_json=False))


@pytest.mark.parametrize(
    ("key", "approval_id", "sha256", "message"),
    [
        ("boss", "ap_1", "f" * 64, "answered 409: sha256: The hash is of another call than the one that waits"),
        ("boss", "ap_9", None, "answered 404: There is no such approval"),
        ("boss", "../runs/run_1/cancel", None, "answered 404"),
        ("agent", "ap_1", None, "answered 403: Your key may not decide on approvals"),
        (None, "ap_1", None, "answered 401: No key"),
        ("schlüssel", "ap_1", None, "GATEWAY_API_KEY contains a character that no key has"),
    ],
)
async def test_refused_decision_prints_the_gateway_error(
    key: str | None, approval_id: str, sha256: str | None, message: str
) -> None:
    """In the words of the gateway, and nothing was decided."""
    async with opened() as desk:
        with pytest.raises(RemoteError, match=message):
            await told(
                lambda: decide_approvals(remote(desk, key=key), [approval_id], decision="approve", sha256=sha256)
            )
        assert (await desk.get("/context/approvals/ap_1"))[1]["state"] == "pending"
        assert (await desk.get("/context/runs/run_1"))[1]["state"] == "awaiting_approval"


async def test_decide_command_decides_several_approvals_together() -> None:
    """Before their run goes on; those that cannot be are named, behind what was done."""
    async with opened(group("ap_1", "ap_2", "ap_3")) as desk:
        lines: list[str] = []

        def some() -> Iterator[str]:
            for line in decide_approvals(remote(desk), ["ap_1", "ap_9", "ap_3"], decision="approve"):
                lines.append(line)
                yield line

        with pytest.raises(RemoteError, match=r"^ap_9: There is no such approval\.$"):
            await told(some)
        assert [line.split()[:2] for line in lines] == [["ap_1", "approved"], ["ap_3", "approved"]]
        assert desk.office.resumed == ["run_1"]
        assert (await desk.get("/context/approvals/ap_2"))[1]["state"] == "pending"
