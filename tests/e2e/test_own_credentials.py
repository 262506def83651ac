"""Whose credential and header lines go to a model: those of the client of its run, for the upstream they are for."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from .asking import GO, answering, asks, born, line, ranch
from .models import Answer, Model, refuses, says
from .talking import World, talking
from .test_second_person import KEYS

DONE = says("Di is here.")


def carried(model: Model) -> list[tuple[list[bytes], list[bytes]]]:
    """The credential and the mark of the client that each request to a model had."""
    return [(one.list_values(b"authorization"), one.list_values(b"x-who")) for one in model.upstream.requests]


def of(who: str, name: str = "agent", **further: str) -> dict[str, str]:
    """The headers of a person with a key of the gateway, and with one of the upstream's."""
    return {"X-Gateway-Key": name, "Authorization": f"Bearer of-{who}", "X-Who": f"{who}s", **further}


@asynccontextmanager
async def two_upstreams(folder: Path, *answers: Answer) -> AsyncIterator[tuple[World, Model]]:
    """A gateway with one upstream that gives these answers, and another one for models that begin with `o`."""
    async with (
        Model(says("Well, then.")) as other,
        talking(*answers, tools=ranch(folder), **KEYS) as world,
    ):
        further = {"name": "other", "base_url": other.upstream.base_url, "models": ["o*"]}
        await world.reload(upstreams=[*world.config["upstreams"], further])
        yield world, other


async def test_approving_key_does_not_lend_its_credential_to_the_run(tmp_path: Path) -> None:
    """The run of the agent goes on without its client's credential, and waits for that client where it needs one."""
    async with talking(asks(), refuses(401), DONE, tools=ranch(tmp_path), **KEYS) as world:
        first = await world.chat(GO, headers=of("agent"))
        told = await world.chat(answering(first, line(*first.asks)), headers=of("anna", "anna"))
        assert (told.status, told.error["code"]) == (401, "upstream_refused")
        assert "it goes on once its client sends the request again" in told.error["message"]
        assert born(tmp_path) == ["Di"]
        assert (await world.chat(GO, headers=of("agent"))).text == "Di is here."
        own = ([b"Bearer of-agent"], [b"agents"])
        assert carried(world.model) == [own, ([], []), own]


async def test_approving_end_user_does_not_lend_a_credential_to_the_run(tmp_path: Path) -> None:
    """One key serves both."""
    async with talking(asks(), refuses(401), DONE, tools=ranch(tmp_path), **KEYS) as world:
        eve, zoe = (of(who, **{"X-Context-User": who}) for who in ("eve", "zoe"))
        first = await world.chat(GO, headers=eve)
        told = await world.chat(answering(first, line(*first.asks)), headers=zoe)
        assert told.text.startswith("Approved. The result of the run")
        await world.run(first.asks[0]["run_id"], state="awaiting_client", **zoe)
        assert (await world.chat(GO, headers=eve)).text == "Di is here."
        own = ([b"Bearer of-eve"], [b"eves"])
        assert carried(world.model) == [own, ([], []), own] and born(tmp_path) == ["Di"]


async def test_client_credential_is_sent_only_to_its_own_upstream(tmp_path: Path) -> None:
    """The person goes on with a model of another upstream: neither gets the credential for the other one."""
    async with two_upstreams(tmp_path, asks(), refuses(401)) as (world, other):
        first = await world.chat(GO, headers=of("up"))
        told = await world.chat(answering(first, line(*first.asks)), headers=of("other"), model="o1")
        assert "once its client sends the request again" in told.error["message"]
        assert carried(world.model) == [([b"Bearer of-up"], [b"ups"]), ([], [b"others"])]
        assert (born(tmp_path), other.asked) == (["Di"], [])


async def test_run_decided_elsewhere_gets_no_credential_for_another_upstream(tmp_path: Path) -> None:
    """The next message of the conversation brings what came of the question, with a model of another upstream."""
    async with two_upstreams(tmp_path, asks(), refuses(401), refuses(401)) as (world, other):
        first = await world.chat(GO, headers=of("up"))
        (approval,) = first.asks
        await world.decide(approval["id"], key="anna")
        await world.run(approval["run_id"], state="awaiting_client", **{"X-Gateway-Key": "anna"})
        told = await world.chat(answering(first, "Go on."), headers=of("other"), model="o1")
        assert told.text.endswith("Well, then.")
        assert [sent for sent, _ in carried(world.model)] == [[b"Bearer of-up"], [], []]
        assert carried(other) == [([b"Bearer of-other"], [b"others"])] and born(tmp_path) == ["Di"]
