"""The scenarios of requirement "prompt enhancement"; each test is named after its scenario."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from functional.through import REQUEST_MAY_DIFFER, ask, post

from gateway.testing.messages import describe_differences

from .models import calls, says
from .talking import desk, stages, talking

ENHANCED = "/v1/system-prompts/default/enhanced"
BASE = "You are a helpful assistant."
CLINE = {
    "model": "m",
    "messages": [{"role": "system", "content": "You are Cline."}, {"role": "user", "content": "Hi"}],
    "stream": True,
}


def named(prompt: str) -> list[str]:
    """The tools in a prompt, which must be whole elements."""
    begin, end = prompt.find("<tools"), prompt.rfind("</tools>")
    if begin < 0:
        return []
    tree = ElementTree.fromstring(f"<all>{prompt[begin:end]}</tools></all>")
    return [name.text or "" for name in tree.iter("name")]


async def test_detect_passthrough_vs_context_based_request(tmp_path: Path) -> None:
    """The path decides, on one gateway: the client's own prompt in one lane, the enhanced one in the other."""
    async with talking(says("a"), says("b"), tools=desk(tmp_path)) as world:
        async with world.session.post("/v1/chat/completions", json=CLINE) as response:
            await response.read()
        async with world.session.post("/context/chat/completions", json=CLINE) as response:
            await response.read()
        plain, enhanced = world.model.prompts
        assert plain == "You are Cline."
        assert enhanced.endswith("\n\nYou are Cline.") and named(enhanced) != []


async def test_passthrough_mode_preserves_original_prompt(tmp_path: Path) -> None:
    """Byte for byte: no tools, no diagrams, no system message; the answer comes as the model gave it."""
    body = b'{ "model":"m","messages" : [{"role":"user","content":"use the git tool \\u00e9"}], "stream":true }'
    async with talking(says("{", '"tool"'), tools=desk(tmp_path), enhancer={"mermaid": True}) as world:
        async with world.session.post("/v1/chat/completions", data=body) as response:
            answered = await response.read()
        (request,) = world.model.upstream.requests
        assert request.payload == body
        assert b'"id": "chatcmpl-upstream"' in answered and answered.count(b"[DONE]") == 1
        assert not any(name.lower().startswith("x-context") for name in response.headers)


async def test_context_mode_uses_enhanced_prompt(tmp_path: Path) -> None:
    """All tools as structured text, the convention for calls, and a loop that runs them."""
    asked = calls("file_operations", operation="read", path="notes.txt")
    async with talking(asked, says("Done."), tools=desk(tmp_path)) as world:
        assert (await world.chat("Where is the safe?")).text == "Done."
        prompt = world.model.prompts[0]
        assert named(prompt) == ["file_operations", "execute_sql", "read_result"]
        assert "output ONLY a JSON object in this exact format" in prompt
        assert world.model.prompts[1] == prompt


async def test_enhanced_prompt_endpoint(tmp_path: Path) -> None:
    """Exactly what a request would send, with headers for caches."""
    async with talking(says("Hi."), tools=desk(tmp_path), enhancer={"mermaid": True}) as world:
        shown = await world.get(ENHANCED)
        await world.chat()
        assert (shown.status, shown.json["id"]) == (200, "default")
        assert shown.json["text"] == world.model.prompts[0]
        private, age = shown.headers["Cache-Control"].split(", ")
        assert private == "private" and 0 < int(age.removeprefix("max-age=")) <= 300
        again = await world.get(ENHANCED, **{"If-None-Match": shown.headers["ETag"]})
        assert (again.status, again.json) == (304, None)
        missing = await world.get("/v1/system-prompts/nobody/enhanced")
        assert (missing.status, missing.error["code"]) == (404, "prompt_not_found")


async def test_tool_definition_format_in_prompt(tmp_path: Path) -> None:
    """`<tool>` with `<name>`, `<description>`, `<parameters>` of `<parameter>` tags; the convention stands above."""
    async with talking(tools=desk(tmp_path)) as world:
        text = (await world.get(ENHANCED)).json["text"]
        begin, end = text.index("<tools"), text.rindex("</tools>") + len("</tools>")
        for tool in ElementTree.fromstring(f"<all>{text[begin:end]}</all>").iter("tool"):
            assert [child.tag for child in tool] == ["name", "description", "parameters"]
            assert {child.tag for child in tool.iter("parameters") for child in child} == {"parameter"}
        assert text.index('"terminate": false') < begin


