"""The pages for system prompts, asked over HTTP."""

import hashlib
import io
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from prompts_in_memory import PromptsInMemory, Wall

from gateway.api.prompts import BODY_LIMIT_BYTES, PromptPages
from gateway.context.prompts import TEXT_LIMIT_BYTES, BasePrompts
from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.contracts.plugin import EnhancedPrompt

from .answering import errors

ROOT = "/v1/system-prompts"


@dataclass
class Enhancing:
    """An enhancer that says what it is told."""

    prompts: BasePrompts
    max_age_s: float = 12.9
    omitted: tuple[str, ...] = ()

    async def enhance_prompt(self, prompt_id: str, *, tenant: str) -> EnhancedPrompt | None:
        text = await self.prompts.read_text(prompt_id, tenant=tenant)
        if text is None:
            return None
        enhanced = f"{text}\n\n<tool>工具</tool>"
        return EnhancedPrompt(enhanced, self.max_age_s, self.omitted, -(-len(enhanced.encode()) // 4))


@dataclass
class Site:
    """The pages behind a real server. `scopes` are those of whoever asks."""

    client: TestClient
    prompts: BasePrompts
    enhancer: Enhancing | None
    scopes: set[str] = field(default_factory=lambda: {"context", "admin"})


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    prompts = BasePrompts({"default": "You help."}, PromptsInMemory(), clock=Wall())

    def authorise(request: web.Request, scope: str) -> Caller:
        if scope not in made.scopes:
            raise GatewayError("scope_missing", f"This needs the scope {scope!r}.")
        return Caller("tester", "local", frozenset(made.scopes))

    pages = PromptPages(prompts=lambda: made.prompts, enhancer=lambda: made.enhancer, authorise=authorise)
    app = web.Application(middlewares=[errors])
    for method, path, handler in pages.list_routes():
        app.router.add_route(method, path, handler)
    async with TestClient(TestServer(app)) as client:
        made = Site(client, prompts, Enhancing(prompts))
        yield made


async def code_of(response: object) -> tuple[int, str]:
    return response.status, (await response.json())["error"]["code"]


async def test_a_prompt_is_stored_read_listed_and_deleted(site: Site) -> None:
    """The life of a prompt; versions count from 1."""
    stored = await site.client.put(f"{ROOT}/mine", json={"text": "Be 好."})
    assert stored.status == 200
    facts = {"id": "mine", "object": "system_prompt", "source": "stored", "version": 1, "updated_at": 1_700_000_000}
    assert await stored.json() == {**facts, "characters": 5, "text": "Be 好."}
    assert (await (await site.client.put(f"{ROOT}/mine", json={"text": "Be bad."})).json())["version"] == 2
    read = await site.client.get(f"{ROOT}/mine")
    assert await read.json() == {**facts, "version": 2, "characters": 7, "text": "Be bad."}
    listed = await (await site.client.get(ROOT)).json()
    assert listed["object"] == "list"
    assert [(entry["id"], entry["source"]) for entry in listed["data"]] == [
        ("default", "configured"),
        ("mine", "stored"),
    ]
    assert [entry["characters"] for entry in listed["data"]] == [len("You help."), 7]
    assert "text" not in listed["data"][0]
    deleted = await site.client.delete(f"{ROOT}/mine")
    assert (deleted.status, await deleted.json()) == (
        200,
        {"id": "mine", "object": "system_prompt.deleted", "deleted": True},
    )
    assert await code_of(await site.client.get(f"{ROOT}/mine")) == (404, "prompt_not_found")
    assert await code_of(await site.client.delete(f"{ROOT}/mine")) == (404, "prompt_not_found")


async def test_enhanced_prompt_returns_text_and_cache_headers(site: Site) -> None:
    """Base prompt with its enhancements, and headers for caches: a strong ETag, and what is left of the TTL."""
    response = await site.client.get(f"{ROOT}/default/enhanced")
    text = "You help.\n\n<tool>工具</tool>"
    assert response.status == 200
    assert await response.json() == {
        "id": "default",
        "object": "system_prompt.enhanced",
        "text": text,
        "characters": len(text),
        "estimated_tokens": -(-len(text.encode()) // 4),
        "omitted_tools": [],
    }
    assert response.headers["ETag"] == f'"{hashlib.sha256(text.encode()).hexdigest()}"'
    assert response.headers["Cache-Control"] == "private, max-age=12"
    assert response.headers["Vary"] == "Authorization, X-Gateway-Key, X-Api-Key"
    assert response.content_type == "application/json"


@pytest.mark.parametrize("form", ["{0}", "W/{0}", '"other", {0}', "*"])
async def test_an_unchanged_prompt_is_not_sent_again(site: Site, form: str) -> None:
    """304 without a body, with the same headers."""
    tag = (await site.client.get(f"{ROOT}/default/enhanced")).headers["ETag"]
    for ask in (site.client.get, site.client.head):
        response = await ask(f"{ROOT}/default/enhanced", headers={"If-None-Match": form.format(tag)})
        assert (response.status, await response.read(), response.headers["ETag"]) == (304, b"", tag)
        assert response.headers["Cache-Control"] == "private, max-age=12"


async def test_a_changed_prompt_is_sent_again(site: Site) -> None:
    """Another text is another tag, and so are other tools that did not fit."""
    await site.client.put(f"{ROOT}/mine", json={"text": "one"})
    tags = [(await site.client.get(f"{ROOT}/mine/enhanced")).headers["ETag"]]
    await site.client.put(f"{ROOT}/mine", json={"text": "two"})
    response = await site.client.get(f"{ROOT}/mine/enhanced", headers={"If-None-Match": tags[0]})
    assert response.status == 200
    tags.append(response.headers["ETag"])
    assert site.enhancer is not None
    site.enhancer.omitted = ("big",)
    response = await site.client.get(f"{ROOT}/mine/enhanced", headers={"If-None-Match": ", ".join(tags)})
    assert (response.status, (await response.json())["omitted_tools"]) == (200, ["big"])
    assert response.headers["ETag"] not in tags


@pytest.mark.parametrize("path", [ROOT, f"{ROOT}/default", f"{ROOT}/default/enhanced"])
async def test_head_answers_as_get_does(site: Site, path: str) -> None:
    """The same head, and no body."""
    read, asked = await site.client.get(path), await site.client.head(path)
    assert (asked.status, await asked.read()) == (200, b"")
    for name in ("Content-Length", "Content-Type", "ETag", "Cache-Control", "Vary"):
        assert asked.headers.get(name) == read.headers.get(name)


@pytest.mark.parametrize("path", [f"{ROOT}/gone", f"{ROOT}/gone/enhanced", f"{ROOT}/a%2Fb", f"{ROOT}/%00/enhanced"])
async def test_an_unknown_id_is_not_found(site: Site, path: str) -> None:
    """404, whatever the id looks like, also for a client that has something in its cache."""
    assert await code_of(await site.client.get(path, headers={"If-None-Match": "*"})) == (404, "prompt_not_found")
    assert (await site.client.head(path)).status == 404


async def test_enhanced_prompt_page_returns_404_without_an_enhancer(site: Site) -> None:
    """404 that says what to add."""
    site.enhancer = None
    response = await site.client.get(f"{ROOT}/default/enhanced")
    assert response.status == 404
    assert "prompt_enhancer" in (await response.json())["error"]["message"]


async def test_configured_prompt_cannot_be_changed_or_deleted(site: Site) -> None:
    """409 for both changes, and a message that says where it can be changed."""
    for response in (
        await site.client.put(f"{ROOT}/default", json={"text": "x"}),
        await site.client.delete(f"{ROOT}/default"),
    ):
        assert await code_of(response) == (409, "prompt_is_configured")
        assert "'prompts'" in (await response.json())["error"]["message"]
    assert await site.prompts.read_text("default", tenant="local") == "You help."


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid_json"),
        (b"{", "invalid_json"),
        (b'{"text": "\xff"}', "invalid_json"),
        (b'{"text": "\\ud800"}', "invalid_json"),
        (b"[" * 100_000, "invalid_json"),
        (b'{"text": "x", "name": "y"}', "unknown_field"),
        (b'{"txt": "x"}', "unknown_field"),
        (b"{}", "invalid_field"),
        (b"[]", "invalid_field"),
        (b"null", "invalid_field"),
        (b'{"text": null}', "invalid_field"),
        (b'{"text": 5}', "invalid_field"),
        (b'{"text": ""}', "invalid_field"),
    ],
)
async def test_invalid_prompt_body_is_refused_and_not_stored(site: Site, body: bytes, code: str) -> None:
    """400 with a code that says what is wrong; nothing is stored, and nothing of the body comes back."""
    response = await site.client.put(f"{ROOT}/mine", data=body)
    assert await code_of(response) == (400, code)
    assert '{"text": "..."}' in (await response.json())["error"]["message"]
    assert await site.prompts.read_text("mine", tenant="local") is None


@pytest.mark.parametrize("prompt_id", ["a%2Fb", "%20", "x" * 65, "%E4%BD%A0"])
async def test_invalid_prompt_id_is_refused_with_the_naming_rule(site: Site, prompt_id: str) -> None:
    """400, with the rule."""
    response = await site.client.put(f"{ROOT}/{prompt_id}", json={"text": "x"})
    assert await code_of(response) == (400, "invalid_field")
    assert "letters, digits" in (await response.json())["error"]["message"]


async def test_prompt_list_is_paginated(site: Site) -> None:
    """Each reads no more than it shows, of both kinds; the list goes on also where its last entry is gone by then."""
    for number in range(5):
        await site.prompts.store_prompt(f"p{number}", "text", tenant="local")
    await site.prompts.store_prompt("q", "theirs", tenant="rival")
    pages, after = [], ""
    while after is not None:
        answer = await (await site.client.get(f"{ROOT}?limit=2{after and f'&after={after}'}")).json()
        pages.append([prompt["id"] for prompt in answer["data"]])
        after = answer["next"]
        if after == "p0":
            await site.prompts.delete("p0", tenant="local")
    assert pages == [["default", "p0"], ["p1", "p2"], ["p3", "p4"]]
    for wrong in ("limit=0", "limit=201", "limit=x", "after=", "before=p"):
        assert (await site.client.get(f"{ROOT}?{wrong}")).status == 400
    assert (await (await site.client.get(f"{ROOT}?after=%00%ED%A0%80")).json())["next"] is None


async def test_prompt_body_over_the_limit_returns_413(site: Site) -> None:
    """413 for a text that is too long, and for a body too long for any text, announced or not."""
    fits = "\\u0041" * TEXT_LIMIT_BYTES
    stored = await site.client.put(f"{ROOT}/mine", data=io.BytesIO(b'{"text": "%b"}' % fits.encode()))
    assert (stored.status, len((await stored.json())["text"])) == (200, TEXT_LIMIT_BYTES)
    response = await site.client.put(f"{ROOT}/mine", json={"text": "x" * (TEXT_LIMIT_BYTES + 1)})
    assert await code_of(response) == (413, "request_too_large")

    async def pieces() -> AsyncIterator[bytes]:
        yield b'{"text": "'
        for _ in range(BODY_LIMIT_BYTES // 65536 + 1):
            yield b"x" * 65536

    for data in (io.BytesIO(b" " * (BODY_LIMIT_BYTES + 1)), pieces()):
        response = await site.client.put(f"{ROOT}/mine", data=data)
        assert await code_of(response) == (413, "request_too_large")


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("GET", ROOT, "context"),
        ("GET", f"{ROOT}/default", "context"),
        ("GET", f"{ROOT}/default/enhanced", "context"),
        ("PUT", f"{ROOT}/mine", "admin"),
        ("DELETE", f"{ROOT}/mine", "admin"),
    ],
)
async def test_each_prompt_page_requires_its_scope(site: Site, method: str, path: str, scope: str) -> None:
    """Reading needs `context`, changing `admin`; the other one does not help."""
    site.scopes = {"context", "admin", "approve", "passthrough"} - {scope}
    response = await site.client.request(method, path, data=json.dumps({"text": "x"}))
    assert await code_of(response) == (403, "scope_missing")
    assert await site.prompts.read_text("mine", tenant="local") is None
    site.scopes = {scope}
    response = await site.client.request(method, path, data=json.dumps({"text": "x"}))
    assert response.status in (200, 404)
