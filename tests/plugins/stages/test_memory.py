"""The memory stage as conversations with it: what is stored, found again, forgotten, and told to the model."""

import re
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from gateway.contracts.caller import Caller
from gateway.contracts.exchange import Chunk, Exchange, Intent, Pause, Reply
from gateway.contracts.storage.store import Json, Memory, RecalledMemory, StoreError
from gateway.plugin import find_last_user_text
from gateway.plugins.stages.intent import recognise
from gateway.plugins.stages.memory import PLUGIN, Config, generate_memory_id, select_memories, write_block
from gateway.testing import FakeHost
from tests.exchanges import new_exchange

ANN = Caller("ann", "home", frozenset())
BEN = Caller("ben", "home", frozenset())


async def kept(host: FakeHost, owner: str = "key:ann", tenant: str = "home") -> list[str]:
    """The texts of an owner, the oldest first."""
    page = await host.store.list_memories(tenant=tenant, owner=owner, before=None, limit=1000)
    return [memory.text for memory in reversed(page.memories)]


@pytest.fixture
async def host() -> AsyncIterator[FakeHost]:
    async with FakeHost() as host:
        yield host


async def say(text: Any, host: FakeHost, **options: Any) -> tuple[str, ...]:
    """The notes that the model gets on this message."""
    return (await through(text, host, **options))[0]


async def told(text: Any, host: FakeHost, **options: Any) -> list[Chunk]:
    """What the client gets of the answer "ok"."""
    return (await through(text, host, **options))[1]


async def through(
    text: Any,
    host: FakeHost,
    *,
    caller: Caller = ANN,
    kind: str = "memory",
    config: Config | None = None,
    after: Sequence[Any] = (),
    **facts: Any,
) -> tuple[tuple[str, ...], list[Chunk]]:
    """The notes for the model, and the answer as the client gets it; `facts` are further ones of the exchange."""
    seen: list[Exchange] = []
    answer: list[Chunk] = []

    async def stream(tell: Any) -> None:
        tell("ok")

    async def release() -> None:
        pass

    async def call_next(exchange: Exchange) -> Reply:
        seen.append(exchange)
        return Reply(stream, release)

    def tell(chunk: Chunk) -> Pause | None:
        answer.append(chunk)
        return None

    stage = PLUGIN.build(config or Config(), host)
    body = {"messages": [{"role": "user", "content": text}, *after]}
    intent = recognise(find_last_user_text(body["messages"]), ()) if kind == "memory" else Intent(kind, kind)  # type: ignore[arg-type]
    exchange = new_exchange(id="r", body=body, caller=caller, chain="c", intent=intent, notes=("before",), **facts)
    await (await stage(exchange, call_next)).stream(tell)
    assert seen[0].notes[0] == "before"
    return seen[0].notes[1:], answer


async def test_remember_request_is_stored_and_confirmed(host: FakeHost) -> None:
    """The sentence, whose it is, when; and the model is told so."""
    (note,) = await say("Please remember that my name is Bob. And what is 2+2?", host)
    (memory,) = (await host.store.list_memories(tenant="home", owner="key:ann", before=None, limit=9)).memories
    assert (memory.tenant, memory.owner, memory.conversation) == ("home", "key:ann", None)
    assert (memory.text, memory.created_s) == ("my name is Bob", 1000.0)
    assert "'my name is Bob'" in note and "Confirm" in note


async def test_next_request_contains_the_stored_memory(host: FakeHost) -> None:
    """As one block of notes, without being asked."""
    await say("记住我叫张三", host)
    assert await say("你好", host, kind="normal") == ("What you remember about this user:\n- 我叫张三",)


NOTHING = "You remember nothing about this user yet."


async def test_memories_belong_to_the_end_user(host: FakeHost) -> None:
    """Whichever key of the tenant brings them; where nobody is named, to the key, even if it is called like a user."""
    await say("remember my PIN is 7", host, user="ann")
    for whose in ({"user": "bob"}, {}, {"caller": BEN}, {"user": "ann", "caller": Caller("ann", "other", frozenset())}):
        assert await say("what do you remember", host, **whose) == (NOTHING,)
    assert "my PIN is 7" in (await say("what do you remember", host, user="ann", caller=BEN))[0]
    await say("remember my PIN is 8", host)
    assert (await kept(host, "user:ann"), await kept(host)) == (["my PIN is 7"], ["my PIN is 8"])


