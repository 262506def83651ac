"""A host for the prompt enhancer, and what its tests send through it."""

from xml.etree import ElementTree

from gateway.contracts.exchange import Exchange, Reply
from gateway.contracts.storage.store import Json
from gateway.contracts.tools import ToolSpec
from gateway.plugins.stages.prompt_enhancer import PLUGIN, Config, PromptEnhancer
from gateway.testing import FakeHost, make_exchange
from tests.exchanges import changed
from tests.scripted_replies import reply_of

QUESTION: Json = {"role": "user", "content": "Hello?"}


def tool(name: str, description: str = "Does it.", **facts: object) -> ToolSpec:
    parameters = {"type": "object", "properties": {"path": {"type": "string", "description": f"Path for {name}"}}}
    return ToolSpec(**{"name": name, "description": description, "parameters": parameters, **facts})


def new_host() -> FakeHost:
    """A host with two tools and two base prompts."""
    return FakeHost(
        tools=[tool("read_file", category="files"), tool("now")],
        prompts={"default": "You help.", "other": "You joke."},
    )


def stage(host: FakeHost, **options: object) -> PromptEnhancer:
    return PLUGIN.build(Config(**options), host)


def exchange(*messages: Json, prompt: str | None = "default", body: Json | None = None, **facts: object) -> Exchange:
    return changed(make_exchange(*messages, body=body, prompt=prompt), **facts)


async def sent(enhancer: PromptEnhancer, request: Exchange) -> Exchange:
    """Return the request that the next stage gets."""
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