async def test_convert_tool_definition_to_prompt_text(tmp_path: Path) -> None:
    """Each parameter with name, type, whether it is required, and its description."""
    async with talking(tools=desk(tmp_path)) as world:
        text = (await world.get(ENHANCED)).json["text"]
        assert (
            '    <parameter name="path" type="string" required="true">'
            "A relative path such as 'notes/today.txt'; '.' is the folder.</parameter>\n" in text
        )


async def test_include_tool_calling_instructions(tmp_path: Path) -> None:
    """The JSON format, what `terminate` does, and an example; nothing of it where there are no tools."""
    async with talking(tools=desk(tmp_path)) as world:
        text = (await world.get(ENHANCED)).json["text"]
        assert '{"tool": "get_weather", "parameters": {"city": "Paris"}, "terminate": false}' in text
        assert 'Set "terminate" to true if' in text and 'Set "terminate" to false if' in text
        await world.gateway.reload({"upstreams": [], "store": "sqlite:///:memory:"})
        assert (await world.get(ENHANCED)).json["text"] == BASE


async def test_service_integrates_with_tool_registry(tmp_path: Path) -> None:
    """The tools of the configuration, behind the base prompt; a request can narrow them."""
    async with talking(says("a"), says("b"), tools=desk(tmp_path)) as world:
        await world.chat()
        await world.chat(headers={"X-Context-Tools": "execute_*"})
        every, narrowed = world.model.prompts
        assert every.startswith(f"{BASE}\n\n")
        assert named(every) == ["file_operations", "execute_sql", "read_result"]
        assert named(narrowed) == ["execute_sql"]


TOGGLES = {"tools": "# Tools", "mermaid": "```mermaid", "custom_context": "We sell pets."}


@pytest.mark.parametrize("off", [None, *TOGGLES])
async def test_service_supports_multiple_enhancement_types(tmp_path: Path, off: str | None) -> None:
    """Tools, diagrams, configured context: each can be switched off, and the order is always the same."""
    on = {"tools": True, "mermaid": True, "custom_context": "We sell pets."}
    enhancer = {**on, **({off: None if off == "custom_context" else False} if off else {})}
    async with talking(says("Hi."), tools=desk(tmp_path), enhancer=enhancer) as world:
        await world.chat("Remember that I like cats.")
        (prompt,) = world.model.prompts
        marks = [BASE, *(mark for name, mark in TOGGLES.items() if name != off), "I like cats"]
        places = [prompt.find(mark) for mark in marks]
        assert -1 not in places and places == sorted(places)
        if off is not None:
            assert TOGGLES[off] not in prompt


