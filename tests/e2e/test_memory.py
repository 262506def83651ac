"""The memory of a conversation, over HTTP: who sees it, where it stands in the prompt, and how it goes."""

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


async def test_repeated_message_stores_a_memory_once(request: pytest.FixtureRequest) -> None:
    """Also when the request is said again."""
    async with talking(says("Noted."), says("I know."), says("Ada.")) as world:
        for text in (ADA, ADA, ASK):
            await world.chat(text)
        assert "remember this already" in world.model.prompts[1]
        assert world.model.prompts[2].count("my cat is called Ada") == 1


async def test_all_memories_are_listed_on_request() -> None:
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


async def test_memories_are_separate_for_each_end_user_of_a_key() -> None:
    """The header names them, else the body's `user`; each has its own memories, in all conversations of the tenant."""
    keys = [
        {"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest(), "scopes": ["context"], "tenant": tenant}
        for name, tenant in (("ui", "acme"), ("bot", "acme"), ("rival", "other"))
    ]
    anna, bob = {"X-Context-User": "anna"}, {"X-Context-User": "Zoë"}
    async with talking(*[says("ok")] * 9, keys=keys) as world:
        await world.chat("Remember that my PIN is 1234.", headers={"X-Gateway-Key": "ui", **anna}, user="ignored")
        asked: list[tuple[str, dict[str, str], str | None, bool]] = [
            ("ui", bob, None, False),
            ("ui", {}, None, False),
            ("ui", {}, " anna ", True),
            ("ui", {}, "", False),
            ("bot", {**anna, "X-Context-Conversation": "c2"}, None, True),
            ("rival", anna, None, False),
            ("ui", bob, "anna", False),
        ]
        for key, headers, user, _ in asked:
            await world.chat("What is my PIN?", headers={"X-Gateway-Key": key, **headers}, user=user)
        assert ["1234" in prompt for prompt in world.model.prompts[1:]] == [knows for *_, knows in asked]


@pytest.mark.parametrize("user", ["x" * 257, "a\nb", "\u0000"])
async def test_invalid_user_or_user_header_is_refused(user: str) -> None:
    """Rather than mixed up with somebody else."""
    async with talking() as world:
        error = (await world.chat(ADA, user=user)).error
        assert (error["code"], error["param"]) == ("invalid_field", "user")
        error = (await world.chat(ADA, headers={"X-Context-User": "x" * 257})).error
        assert (error["code"], error["param"]) == ("invalid_header", "x-context-user")


async def test_answer_reports_kept_and_forgotten_memories() -> None:
    """In its last frame or its object, with an id; and as an event where events are wanted."""
    async with talking(*[says("ok")] * 4) as world:
        kept = (await world.chat(ADA)).json["context"]["memory"]["kept"]
        assert [memory["text"] for memory in kept] == ["my cat is called Ada"]
        stream = await world.stream("Forget what you know about my cat.", headers={"X-Context-Events": "1"})
        assert [told for told in stream.told if told["type"].startswith("memory")] == [
            {"type": "memory.forgotten", "forgotten": kept, "count": 1}
        ]
        assert stream.frames[-1]["context"]["memory"] == {"forgotten": kept, "count": 1}
        nothing = await world.chat("Forget what you know about my cat.")
        assert nothing.json["context"]["memory"] == {"forgotten": [], "count": 0}
        assert "no memory matches" in world.model.prompts[2]
        assert "memory" not in (await world.chat("Hello")).json.get("context", {})


@pytest.mark.parametrize("text", ["Remember to use tabs in this file.", "记住在这个文件里用制表符"])
async def test_an_instruction_about_the_task_is_not_kept(text: str) -> None:
    """The model reads it where it stands, and nobody hears of it in the next conversation."""
    async with talking(says("ok"), says("ok")) as world:
        answer = await world.chat(text)
        assert answer.headers["X-Context-Intent"] == "normal" and "memory" not in answer.json.get("context", {})
        await world.chat(ASK)
        assert "remember about this user" not in world.model.prompts[1]


async def test_memories_survive_a_reload() -> None:
    """They are in the store, not in the configuration."""
    async with talking(says("Noted."), says("Ada.")) as world:
        await world.chat(ADA)
        upstreams = [{"name": "up", "base_url": world.model.upstream.base_url}]
        await world.gateway.reload({"upstreams": upstreams, "store": "sqlite:///:memory:"})
        await world.chat(ASK)
        assert "- my cat is called Ada" in world.model.prompts[1]


async def test_memories_follow_the_cacheable_prompt_prefix() -> None:
    """The beginning of a prompt does not change with what is remembered."""
    async with talking(says("a"), says("b"), enhancer={"custom_context": "We sell pets."}) as world:
        cached = (await world.get("/v1/system-prompts/default/enhanced")).json["text"]
        await world.chat(ADA)
        await world.chat(ASK)
        assert all(prompt.startswith(f"{cached}\n\n") for prompt in world.model.prompts)


async def test_a_safety_identifier_names_the_end_user() -> None:
    """As OpenAI's API has it now in the place of `user`, which counts where a request has both."""
    async with talking(says("Noted."), says("Who knows."), says("Ada."), says("Who knows.")) as world:
        await world.chat(ADA, safety_identifier="eve")
        await world.chat(ASK, safety_identifier="zoe")
        await world.chat(ASK, safety_identifier="eve")
        await world.chat(ASK, safety_identifier="eve", user="zoe")
        assert ["cat is called Ada" in prompt for prompt in world.model.prompts] == [True, False, True, False]
        wrong = await world.chat(ASK, safety_identifier="\n\x07eve")
        assert (wrong.status, wrong.error["param"]) == (400, "safety_identifier")
