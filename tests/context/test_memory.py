"""What a conversation remembers, over HTTP: who sees it, where it stands in the prompt, and how it goes."""

import hashlib

import pytest

from .models import says
from .talking import talking

ADA = "Remember that my cat is called Ada."
ASK = "What is my cat called?"


async def test_a_memory_comes_back_in_later_requests() -> None:
    """The model is told that it was stored; later it is told the memory, in a request of its own."""
    async with talking(says("Noted."), says("Ada.")) as world:
        assert (await world.chat(ADA)).headers["X-Context-Intent"] == "memory"
        await world.chat(ASK)
        stored, later = world.model.prompts
        assert "my cat is called Ada" in stored and "Confirm" in stored
        assert "What you remember about this user:\n- my cat is called Ada" in later


async def test_a_memory_is_kept_once(request: pytest.FixtureRequest) -> None:
    """Also when the request is said again."""
    async with talking(says("Noted."), says("I know."), says("Ada.")) as world:
        for text in (ADA, ADA, ASK):
            await world.chat(text)
        assert "remember this already" in world.model.prompts[1]
        assert world.model.prompts[2].count("my cat is called Ada") == 1


async def test_all_memories_on_request() -> None:
    """`What do you remember about me?` brings all of them, or says that there are none."""
    async with talking(says("Nothing."), says("a"), says("b"), says("All.")) as world:
        for text in ("What do you remember?", ADA, "记住我住在柏林", "What do you remember?"):
            await world.chat(text)
        assert "You remember nothing about this user yet." in world.model.prompts[0]
        assert "- my cat is called Ada" in world.model.prompts[3] and "- 我住在柏林" in world.model.prompts[3]


async def test_a_memory_is_forgotten() -> None:
    """Only the one that was meant."""
    async with talking(says("a"), says("b"), says("Gone."), says("?")) as world:
        for text in (ADA, "Remember that I live in Berlin.", "Forget that my cat is called Ada.", ASK):
            await world.chat(text)
        assert "deleted just now" in world.model.prompts[2]
        assert "Ada" not in world.model.prompts[3] and "I live in Berlin" in world.model.prompts[3]


async def test_a_memory_of_a_conversation_stays_in_it() -> None:
    """What is said without a conversation holds in all of them."""
    async with talking(*[says("ok")] * 5) as world:
        await world.chat(ADA, headers={"X-Context-Conversation": "one"})
        await world.chat("Remember that I live in Berlin.")
        for headers in ({"X-Context-Conversation": "one"}, {"X-Context-Conversation": "two"}, {}):
            await world.chat(ASK, headers=headers)
        seen = [("Ada" in prompt, "Berlin" in prompt) for prompt in world.model.prompts[2:]]
        assert seen == [(True, True), (False, True), (False, True)]


async def test_memories_belong_to_a_caller() -> None:
    """Another key sees nothing of them, whatever conversation it names."""
    keys = [
        {"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest(), "scopes": ["context"]}
        for name in ("ann", "ben")
    ]
    async with talking(*[says("ok")] * 3, keys=keys) as world:
        conversation = {"X-Context-Conversation": "shared"}
        await world.chat(ADA, headers={"X-Gateway-Key": "ann", **conversation})
        await world.chat(ASK, headers={"X-Gateway-Key": "ben", **conversation})
        await world.chat(ASK, headers={"X-Gateway-Key": "ann", **conversation})
        assert ["Ada" in prompt for prompt in world.model.prompts] == [True, False, True]


async def test_memories_survive_a_reload() -> None:
    """They are in the store, not in the configuration."""
    async with talking(says("Noted."), says("Ada.")) as world:
        await world.chat(ADA)
        upstreams = [{"name": "up", "base_url": world.model.upstream.base_url}]
        await world.gateway.reload({"upstreams": upstreams, "store": "sqlite:///:memory:"})
        await world.chat(ASK)
        assert "- my cat is called Ada" in world.model.prompts[1]


async def test_memories_stand_behind_what_can_be_cached() -> None:
    """The beginning of a prompt does not change with what is remembered."""
    async with talking(says("a"), says("b"), enhancer={"custom_context": "We sell pets."}) as world:
        cached = (await world.get("/v1/system-prompts/default/enhanced")).json["text"]
        await world.chat(ADA)
        await world.chat(ASK)
        assert all(prompt.startswith(f"{cached}\n\n") for prompt in world.model.prompts)