@pytest.mark.parametrize(
    ("question", "kept"),
    [
        ("Which SQL statement counts the rows of the database?", "execute_sql"),
        ("What stands in the text file notes.txt of the folder?", "file_operations"),
    ],
)
async def test_prompt_size_optimization(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, question: str, kept: str
) -> None:
    """Too large: the tool that the user speaks of stays, others are left out, and a warning names them."""
    async with talking(says("Hi."), tools=desk(tmp_path), enhancer={"max_tokens": 440}) as world:
        await world.chat(question)
        (prompt,) = world.model.prompts
        assert "output ONLY a JSON object" in prompt
        assert named(prompt) == [kept]
        assert -(-len(prompt.encode()) // 4) <= 440
        (warning,) = [r.getMessage() for r in caplog.records if "larger than max_tokens" in r.getMessage()]
        _, _, left_out = warning.partition("left out ")
        assert all(f"'{name}'" in left_out for name in {"file_operations", "execute_sql", "read_result"} - {kept})
        assert await world.counted("gateway_prompt_truncations_total") == 1


async def test_fetch_enhanced_prompt_for_chat() -> None:
    """A stored prompt, named by its id, goes out enhanced and not as it is; one system message carries the client's."""
    async with talking(says("Arr."), enhancer={"custom_context": "We sell pets."}) as world:
        stored = await world.post({"text": "Talk like a pirate."}, path="/v1/system-prompts/pirate", method="PUT")
        assert stored.status == 200
        said = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
        await world.chat(said, headers={"X-Context-Prompt": "pirate"})
        first, second = world.model.asked[0]["messages"]
        assert first == {"role": "system", "content": "Talk like a pirate.\n\nWe sell pets.\n\nBe brief."}
        assert second == said[1]


async def test_a_client_with_a_system_message_gets_no_base_prompt() -> None:
    """Unless it names one: two personalities would contradict each other."""
    said = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    async with talking(says("a"), says("b")) as world:
        await world.chat(said)
        await world.chat(said, headers={"X-Context-Prompt": "default"})
        assert world.model.prompts == ["Be brief.", f"{BASE}\n\nBe brief."]


async def test_cache_enhanced_prompts(tmp_path: Path) -> None:
    """The second request hits; changed tools and changed prompts drop what was kept."""
    hits = 'gateway_prompt_cache_requests_total{result="hit"}'
    tools = desk(tmp_path)
    async with talking(says("a"), says("b"), says("c"), says("d"), tools=tools) as world:
        await world.chat()
        assert await world.counted(hits) == 0
        await world.chat()
        assert await world.counted(hits) == 1
        await world.post({"text": "x"}, path="/v1/system-prompts/other", method="PUT")
        await world.chat()
        assert await world.counted(hits) == 1
        assert await world.counted('gateway_prompt_cache_invalidations_total{reason="prompts"}') == 1
        del tools["execute_sql"]
        upstreams = [{"name": "up", "base_url": world.model.upstream.base_url}]
        await world.gateway.reload({"upstreams": upstreams, "store": "sqlite:///:memory:", "tools": tools})
        await world.chat()
        assert named(world.model.prompts[-1]) == ["file_operations", "read_result"]


async def test_cache_has_a_ttl() -> None:
    """What is told to caches in front of us is what is left of it."""
    async with talking(enhancer={"cache_ttl": "1m"}) as world:
        assert int((await world.get(ENHANCED)).headers["Cache-Control"].partition("max-age=")[2]) in (59, 60)


async def test_inject_mermaid_instructions() -> None:
    """When to draw, and the syntax by example."""
    async with talking(says("Hi."), enhancer={"mermaid": True}) as world:
        await world.chat()
        (prompt,) = world.model.prompts
        assert "Use a diagram when" in prompt
        assert "```mermaid\nflowchart TD\n" in prompt and "```mermaid\nsequenceDiagram\n" in prompt


async def test_mermaid_enhancement_is_optional() -> None:
    """Nothing of it unless the configuration says so."""
    async with talking(says("Hi."), enhancer={"mermaid": False}) as world:
        await world.chat()
        assert world.model.prompts == [BASE]


async def test_chain_without_an_enhancer_sends_client_messages_unchanged() -> None:
    """Every stage can be left out."""
    chains = {"plain": [{"use": "agent_loop"}], **stages()}
    async with talking(says("Hi."), chains=chains) as world:
        answer = await world.chat("Hello?", headers={"X-Context-Chain": "plain"})
        assert answer.headers["X-Context-Chain"] == "plain" and "X-Context-Intent" not in answer.headers
        assert world.model.asked[0]["messages"] == [{"role": "user", "content": "Hello?"}]


async def test_passthrough_request_after_a_context_request_is_forwarded_unchanged(tmp_path: Path) -> None:
    """The whole request as it was sent, on a connection that the other lane used before."""
    body = json.dumps(CLINE).encode()
    lines = (b"X-Request-Id: mine", b"accept:  */*", b"Content-Type: application/json")
    request = post(body, b"/v1/chat/completions?x=%zz", *lines)
    async with talking(says("a"), says("b"), tools=desk(tmp_path)) as world:
        await world.chat()
        response = await ask(world.gateway, request.replace(b"gw.example", b"localhost"))
        _, passed = world.model.upstream.requests
        assert len(world.model.upstream.connections) == 1
        assert not describe_differences(request, passed.raw, may_differ=REQUEST_MAY_DIFFER)
        assert response.status == 200 and response.payload.endswith(b"data: [DONE]\n\n")