async def test_user_memories_apply_to_all_conversations(host: FakeHost) -> None:
    """A user has many; a key's conversation may be another user's."""
    await say("remember I like tea", host, user="ann", conversation="c1")
    assert "tea" in (await say("hello", host, user="ann", conversation="c2", kind="normal"))[0]
    assert "tea" in (await say("hello", host, user="ann", kind="normal"))[0]


async def test_conversation_memories_stay_in_their_conversation(host: FakeHost) -> None:
    """Those without one hold in all."""
    await say("remember I like tea", host)
    await say("remember we speak French", host, conversation="c1")
    assert len(await kept(host)) == 2
    assert "French" in (await say("hello", host, conversation="c1", kind="normal"))[0]
    assert "French" not in (await say("hello", host, conversation="c2", kind="normal"))[0]


async def test_forget_request_deletes_only_the_best_match(host: FakeHost) -> None:
    """And says which one it was; the rest is still known."""
    for text in ("my name is Bob", "my dog's name is Rex", "I like tea"):
        await say(f"remember that {text}", host)
    notes = await say("forget my name", host)
    assert await kept(host) == ["my dog's name is Rex", "I like tea"]
    assert notes[0].startswith("These memories were deleted") and notes[0].endswith("\n- my name is Bob")
    assert "Bob" not in notes[1] and "Rex" in notes[1]


@pytest.mark.parametrize("text", ["forget my password", "忘记我的生日", "forget that", "forget the"])
async def test_forgetting_without_a_match_deletes_nothing(text: str, host: FakeHost) -> None:
    """The model is told that nothing matched."""
    await say("remember my name is Bob", host)
    notes = await say(text, host)
    assert len(await kept(host)) == 1
    assert "no memory matches" in notes[0]


@pytest.mark.parametrize("text", ["forget everything", "忘掉所有", "delete all memories"])
async def test_forget_all_deletes_the_memories_of_the_caller(text: str, host: FakeHost) -> None:
    """Of this caller."""
    await say("remember I like tea", host)
    await say("remember I like tea", host, caller=BEN)
    await say(text, host)
    assert (await kept(host), await kept(host, "key:ben")) == ([], ["I like tea"])


async def test_memory_question_recalls_more_than_other_requests(host: FakeHost) -> None:
    """More than other requests get; the newest first where nothing is more like the question."""
    for i in range(5):
        await say(f"remember: thing number {i}", host)
    config = Config(max_recalled=2)
    assert len((await say("你记得什么", host, config=config))[0].splitlines()) == 6
    assert (await say("x", host, config=config, kind="normal"))[0].splitlines()[1:] == [
        "- thing number 4",
        "- thing number 3",
    ]


async def test_repeated_sentence_is_remembered_once(host: FakeHost) -> None:
    """Said twice, or in the rounds of tools that follow a message."""
    await say("remember I like tea", host)
    notes = await say("remember I like tea", host)
    await say("remember I like milk", host, after=[{"role": "assistant", "content": "x"}, {"role": "tool"}])
    assert len(await kept(host)) == 1
    assert "already" in notes[0]


async def test_number_and_length_of_memories_are_bounded(host: FakeHost) -> None:
    """In number and in length, and the model is told of the cut."""
    config = Config(max_memories=2, max_chars=10)
    for i in range(4):
        notes = await say(f"remember: {i}{'x' * 50}", host, config=config)
    assert await kept(host) == ["2xxxxxxxxx", "3xxxxxxxxx"]
    assert "cut off after 10 characters" in notes[0]


async def test_recalled_memory_note_is_bounded_in_length(host: FakeHost) -> None:
    """However long memories are, the block is not."""
    for i in range(8):
        await say(f"remember: {i}{'x' * 1000}", host)
    (note,) = await say("hello", host, kind="normal", config=Config(max_note_chars=2500))
    assert 2000 < len(note) <= 2500


@pytest.mark.parametrize(
    "text", ["", "remember", "remember: \ud800\x00\x1b[0m", "forget \ud800", "ﷺ" * 300, None, [{"type": "text"}], 7]
)
async def test_malformed_text_is_stored_as_printable_utf_8(text: Any, host: FakeHost) -> None:
    """And what is stored can be written as UTF-8, on one line."""
    await say(text, host)
    assert all(text.encode() and text.isprintable() for text in await kept(host))


@pytest.mark.parametrize("kind", ["normal", "mcp", "hitl"])
async def test_other_intents_store_no_memory(kind: str, host: FakeHost) -> None:
    """The intent stage decides."""
    assert await say("remember I like tea", host, kind=kind) == ()
    assert await kept(host) == []


