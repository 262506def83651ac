"""A host for the prompt enhancer, and what its tests send through it."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from xml.etree import ElementTree

from gateway.contracts.caller import Caller
from gateway.contracts.exchange import Exchange, Reply
from gateway.contracts.store import Json
from gateway.contracts.tools import ToolSpec
from gateway.plugins.stages.prompt_enhancer import PLUGIN, Config, PromptEnhancer
from gateway.testing.clock import ManualClock
from tests.telling import reply_of

QUESTION: Json = {"role": "user", "content": "Hello?"}


def tool(name: str, description: str = "Does it.", **facts: object) -> ToolSpec:
    parameters = {"type": "object", "properties": {"path": {"type": "string", "description": f"Path for {name}"}}}
    return ToolSpec(**{"name": name, "description": description, "parameters": parameters, **facts})


@dataclass
class Registry:
    """`host.tools`; `asked` counts how often the tools were."""

    specs: list[ToolSpec] = field(default_factory=lambda: [tool("read_file", category="files"), tool("now")])
    version: str = "1"
    asked: int = 0

    def offered(self, exchange: Exchange) -> Sequence[ToolSpec]:
        self.asked += 1
        return [spec for spec in self.specs if not exchange.only_tools or spec.name in exchange.only_tools]

    def services(self) -> Sequence[object]:
        return ()


@dataclass
class Texts:
    """`host.prompts`; a reader waits for `gate`."""

    kept: dict[str, str] = field(default_factory=lambda: {"default": "You help.", "other": "You joke."})
    version: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def text(self, prompt_id: str, *, tenant: str) -> str | None:
        await self.gate.wait()
        return self.kept.get(prompt_id)


class Tallies:
    """`host.counters`."""

    def __init__(self) -> None:
        self.counted: Counter[tuple[str, ...]] = Counter()
        self.observed: list[tuple[str, float]] = []

    def count(self, name: str, **labels: str) -> None:
        self.counted[(name, *labels.values())] += 1

    def observe(self, name: str, value: float, **labels: str) -> None:
        self.observed.append((name, value))


class Clock:
    def __init__(self) -> None:
        self.hand = ManualClock(1000.0)

    def monotonic(self) -> float:
        return self.hand()

    def time(self) -> float:
        return self.hand()


class Host:
    def __init__(self) -> None:
        self.tools, self.prompts, self.counters, self.clock = Registry(), Texts(), Tallies(), Clock()
        self.prompts.gate.set()

    @property
    def store(self) -> object:
        raise AssertionError("the enhancer needs no store")


def stage(host: Host, **options: object) -> PromptEnhancer:
    return PLUGIN.build(Config(**options), host)


def exchange(*messages: Json, prompt: str | None = "default", body: Json | None = None, **facts: object) -> Exchange:
    caller = Caller("tester", "local", frozenset({"context"}))
    request = {"model": "m", "messages": list(messages) or [QUESTION], **(body or {})}
    return Exchange(id="x", body=request, caller=caller, chain="assistant", prompt=prompt, **facts)


async def sent(enhancer: PromptEnhancer, request: Exchange) -> Exchange:
    """What the next stage gets."""
    seen: list[Exchange] = []

    reply = reply_of()

    async def call_next(changed: Exchange) -> Reply:
        seen.append(changed)
        return reply

    assert await enhancer(request, call_next) is reply
    return seen[0]


async def system(enhancer: PromptEnhancer, request: Exchange) -> str:
    """The text of the one system message that goes out."""
    messages = (await sent(enhancer, request)).body["messages"]
    assert [message["role"] for message in messages].count("system") == 1
    assert messages[0]["role"] == "system"
    return messages[0]["content"]


def names_in(text: str) -> list[str]:
    """The tools in a prompt, which must be whole elements."""
    begin, end = text.find("<tools"), text.rfind("</tools>")
    if begin < 0:
        assert "<tool>" not in text
        return []
    tree = ElementTree.fromstring(f"<all>{text[begin:end]}</tools></all>")
    return [name.text for name in tree.iter("name")]
