"""The memory stage as conversations with it: what is stored, found again, forgotten, and told to the model."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from gateway.caller import Caller
from gateway.contracts import Exchange, Intent, Reply
from gateway.store import Memory, StoreError
from plugins.stages.memory import PLUGIN, Config, block, most_alike, new_memory_id, rank, tokens

ANN = Caller("ann", "home", frozenset())
BEN = Caller("ben", "home", frozenset())


@dataclass
class FakeStore:
    """Keeps memories in a list, as contracts.Store says."""

    kept: list[Memory] = field(default_factory=list)
    broken: bool = False

    async def remember(self, memory: Memory, *, limit: int) -> None:
        self.kept.append(memory)
        own = [m for m in self.kept if (m.tenant, m.caller) == (memory.tenant, memory.caller)]
        for old in own[:-limit]:
            self.kept.remove(old)

    async def memories(self, *, tenant: str, caller: str, conversation: str | None) -> Sequence[Memory]:
        if self.broken:
            raise StoreError("disk full")
        return [
            m for m in self.kept if (m.tenant, m.caller) == (tenant, caller) and m.conversation in (None, conversation)
        ]

    async def forget(self, memory_ids: Sequence[str], *, tenant: str, caller: str) -> int:
        gone = [m for m in self.kept if m.id in memory_ids and (m.tenant, m.caller) == (tenant, caller)]
        self.kept = [m for m in self.kept if m not in gone]
        return len(gone)


@dataclass
class FakeHost:
    """A store, and a clock that stands at 1000."""

    store: FakeStore = field(default_factory=FakeStore)

    @property
    def clock(self) -> "FakeHost":
        return self

    def time(self) -> float:
        return 1000.0


async def say(
    text: Any,
    host: FakeHost,
    *,
    caller: Caller = ANN,
    conversation: str | None = None,
    kind: str = "memory",
    config: Config | None = None,
    after: Sequence[Any] = (),
    dry: bool = False,
) -> tuple[str, ...]:
    """The notes that the model gets on this message."""
    seen: list[Exchange] = []

    async def call_next(exchange: Exchange) -> Reply:
        seen.append(exchange)
        return None  # type: ignore[return-value]

    stage = PLUGIN.build(config or Config(), host)  # type: ignore[arg-type]
    body = {"messages": [{"role": "user", "content": text}, *after]}
    intent = Intent(kind, kind)  # type: ignore[arg-type]
    exchange = Exchange(
        id="r",
        body=body,
        caller=caller,
        chain="c",
        conversation=conversation,
        intent=intent,
        notes=("before",),
        dry=dry,
    )
    await stage(exchange, call_next)
    assert seen[0].notes[0] == "before"
    return seen[0].notes[1:]


async def test_what_is_to_be_remembered_is_stored_and_confirmed() -> None:
    """The sentence, whose it is, when; and the model is told so."""
    host = FakeHost()
    (note,) = await say("Please remember that my name is Bob. And what is 2+2?", host)
    (memory,) = host.store.kept
    assert (memory.tenant, memory.caller, memory.conversation) == ("home", "ann", None)
    assert (memory.text, memory.created_s) == ("my name is Bob", 1000.0)
    assert "'my name is Bob'" in note and "Confirm" in note


async def test_the_next_request_knows_it() -> None:
    """As one block of notes, without being asked."""
    host = FakeHost()
    await say("记住我叫张三", host)
    assert await say("你好", host, kind="normal") == ("What you remember about this user:\n- 我叫张三",)


async def test_memories_belong_to_a_caller() -> None:
    """Of the same tenant, too."""
    host = FakeHost()
    await say("remember I like tea", host)
    assert await say("what do you remember", host, caller=BEN) == ("You remember nothing about this user yet.",)


async def test_memories_of_a_conversation_stay_in_it() -> None:
    """Those without one hold in all."""
    host = FakeHost()
    await say("remember I like tea", host)
    await say("remember we speak French", host, conversation="c1")
    assert len(host.store.kept) == 2
    assert "French" in (await say("hello", host, conversation="c1", kind="normal"))[0]
    assert "French" not in (await say("hello", host, conversation="c2", kind="normal"))[0]


async def test_forgetting_takes_the_best_match_only() -> None:
    """And says which one it was; the rest is still known."""
    host = FakeHost()
    for text in ("my name is Bob", "my dog's name is Rex", "I like tea"):
        await say(f"remember {text}", host)
    notes = await say("forget my name", host)
    assert [memory.text for memory in host.store.kept] == ["my dog's name is Rex", "I like tea"]
    assert notes[0].startswith("These memories were deleted") and notes[0].endswith("\n- my name is Bob")
    assert "Bob" not in notes[1] and "Rex" in notes[1]


@pytest.mark.parametrize("text", ["forget my password", "忘记我的生日", "forget that", "forget the"])
async def test_forgetting_what_is_not_there_deletes_nothing(text: str) -> None:
    """The model is told that nothing matched."""
    host = FakeHost()
    await say("remember my name is Bob", host)
    notes = await say(text, host)
    assert len(host.store.kept) == 1
    assert "no memory matches" in notes[0]


@pytest.mark.parametrize("text", ["forget everything", "忘掉所有", "delete all memories"])
async def test_everything_can_be_forgotten(text: str) -> None:
    """Of this caller."""
    host = FakeHost()
    await say("remember I like tea", host)
    await say("remember I like tea", host, caller=BEN)
    await say(text, host)
    assert [memory.caller for memory in host.store.kept] == ["ben"]


async def test_all_is_told_when_asked_for() -> None:
    """More than other requests get; the newest first where nothing is more like the question."""
    host = FakeHost()
    for i in range(5):
        await say(f"remember thing number {i}", host)
    config = Config(max_recalled=2)
    assert len((await say("你记得什么", host, config=config))[0].splitlines()) == 6
    assert (await say("x", host, config=config, kind="normal"))[0].splitlines()[1:] == [
        "- thing number 4",
        "- thing number 3",
    ]


async def test_the_same_sentence_is_stored_once() -> None:
    """Said twice, or in the rounds of tools that follow a message."""
    host = FakeHost()
    await say("remember I like tea", host)
    notes = await say("remember I like tea", host)
    await say("remember I like milk", host, after=[{"role": "assistant", "content": "x"}, {"role": "tool"}])
    assert len(host.store.kept) == 1
    assert "already" in notes[0]


async def test_what_is_kept_is_bounded() -> None:
    """In number and in length, and the model is told of the cut."""
    host = FakeHost()
    config = Config(max_memories=2, max_chars=10)
    for i in range(4):
        notes = await say(f"remember {i}{'x' * 50}", host, config=config)
    assert [memory.text for memory in host.store.kept] == ["2xxxxxxxxx", "3xxxxxxxxx"]
    assert "cut off after 10 characters" in notes[0]


async def test_what_is_told_is_bounded() -> None:
    """However long memories are, the block is not."""
    host = FakeHost()
    for i in range(8):
        await say(f"remember {i}{'x' * 1000}", host)
    (note,) = await say("hello", host, kind="normal", config=Config(max_note_chars=2500))
    assert 2000 < len(note) <= 2500


@pytest.mark.parametrize(
    "text", ["", "remember", "remember \ud800\x00\x1b[0m", "forget \ud800", "ﷺ" * 300, None, [{"type": "text"}], 7]
)
async def test_odd_text_is_no_error(text: Any) -> None:
    """And what is stored can be written as UTF-8, on one line."""
    host = FakeHost()
    await say(text, host)
    assert all(memory.text.encode() and memory.text.isprintable() for memory in host.store.kept)


@pytest.mark.parametrize("kind", ["normal", "mcp", "hitl"])
async def test_other_intents_change_nothing(kind: str) -> None:
    """The intent stage decides."""
    host = FakeHost()
    assert await say("remember I like tea", host, kind=kind) == ()
    assert host.store.kept == []


async def test_a_failing_store_is_the_chains_matter() -> None:
    """`on_error` of the stage decides what becomes of the request."""
    with pytest.raises(StoreError):
        await say("hello", FakeHost(FakeStore(broken=True)), kind="normal")


# Ranking.


def memories(*texts: str) -> list[Memory]:
    return [Memory(f"mem_{i}", "t", "c", None, text, float(i)) for i, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("My Cats, the glass!", {"cat", "glass"}),
        ("我喜欢茶", {"我喜", "喜欢", "欢茶"}),
        ("茶 ＴＥＡ", {"茶", "tea"}),
        ("the of 的", set()),
        ("用python写", {"用", "python", "写"}),
    ],
)
def test_tokens(text: str, found: set[str]) -> None:
    """Words, and pairs of characters of CJK, without what says nothing."""
    assert tokens(text) == found


def test_rare_words_rank_higher() -> None:
    """A word that most memories have tells little; of equals, the newest is first."""
    known = memories("likes tea from China", "likes tea and Rome", "likes tea", "likes tea")
    assert [memory.id for memory in rank(known, "tea in Rome", limit=3)] == ["mem_1", "mem_3", "mem_2"]


def test_ranking_finds_chinese() -> None:
    """By pairs of characters."""
    known = memories("我住在北京", "我喜欢喝茶", "我有一只猫")
    assert rank(known, "北京天气", limit=1)[0].id == "mem_0"
    assert [memory.id for memory in most_alike(known, "喝茶")] == ["mem_1"]


def test_most_alike_wants_half_of_what_is_named() -> None:
    """Equals go together, and nothing at all matches nothing."""
    known = memories("blue car", "blue car", "red car")
    assert [memory.id for memory in most_alike(known, "the blue car")] == ["mem_0", "mem_1"]
    assert most_alike(known, "green boat with car wheels") == []
    assert most_alike([], "x") == [] and most_alike(known, "") == []


def test_a_block_is_one_line_each() -> None:
    """Memories cannot add lines of their own."""
    assert block(memories("a\n- b"), max_chars=200, head="H:") == "H:\n- a - b"


def test_ids_are_of_130_random_bits() -> None:
    """`mem_` and 26 characters of base32."""
    assert re.fullmatch(r"mem_[a-z2-7]{26}", new_memory_id())
    assert new_memory_id() != new_memory_id()


async def test_a_dry_run_says_the_same_and_changes_nothing() -> None:
    """`gateway explain`: the notes of the real request, and the memories as they were."""
    dry, wet = FakeHost(), FakeHost()
    for text in ("Remember that I like tea.", "Remember that my cat is Tom.", "Forget that I like tea."):
        notes = await say(text, dry, dry=True)
        assert dry.store.kept == [*wet.store.kept]
        assert await say(text, wet) == notes
        dry.store.kept = [*wet.store.kept]
    assert [memory.text for memory in wet.store.kept] == ["my cat is Tom"]
