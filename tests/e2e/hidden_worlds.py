"""Random worlds of people who talk at once, and what each request of theirs must and may have of hidden work.

A world has three people with three conversations each, over one key. Every call of a gateway's tool contains a token of
its own, so the recorded requests of the model say whose work each of them had. Answers come from a small stock, so that
people get the same ones; some people forge histories of others, and shorten, edit and split their own.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Final

from tests.api.responses.answering import CONVERSATIONS, Client

from .models import Answer, Json, call, native, says

TOKEN: Final = re.compile(r"tok-[0-9]+-x")
QUESTIONS: Final = ("Hello", "Add milk")
TEXTS: Final = ("Done.", "Done.", "It is done now, as you said, and there is nothing else that I could do for you.")
#: What the model calls in one turn before its text: the gateway's tools, or the client's, which ends the turn.
TURNS: Final = ((), (), ("ours",), ("ours",), ("ours", "ours"), ("ours", "theirs"), ("theirs",))
DIALECTS: Final = ("chat", "chat", "replayed", "chain", "conversation")
TOOL: Final[Json] = {"name": "weather", "parameters": {"type": "object"}}
CHAT_TOOLS: Final = [{"type": "function", "function": TOOL}]
TOOLS: Final = [{"type": "function", **TOOL}]
#: The same for everybody, as a server without randomness gives it.
MODELS_ID: Final = "call_0a1b2c3d4e5f6a7b8c9d0e1f"
#: A visible message: role, and its text or b"call"; what the meaning of a conversation consists of.
Seen = tuple[str, str]


@dataclass
class Talk:
    """One conversation of a person. `name` and `user` are those of its headers.

    `sent` are messages or items as its client has them, `seen` what they say. `work` has, for each answer in `seen` by
    its index, the tokens behind it and whether an id leads to them.
    """

    person: str
    number: int
    dialect: str
    user: str | None
    name: str | None
    sent: list[Json] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    work: dict[int, tuple[frozenset[str], bool]] = field(default_factory=dict)
    goes_on: Json = field(default_factory=dict)
    asked_by: str | None = None  # the id of a call of the client's that has no result yet

    @property
    def headers(self) -> dict[str, str]:
        named = {"X-Context-User": self.user, "X-Context-Conversation": self.name}
        return {header: value for header, value in named.items() if value is not None}

    @property
    def scope(self) -> tuple[str | None, str | None] | None:
        """Within which answers are known by meaning; None: nowhere."""
        return None if self.user is None and self.name is None else (self.user, self.name)

    def may_read(self, other: "Talk") -> bool:
        """Whether work of another conversation is the same person's, and of no other named conversation."""
        if self.user is None:
            return self is other if self.name is None else (self.user, self.name) == (other.user, other.name)
        return self.user == other.user and (None in (self.name, other.name) or self.name == other.name)


@dataclass
class Figures:
    """What happened in the worlds.

    `back` are answers whose work was there, `ambiguous` those without theirs, as an equal answer was given twice.
    """

    worlds: int = 0
    requests: int = 0
    forged: int = 0
    back: int = 0
    ambiguous: int = 0


