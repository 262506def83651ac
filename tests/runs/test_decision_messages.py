"""The messages that come with a decision: which of them are new, and how they are found again."""

import pytest

from gateway.contracts.exchange import Exchange
from gateway.contracts.storage.journal import StoredRun
from gateway.contracts.storage.store import Json
from gateway.dialects.dialect import SaidBeside
from gateway.runs.decision_messages import ADDED, list_added_messages, select_new_messages
from gateway.runs.request_snapshot import build_run_record
from tests.agent.agent_bench import CALLER
from tests.plugins.stores.records import event, new, run

from .desk import Desk


def said(content: object) -> Json:
    return {"role": "user", "content": content}


def began(*contents: object) -> StoredRun:
    body: Json = {"messages": [{"role": "assistant", "content": "a"}, *map(said, contents)]}
    return build_run_record(Exchange(id="run_1", body=body, caller=CALLER, chain="main"), now_s=0.0)


def beside(*contents: object, behind: int, is_whole: bool = True) -> SaidBeside:
    return SaidBeside(messages=tuple(map(said, contents)), behind=behind, is_whole=is_whole)


PARTS = [{"type": "text", "text": "a"}]
IMAGE = [{"type": "image_url", "image_url": {"url": "data:,"}}]
#: A run that has ended, whose conversation the store gave up.
FORGOTTEN = build_run_record(Exchange(id="run_1", body={"messages": []}, caller=CALLER, chain="main"), now_s=0.0)


@pytest.mark.parametrize(
    ("stored", "brought", "new"),
    [
        (began("a"), beside("a", behind=1), []),
        (began("a"), beside("a", "b", behind=2), ["b"]),
        (began("a", "b"), beside("b", "c", behind=2), ["c"]),
        (began("a"), beside("a", "a", behind=2), ["a"]),
        (began("a"), beside("x", "b", behind=1), ["b"]),
        (began("a", IMAGE, "b"), beside("a", "b", behind=2), []),
        (began(PARTS, IMAGE), beside("a", IMAGE, PARTS, behind=3), [PARTS]),
        (began("a"), beside("a", behind=1, is_whole=False), ["a"]),
        (FORGOTTEN, beside("a", behind=1), []),
    ],
)
def test_messages_of_the_run_count_as_history(stored: StoredRun, brought: SaidBeside, new: list[object]) -> None:
    """In their order, each once. A client that goes on from what is stored sends nothing but new ones."""
    assert [message["content"] for message in select_new_messages(brought, stored, [], decides=[])] == new


def test_messages_of_earlier_decisions_count_as_history() -> None:
    """Those of an earlier decision on the same run, in a conversation that is sent whole."""
    added = [{"request": "run_2", "decides": ["ap_1"], "messages": [said("b")]}]
    brought = beside("a", "b", "c", behind=2)
    assert select_new_messages(brought, began("a"), added, decides=["ap_2"]) == [said("c")]


def test_equal_messages_with_different_decisions_are_both_new() -> None:
    """Unless the second one comes with the same decisions: then its request is a repeated one."""
    added = [{"request": "run_2", "decides": ["ap_1"], "messages": [said("Go on.")]}]
    brought = beside("Go on.", behind=1, is_whole=False)
    assert select_new_messages(brought, began("a"), added, decides=["ap_1"]) == []
    assert select_new_messages(brought, began("a"), added, decides=["ap_2"]) == [said("Go on.")]


async def test_added_messages_are_read_once_per_request(desk: Desk) -> None:
    """Each request once, however many approvals it decided on."""
    data = b'{"request": "run_2", "decides": ["ap_1"], "messages": [{"role": "user", "content": "b"}]}'
    of_run = [event(ADDED, data=data), event(), event(ADDED, data=data)]
    await desk.store.write(new(run(), events=of_run))
    (found,) = await list_added_messages(desk.store, "run_1", tenant=run().tenant)
    assert found == {"request": "run_2", "decides": ["ap_1"], "messages": [said("b")]}
    assert await list_added_messages(desk.store, "run_1", tenant="other") == []