async def test_store_failure_is_raised_to_the_chain(host: FakeHost) -> None:
    """`on_error` of the stage decides what becomes of the request."""
    await host.store.close()
    with pytest.raises(StoreError):
        await say("hello", host, kind="normal")


# What the client is told.


async def test_answer_reports_kept_and_forgotten_memories_to_the_client(host: FakeHost) -> None:
    """At the end of the answer, with ids; as an event in front of it for whoever wants events."""
    kept, event = await told("remember I like tea", host), await told("remember I have a cat", host, events=True)
    ((_, first), (_, second)) = await entries(host)
    assert kept == ["ok", {"choices": [], "context": {"memory": {"kept": [first]}}}]
    assert first["text"] == "I like tea" and first["id"].startswith("mem_")
    assert event[0] == {"choices": [], "context": {"type": "memory.kept", "kept": [second]}} and event[1:2] == ["ok"]
    assert context(await told("remember I like tea", host)) == {"memory": {"kept": []}}
    assert context(await told("forget my tea", host)) == {"memory": {"forgotten": [first], "count": 1}}
    assert context(await told("forget my tea", host)) == {"memory": {"forgotten": [], "count": 0}}
    assert await told("what do you remember", host) == await told("hello", host, kind="normal") == ["ok"]


async def entries(host: FakeHost) -> list[tuple[str, Json]]:
    page = await host.store.list_memories(tenant="home", owner="key:ann", before=None, limit=9)
    return [(memory.id, {"id": memory.id, "text": memory.text}) for memory in reversed(page.memories)]


def context(answer: Sequence[Chunk]) -> Json:
    last = answer[-1]
    assert isinstance(last, dict)
    found: Json = last["context"]
    return found


# What is meant.


def recalled(*texts: tuple[str, float]) -> list[RecalledMemory]:
    return [
        RecalledMemory(Memory(f"mem_{i}", "t", "c", None, text, float(i)), share)
        for i, (text, share) in enumerate(texts)
    ]


def test_selection_prefers_the_shortest_memories_matching_the_phrase() -> None:
    """Equals go together; what has less than half of it is not meant."""
    known = recalled(("a blue car", 1.0), ("the blue car", 1.0), ("a blue car and a boat", 1.0), ("a red car", 0.4))
    assert [memory.id for memory in select_memories(known, "the blue car", every=False)] == ["mem_0", "mem_1"]
    assert [memory.id for memory in select_memories(known, "the blue car", every=True)] == ["mem_0", "mem_1", "mem_2"]
    assert select_memories(known[-1:], "the blue car", every=True) == select_memories([], "", every=False) == []
    assert [memory.id for memory in select_memories(recalled(("a", 0.6)), "x", every=True)] == ["mem_0"]


@pytest.mark.parametrize("n_dogs", [3, 450])
async def test_forget_about_a_subject_deletes_all_its_memories(n_dogs: int, host: FakeHost) -> None:
    """However much it is; the rest stays, and the answer counts."""
    config = Config(max_memories=1000)
    await say("remember I like tea", host)
    for i in range(n_dogs):
        memory = Memory(f"m{i}", "home", "key:ann", None, f"my dog ate shoe {i}", 1.0)
        await host.store.remember(memory, limit=1000)
    gone = context(await told("forget what you know about my dog", host, config=config))["memory"]
    assert (gone["count"], len(gone["forgotten"])) == (n_dogs, min(n_dogs, 20))
    assert await kept(host) == ["I like tea"]


def test_memory_block_has_one_line_per_memory() -> None:
    """Memories cannot add lines of their own."""
    assert write_block([recalled(("a\n- b", 1.0))[0].memory], max_chars=200, head="H:") == "H:\n- a - b"


def test_memory_ids_have_130_random_bits() -> None:
    """`mem_` and 26 characters of base32."""
    assert re.fullmatch(r"mem_[a-z2-7]{26}", generate_memory_id())
    assert generate_memory_id() != generate_memory_id()


async def test_dry_run_returns_the_notes_and_changes_nothing() -> None:
    """`gateway explain`: the notes of the real request, and the memories as they were."""
    async with FakeHost() as host:
        for text in (
            "Remember that I like tea.",
            "Remember that my cat is Tom.",
            "Forget that I like tea.",
            "Forget all",
        ):
            before = await kept(host)
            notes, answer = await through(text, host, dry=True)
            assert (await kept(host), answer) == (before, ["ok"])
            assert await say(text, host) == notes
        assert await kept(host) == []