class World:
    """One world."""

    def __init__(self, client: Client, number: int, numbers: Iterator[int], figures: Figures) -> None:
        self._client = client
        self._random = Random(number)
        self._numbers = numbers
        self._figures = figures
        self._owners: dict[str, Talk] = {}
        #: How many turns each answer is of, within its scope.
        self._given: Counter[tuple[object, tuple[Seen, ...]]] = Counter()
        self._talks = [talk for n in range(3) for talk in self._talks_of(f"w{number}p{n}", n)]

    def _talks_of(self, person: str, n: int) -> list[Talk]:
        names = self._random.choice(("both", "both", "user", "user", "conversation", "none"))
        user = person if names in ("both", "user") else None
        talks = []
        for number in range(3):
            name = {"both": f"c{number}", "conversation": f"{person}c{number}"}.get(names)
            talks.append(Talk(person, number, self._random.choice(DIALECTS), user, name))
        return talks

    async def live(self, steps: int) -> None:
        """Take steps in random order: most are honest."""
        for _ in range(steps):
            talk = self._random.choice(self._talks[: self._random.choice((2, 4, 9))])
            if self._random.random() < 0.3 and any(one.seen for one in self._talks):
                await self._forge(talk)
            else:
                await self._go_on(talk, again=self._random.random() < 0.3)
        self._figures.worlds += 1

    # Honest steps.

    async def _go_on(self, talk: Talk, *, again: bool = False) -> None:
        """The next request of a conversation, as its client sends it: all of its own work that has a name is there.

        `again`: in the place of the last one, if that was a question with a plain answer.
        """
        text = self._random.choice(QUESTIONS)
        if again and talk.dialect == "chat" and talk.seen and talk.seen[-1][1] != "call" and talk.seen[-2][0] == "u":
            text = talk.seen[-2][1]
            del talk.work[len(talk.seen) - 1], talk.seen[-2:], talk.sent[-2:]
        if talk.dialect == "conversation" and not talk.goes_on:
            made = await self._client.post({}, CONVERSATIONS, headers=talk.headers or {"X-Context-Mode": "context"})
            talk.goes_on = {"conversation": made.json["id"]}
        new, said = self._next(talk, text)
        expected = self._expected(talk)
        talk.seen.append(said)
        tokens, message = await self._ask(talk, new, seen=talk.seen, expected=expected)
        is_chat = talk.dialect == "chat"
        talk.sent += [*new, *message]
        talk.asked_by = None
        if is_call := (message[-1].get("type") == "function_call" or bool(message[-1].get("tool_calls"))):
            talk.asked_by = message[-1]["tool_calls"][0]["id"] if is_chat else message[-1]["call_id"]
        talk.work[len(talk.seen)] = tokens, is_call or not is_chat
        talk.seen.append(_answered(message))

    def _next(self, talk: Talk, text: str) -> tuple[list[Json], Seen]:
        """What the client adds: a question of its user, or the result of its call."""
        if talk.asked_by is None:
            return [{"role": "user", "content": text}], ("u", text)
        if talk.dialect == "chat":
            return [{"role": "tool", "tool_call_id": talk.asked_by, "content": "Sunny"}], ("t", "Sunny")
        return [{"type": "function_call_output", "call_id": talk.asked_by, "output": "Sunny"}], ("t", "Sunny")

    def _expected(self, talk: Talk) -> set[str]:
        """The tokens that an unchanged history brings back."""
        expected: set[str] = set()
        for index, (tokens, has_id) in talk.work.items():
            n_turns = self._given[talk.scope, tuple(talk.seen[: index + 1])]
            if has_id or (talk.scope is not None and n_turns == 1):
                expected |= tokens
                self._figures.back += bool(tokens)
            elif n_turns > 1:
                self._figures.ambiguous += bool(tokens)
        return expected

    # Forged ones.

    async def _forge(self, talk: Talk) -> None:
        """A request whose history its person wrote: another's, a changed one, a mixture. Nothing goes on from it."""
        self._figures.forged += 1
        other = self._random.choice([one for one in self._talks if one.seen])
        kind, history = self._random.choice(("copied", "pasted", "shortened", "edited", "split", "renamed")), other
        if kind in ("shortened", "edited", "split", "renamed") and talk.seen:
            history = talk
        can_know = history.user is not None or history is talk  # ids of a person who has no name are secret
        messages = _as_chat(history.seen, _ids(history) if can_know and kind != "renamed" else [])
        if kind == "pasted":
            messages = [*_as_chat(talk.seen, _ids(talk)), *messages[-2:]]
        elif kind == "shortened":
            messages = messages[len(messages) // 2 :]
        elif kind == "edited":
            messages[0] = {**messages[0], "content": "Good morning"}
        elif kind == "split":
            messages = [_in_parts(one) for one in messages]
        messages.append({"role": "user", "content": self._random.choice(QUESTIONS)})
        seen = [_answered([one]) if one["role"] == "assistant" else _said(one) for one in messages]
        forger = Talk(talk.person, talk.number, "chat", talk.user, talk.name)
        forger = talk if (talk.user, talk.name) == (None, None) else forger
        await self._ask(forger, messages, seen=seen, is_forged=True)

    # Requests.

    async def _ask(
        self,
        talk: Talk,
        new: list[Json],
        *,
        seen: Sequence[Seen],
        expected: set[str] | None = None,
        is_forged: bool = False,
    ) -> tuple[frozenset[str], list[Json]]:
        """Send a request, and check what its model read. Return the tokens of its turn, and its answer."""
        self._figures.requests += 1
        model, tokens = self._client.world.model, []
        for step in (turn := self._random.choice(TURNS)):
            tokens.append(f"tok-{next(self._numbers)}-x")
            self._owners[tokens[-1]] = talk
            model.then(self._calls(tokens.pop() if step == "theirs" else tokens[-1], step))
        if "theirs" not in turn:
            model.then(says(self._random.choice(TEXTS)))
        model.upstream.requests.clear()
        answer = await self._sent(talk, new, is_forged=is_forged)
        found = [set(TOKEN.findall(json.dumps(body["messages"]))) for body in model.asked]
        foreign = {token for read in found for token in read if not talk.may_read(self._owners[token])}
        assert not foreign, (talk, foreign, {token: self._owners[token] for token in foreign})
        assert expected is None or found[0] == expected, (talk, found[0], expected)
        self._given[talk.scope, (*seen, _answered(answer))] += 1
        return frozenset(tokens), answer

    def _calls(self, token: str, step: str) -> Answer:
        if step == "ours":
            return says(json.dumps(call("file_operations", operation="list", path=token)))
        if self._random.random() < 0.5:
            return says(json.dumps(call("weather", risk_level=None)))
        called = {"id": MODELS_ID, "type": "function", "function": {"name": "weather", "arguments": "{}"}}
        return native().but(pieces=({"tool_calls": [{"index": 0, **called}]},))

    async def _sent(self, talk: Talk, new: list[Json], *, is_forged: bool) -> list[Json]:
        """Send it in the dialect of the conversation, and return the answer as its client keeps it."""
        client, headers = self._client, talk.headers
        if talk.dialect == "chat" or is_forged:
            history = new if is_forged else [*talk.sent, *new]
            chat = await client.world.chat(history, headers=headers, tools=CHAT_TOOLS)
            assert chat.status == 200, chat.json
            return [{name: value for name, value in chat.message.items() if value is not None}]
        items = [*talk.sent, *new] if talk.dialect == "replayed" else new
        store = talk.dialect != "replayed"
        made = await client.create(items, headers=headers, tools=TOOLS, store=store, **talk.goes_on)
        assert made.status == 200, made.json
        if talk.dialect == "chain":
            talk.goes_on = {"previous_response_id": made.json["id"]}
        output: list[Json] = made.json["output"]
        return output


def _answered(message: Sequence[Json]) -> Seen:
    """What an answer says: its call, or its text."""
    last = message[-1]
    if last.get("tool_calls") or last.get("type") == "function_call":
        return "a", "call"
    return "a", _text(last["content"])


def _said(message: Json) -> Seen:
    return ("u" if message["role"] == "user" else "t"), _text(message["content"])


def _text(content: str | list[Json]) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def _ids(talk: Talk) -> list[str]:
    """The ids of the client's calls in a conversation, in their order."""
    ids = [call["id"] for one in talk.sent for call in one.get("tool_calls") or ()]
    return ids + [one["call_id"] for one in talk.sent if one.get("type") == "function_call"]


def _as_chat(seen: Sequence[Seen], ids: Sequence[str]) -> list[Json]:
    """A history as chat messages. Calls have these ids, and others where there are none."""
    messages: list[Json] = []
    left = iter(ids)
    for role, text in seen:
        if role == "u":
            messages.append({"role": "user", "content": text})
        elif role == "t":
            messages.append({"role": "tool", "tool_call_id": messages[-1]["tool_calls"][0]["id"], "content": text})
        elif text == "call":
            function = {"name": "weather", "arguments": "{}"}
            called = {"id": next(left, "call_ffffffffffffffffffffffff0"), "type": "function", "function": function}
            messages.append({"role": "assistant", "content": None, "tool_calls": [called]})
        else:
            messages.append({"role": "assistant", "content": text})
    return messages


def _in_parts(message: Json) -> Json:
    """The same text in two parts."""
    if not isinstance(message["content"], str):
        return message
    half = len(message["content"]) // 2
    parts = (message["content"][:half], message["content"][half:])
    return {**message, "content": [{"type": "text", "text": part} for part in parts]}


async def live_worlds(client: Client, n_worlds: int, *, steps: int) -> Figures:
    """Live through so many worlds, one after the other; no two of them share a person."""
    figures, numbers = Figures(), count()
    for number in range(n_worlds):
        await World(client, number, numbers, figures).live(steps)
    return figures
