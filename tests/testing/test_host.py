"""The host of plugins under test."""

import asyncio

import pytest

from gateway.contracts.exchange import Reply, ToolSteering
from gateway.contracts.plugin import Host, LoopLimits
from gateway.contracts.tools import ToolSpec
from gateway.telemetry.counters import ContextCounters
from gateway.testing import FakeHost, ScriptedModel, make_exchange


def spec(name: str) -> ToolSpec:
    return ToolSpec(name=name, description="Does it.", parameters={"type": "object"})


async def test_fake_host_has_a_working_store() -> None:
    """With a store that stores."""
    async with FakeHost() as fake:
        host: Host = fake
        await host.store.put_prompt("p", "Hi.", tenant="t", now_s=host.clock.time())
        stored = await host.store.get_prompt("p", tenant="t")
        assert stored is not None and (stored.text, stored.updated_s) == ("Hi.", 1000.0)


def test_fake_host_offers_tools_allowed_by_the_request() -> None:
    """By name or glob, as in the catalog."""
    host = FakeHost(tools=[spec("read_file"), spec("write_file"), spec("now")])
    assert [
        tool.name for tool in host.tools.get_offered(make_exchange(steering=ToolSteering(only_tools=("*_file",))))
    ] == [
        "read_file",
        "write_file",
    ]
    assert len(host.tools.get_offered(make_exchange())) == 3 and host.tools.n_asked == 2


async def test_fake_host_prompts_wait_for_their_gate() -> None:
    """And are the same for every tenant."""
    host = FakeHost(prompts={"p": "Hi."})
    assert await host.prompts.read_text("p", tenant="a") == "Hi." == await host.prompts.read_text("p", tenant="b")
    assert await host.prompts.read_text("q", tenant="a") is None
    host.prompts.gate.clear()
    reading = asyncio.ensure_future(host.prompts.read_text("p", tenant="a"))
    await asyncio.sleep(0)
    assert not reading.done()
    host.prompts.gate.set()
    assert await reading == "Hi."


def test_fake_host_counters_record_calls() -> None:
    """By label values, in order, and as distributions."""
    counters = FakeHost().counters
    counters.count("stage_skips", stage="a")
    counters.count("stage_skips", 2, stage="a")
    counters.observe("prompt_tokens", 3.0)
    assert counters.counted == {("stage_skips", "a"): 3}
    assert counters.calls == [("stage_skips", {"stage": "a"})] * 2
    assert counters.observed == [("prompt_tokens", 3.0)]


@pytest.mark.parametrize(("name", "labels"), [("no_such", {}), ("stage_skips", {}), ("stage_skips", {"tool": "a"})])
def test_fake_counters_reject_unknown_names_and_labels(name: str, labels: dict[str, str]) -> None:
    """A plugin that counts something else fails in its test, as it would in a gateway."""
    for counters in (FakeHost().counters, ContextCounters()):
        with pytest.raises(KeyError):
            counters.count(name, **labels)
        with pytest.raises(KeyError):
            counters.observe(name, 1.0, **labels)


async def test_fake_host_loop_stage_passes_through() -> None:
    """And their limits can be read."""
    host = FakeHost()
    reply = await host.runs.build_stage(LoopLimits(max_tool_calls=3))(make_exchange(), ScriptedModel("Hi."))
    assert isinstance(reply, Reply) and host.runs.limits == [LoopLimits(max_tool_calls=3)]


async def test_copied_fake_host_starts_with_empty_state() -> None:
    """With the same tools, prompts and time."""
    async with FakeHost(tools=[spec("now")], prompts={"p": "Hi."}) as host:
        host.counters.count("stage_skips", stage="a")
        host.clock.advance(5.0)
        host.tools.version = "2"
        copied = host.copy()
        assert (copied.tools.specs, copied.prompts.texts, copied.tools.version) == ([spec("now")], {"p": "Hi."}, "2")
        assert copied.clock.monotonic() == copied.clock.time() == 1005.0
        assert copied.counters.counted == {} and copied.store is not host.store
