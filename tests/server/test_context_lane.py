"""The context lane of one configuration: everything is built, or everything that cannot be built is told."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from agent.doubles import Clock
from tools.toolbox import Toolbox

from gateway.auth.active_keys import KeysInUse
from gateway.auth.keyring import StoredKeys
from gateway.config import ConfigError, Settings
from gateway.contracts.caller import LOCAL, Caller
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.journal import StoredRun
from gateway.mcp.placement import ServerPlaces
from gateway.plugins.stores.sqlite import SqliteStore
from gateway.runs.event_feed import EventFeed
from gateway.runs.idempotency_key import RequestKey
from gateway.runs.leases import Leases
from gateway.runs.live import LiveRuns
from gateway.runs.undelivered_answers import JOINABLE_S
from gateway.server.context_lane import LaneServices, build_context_lane, make_servers
from gateway.server.feature import FeatureNeeds, WorkerFeatures
from gateway.server.lanes.rights import build_key_ring
from gateway.server.lanes.upstreams import build_groups
from gateway.server.worker_services import WorkerServices
from gateway.telemetry.counters import ContextCounters
from gateway.telemetry.metrics import Metrics
from gateway.testing.clock import ManualClock
from gateway.tools.active_config import ActiveEquipment, Equipment
from gateway.tools.results import READ_RESULT, Results
from gateway.upstream.replicas.replicas import Replicas
from tests.plugins.stores.records import new, run

CLOCK = Clock(ManualClock())


@pytest.fixture(autouse=True)
def nothing_built() -> None:
    Toolbox.built.clear()


async def assembled(folder: Path, store: SqliteStore | None = None, **content: object) -> LaneServices:
    settings = Settings.model_validate(content, context={"folder": folder})
    store = store or SqliteStore(":memory:")
    leases = Leases(store, clock=CLOCK, resume=_unexpected)
    replicas = Replicas(store, owner=leases.owner, clock=CLOCK)
    return await build_context_lane(
        settings,
        groups=build_groups(settings.upstreams, metrics=Metrics(), clock=ManualClock()),
        keys=build_key_ring(settings),
        shared=WorkerServices(
            store=store,
            runs=LiveRuns(clock=CLOCK),
            feed=EventFeed(store),
            leases=leases,
            counters=ContextCounters(),
            clock=CLOCK,
            mcp_servers=make_servers(store, worker="w1", counters=ContextCounters(), clock=CLOCK),
            in_use=ActiveEquipment(_nothing_yet),
            results=Results(),
            keys=KeysInUse(store, StoredKeys(), is_on=lambda: False, clock=CLOCK),
            features=WorkerFeatures(
                FeatureNeeds(
                    store=store,
                    clock=CLOCK,
                    counters=ContextCounters(),
                    writer="w1",
                    settings=lambda: settings,
                    callers=tuple,
                )
            ),
            replicas=replicas,
            places=ServerPlaces(replicas),
        ),
    )


def _nothing_yet() -> Equipment:
    raise AssertionError("nothing runs here")


async def _unexpected(run: StoredRun) -> None:
    raise AssertionError(f"nobody takes up runs here: {run.id}")


async def problems(folder: Path, **content: object) -> list[str]:
    with pytest.raises(ConfigError) as failed:
        await assembled(folder, **content)
    return [f"{problem.path}: {problem.message}" for problem in failed.value.problems]


def toolbox(*names: str, **flags: bool) -> dict[str, object]:
    return {"use": "tools.toolbox", "with": {"tools": list(names)}, **flags}


# What is built.


async def test_the_default_configuration_is_the_four_stages_in_order(tmp_path: Path) -> None:
    """With the default prompt, and an enhancer that can show what it would say."""
    made = await assembled(tmp_path)
    assert [link.name for link in made.lane.chains["assistant"].links] == [
        "intent",
        "memory",
        "prompt_enhancer",
        "agent_loop",
    ]
    assert made.enhancer is made.lane.chains["assistant"].links[2].stage
    assert await made.prompts.read_text("default", tenant="local") == "You are a helpful assistant."
    shown = await made.enhancer.enhance_prompt("default", tenant="local")
    assert shown is not None and READ_RESULT not in shown.text  # without tools there is nothing to read on


async def test_every_chain_is_built_as_it_is_listed(tmp_path: Path) -> None:
    """Each stage with its own settings; the default chain is the one that is named."""
    chains = {"one": [{"use": "memory", "on_error": "skip"}, {"use": "agent_loop"}], "two": []}
    made = await assembled(tmp_path, chains=chains, context={"chain": "one"})
    assert [(link.name, link.on_error) for link in made.lane.chains["one"].links] == [
        ("memory", "skip"),
        ("agent_loop", "fail"),
    ]
    assert made.lane.rules.chain == "one" and made.lane.chains["two"].links == ()
    assert made.enhancer is None


async def test_tools_of_plugins_are_offered_and_closed_with_the_lane(tmp_path: Path) -> None:
    """With `read_result` behind them; once, however many tools a source has."""
    made = await assembled(tmp_path, tools={"mine": toolbox("look", "find"), "yours": toolbox("other")})
    shown = await made.enhancer.enhance_prompt("default", tenant="local") if made.enhancer else None
    assert shown is not None
    for name in ("look", "find", "other", READ_RESULT):
        assert f"<name>{name}</name>" in shown.text
    await made.lane.retire()
    await made.lane.retire()
    assert [one.closed for one in Toolbox.built] == [1, 1]


async def test_prompts_come_from_texts_and_files(tmp_path: Path) -> None:
    """A file is UTF-8."""
    (tmp_path / "p.md").write_text("你好", encoding="utf-8")
    made = await assembled(tmp_path, prompts={"a": {"text": "A."}, "b": {"file": "p.md"}})
    assert [await made.prompts.read_text(name, tenant="local") for name in "ab"] == ["A.", "你好"]


async def test_upstream_is_chosen_by_model_patterns_or_configuration(tmp_path: Path) -> None:
    """By `models`, and by `context.upstream`."""
    upstreams = [
        {"name": "one", "base_url": "http://127.0.0.1:1"},
        {"name": "two", "base_url": "http://127.0.0.1:2", "models": ["gpt-*"]},
    ]
    made = await assembled(tmp_path, upstreams=upstreams)
    for model, name in (("gpt-5", "two"), ("other", "one")):
        assert made.core.list_candidates({"model": model}).upstream == name
    fixed = await assembled(tmp_path, upstreams=upstreams, context={"upstream": "one"})
    assert fixed.core.list_candidates({"model": "gpt-5"}).upstream == "one"


# What cannot be built.


async def test_build_problems_are_reported_together_with_their_places(tmp_path: Path) -> None:
    """Each with its place in the file; what was built is closed again."""
    told = await problems(
        tmp_path,
        tools={"mine": toolbox("look"), "nope": {}, "odd": {"use": "tools.toolbox", "with": {"x": 1}}},
        chains={"assistant": [{"use": "agent_loop", "with": {"timeout": "never"}}, {"use": "nope"}]},
        risk={"assessors": {"look": {"use": "nope"}}},
    )
    places = [problem.partition(":")[0] for problem in told]
    assert places == [
        "tools.nope.use",
        "tools.odd.with.x",
        "risk.assessors.look.use",
        "chains.assistant[0].with.timeout",
        "chains.assistant[1].use",
    ]
    assert [one.closed for one in Toolbox.built] == [1]


@pytest.mark.parametrize("section", ["rules", "assessors"])
async def test_rule_for_an_unknown_tool_is_a_configuration_problem(tmp_path: Path, section: str) -> None:
    """A slip of the pen would leave a tool without its guard; what was built is closed again."""
    value = {"rules": "deny", "assessors": {"use": "command"}}[section]
    tools = {"mine": toolbox("look", "find")}
    for name in ("look", "find", "execute_command", READ_RESULT, "clock.now"):
        await (await assembled(tmp_path, tools=tools, risk={section: {name: value}})).lane.retire()
    (told,) = await problems(tmp_path, tools=tools, risk={section: {"fnd": value}})
    assert told == f"risk.{section}.fnd: there is no tool 'fnd'; did you mean 'find'?"
    (told,) = await problems(tmp_path, tools=tools, risk={section: {"mine": value}})
    assert (
        told.startswith(f"risk.{section}.mine: there is no tool 'mine'")
        and "execute_sql, file_operations, find" in told
    )
    assert all(one.closed == 1 for one in Toolbox.built)


async def test_rule_is_not_reported_when_a_tool_cannot_be_built(tmp_path: Path) -> None:
    """Nobody knows what its tools are called: only the tool itself is told of."""
    tools = {"mine": toolbox("look"), "odd": {"use": "tools.toolbox", "with": {"x": 1}}}
    (told,) = await problems(tmp_path, tools=tools, risk={"rules": {"find": "deny"}})
    assert told.startswith("tools.odd.with.x")


@pytest.mark.parametrize("tools", [{"a": toolbox("x"), "b": toolbox("x")}, {"read_result": toolbox(READ_RESULT)}])
async def test_two_tools_of_one_name_are_a_problem(tmp_path: Path, tools: dict[str, object]) -> None:
    """Also with one of ours; what was built is closed again."""
    (told,) = await problems(tmp_path, tools=tools)
    assert "there is another tool named" in told
    assert all(one.closed for one in Toolbox.built)


async def test_mcp_server_in_the_tools_section_is_a_configuration_problem(tmp_path: Path) -> None:
    """Nobody would start it there."""
    (told,) = await problems(tmp_path, tools={"time": {"use": "mcp", "with": {"command": "mcp-server-time"}}})
    assert told.startswith("tools.time: ") and "mcp.servers" in told


async def test_configured_tool_may_share_the_name_of_a_gateway_tool(tmp_path: Path) -> None:
    """Only the names of its tools count."""
    made = await assembled(tmp_path, tools={"read_result": toolbox("look")})
    shown = await made.enhancer.enhance_prompt("default", tenant="local") if made.enhancer else None
    assert shown is not None and "<name>look</name>" in shown.text and f"<name>{READ_RESULT}</name>" in shown.text


# Runs on record.


@pytest.fixture
async def store() -> AsyncIterator[SqliteStore]:
    made = SqliteStore(":memory:")
    await made.open()
    yield made
    await made.close()


async def test_a_repeated_request_finds_its_run(tmp_path: Path, store: SqliteStore) -> None:
    """By its Idempotency-Key, or where it says that it is a repetition; by nothing else, and for nobody else."""
    made = await assembled(tmp_path, store)
    now_s = CLOCK.time()
    whose = {"tenant": "local", "caller": "local", "fingerprint": "print", "idempotency_key": "k"}
    await store.write(new(run(created_s=now_s, updated_s=now_s, **whose)))
    key = ("local", "local", "k")
    for request_key, found in (
        (RequestKey("print", key, repeats=False), True),
        (RequestKey("print", None, repeats=True), True),
        (RequestKey("print", None, repeats=False), False),
        (RequestKey("other", None, repeats=True), False),
        (RequestKey("other", ("local", "local", "k2"), repeats=True), False),
    ):
        assert (await made.lane.earlier(request_key, LOCAL) is not None) is found
    stranger = Caller("local", "other", frozenset(("context",)))
    for request_key in (
        RequestKey("print", ("other", "local", "k"), repeats=True),
        RequestKey("print", None, repeats=True),
    ):
        assert await made.lane.earlier(request_key, stranger) is None
    with pytest.raises(GatewayError) as mistaken:
        await made.lane.earlier(RequestKey("other", key, repeats=False), LOCAL)
    assert mistaken.value.code == "idempotency_mismatch"
    await made.lane.retire()


async def test_old_run_is_found_by_its_idempotency_key_only(tmp_path: Path, store: SqliteStore) -> None:
    """Who says that it repeats something means what happened just now; a key holds for as long as the run is kept."""
    made = await assembled(tmp_path, store)
    whose = {"tenant": "local", "caller": "local", "fingerprint": "print", "idempotency_key": "k"}
    await store.write(new(run(updated_s=CLOCK.time() - JOINABLE_S - 1, **whose)))
    assert await made.lane.earlier(RequestKey("print", None, repeats=True), LOCAL) is None
    assert await made.lane.earlier(RequestKey("print", ("local", "local", "k"), repeats=False), LOCAL) is not None
    await made.lane.retire()


async def test_chain_resumes_runs_at_its_agent_loop(tmp_path: Path) -> None:
    """At their agent loop; one without runs no tools."""
    made = await assembled(tmp_path, chains={"tools": [{"use": "memory"}, {"use": "agent_loop"}], "none": []})
    assert made.lane.chains["tools"].find_resume_handler() is made.lane.chains["tools"].handlers[1]
    assert made.lane.chains["none"].find_resume_handler() is None
    await made.lane.retire()
