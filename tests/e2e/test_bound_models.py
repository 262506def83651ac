"""Keys that are bound to models, or to upstreams, in the context lane: at every door, through aliases, in workflows."""

import hashlib
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.contracts.model_names import MODEL_CHARS
from gateway.model.candidates import FURTHER

from .models import Answer, Json, says
from .talking import CHAT
from .test_model_aliases import BUSY, FAST, Two, two
from .workflow_cases import RUN, SUMMARY, folder_of

RESPONSES = "/context/v1/responses"
HI = [{"role": "user", "content": "Hi"}]
KEY = {"X-Gateway-Key": "secret"}
ONE_REQUEST = {"requests_per_minute": 1}
#: A request at each door, for a model.
DOORS = [
    (CHAT, {"messages": HI}),
    ("/v1/chat/completions", {"messages": HI}),
    (CHAT, {"messages": [{"role": "user", "content": "/summary Pets."}]}),
    (RESPONSES, {"input": "Hi"}),
    (RESPONSES, {"input": "Hi", "background": True}),
    (f"{RESPONSES}/compact", {"input": "Hi"}),
    ("/context/explain", {"messages": HI}),
    (RUN.format("summary"), {"parameters": {"text": "Pets."}}),
]


@asynccontextmanager
async def bound(
    tmp_path: Path, first: Sequence[Answer] = (), second: Sequence[Answer] = (), *, bounds: Json, **settings: Any
) -> AsyncIterator[Two]:
    digest = hashlib.sha256(KEY["X-Gateway-Key"].encode()).hexdigest()
    keys = [{"name": "ci", "sha256": digest, "scopes": ["context"], **bounds}]
    folder = folder_of(tmp_path, SUMMARY)
    async with two(tuple(first), tuple(second), keys=keys, workflows={"folder": str(folder)}, **settings) as made:
        yield made


@pytest.mark.parametrize(("path", "body"), DOORS)
@pytest.mark.parametrize("model", ["big", "fast", "small", "M-1"])
async def test_disallowed_model_is_refused_on_every_route(path: str, body: Json, model: str, tmp_path: Path) -> None:
    """403 that names the field and what there is. An alias is a name like any other, whatever it stands for."""
    async with bound(tmp_path, bounds={"models": ["m-*"]}) as made:
        headers = {**KEY, "X-Context-Mode": "context"}
        answer = await made.world.post({**body, "model": model}, path=path, headers=headers)
        assert (answer.status, answer.error["code"], answer.error["param"]) == (403, "model_not_allowed", "model")
        assert "'m-*'" in answer.error["message"] and made.asked == [[], []]


@pytest.mark.parametrize(("path", "body"), DOORS)
@pytest.mark.parametrize(
    "settings", [{}, {"context": {"model": "fast"}}, {"limits": {"models": {"big*": ONE_REQUEST}}}]
)
async def test_overlong_model_name_is_refused_on_every_route(
    path: str, body: Json, settings: Json, tmp_path: Path
) -> None:
    """No glob is compared with it, no answer repeats it, and no upstream that cuts its blanks off is asked."""
    async with bound(tmp_path, bounds={}, **settings) as made:
        headers = {**KEY, "X-Context-Mode": "context"}
        for long in ("big" * 300_000, "big" + " " * MODEL_CHARS):
            answer = await made.world.post({**body, "model": long}, path=path, headers=headers)
            assert (answer.status, answer.error["code"], answer.error["param"]) == (400, "invalid_field", "model")
            assert re.search(r"\d characters", answer.error["message"]) and long not in answer.error["message"]
        assert made.asked == [[], []]


@pytest.mark.parametrize("name", FURTHER)
async def test_additional_model_fields_are_refused_for_bound_keys(name: str, tmp_path: Path) -> None:
    """Upstreams act on some of them. A key without such a bound may send them, and null is none."""
    async with bound(tmp_path, [says("Hi.")], bounds={"models": ["m-*"]}) as made:
        for path, body in (DOORS[0], DOORS[1], DOORS[3], DOORS[5], DOORS[6]):
            headers = {**KEY, "X-Context-Mode": "context"}
            answer = await made.world.post({**body, "model": "m-1", name: ["big"]}, path=path, headers=headers)
            assert (answer.status, answer.error["param"]) in ((403, name), (400, name))
            assert (answer.status == 403) == (RESPONSES not in path)  # there, fields that nobody knows are refused
        assert made.asked == [[], []]
        answer = await made.world.post({"messages": HI, "model": "m-1", name: None}, headers=KEY)
        assert answer.status == 200
    async with bound(tmp_path, [says("Hi.")], bounds={}) as made:
        answer = await made.world.post({"messages": HI, "model": "big", name: ["big"]}, headers=KEY)
        assert answer.status == 200


@pytest.mark.parametrize(("path", "body"), [door for door in DOORS if "explain" not in door[0]])
async def test_alias_grants_access_to_its_models(path: str, body: Json, tmp_path: Path) -> None:
    """Its models need not be named: they are the operator's words for it."""
    async with bound(tmp_path, [BUSY], [says("Hi.")], bounds={"models": ["fast"]}) as made:
        headers = {**KEY, "X-Context-Mode": "context"}
        answer = await made.world.post({**body, "model": "fast"}, path=path, headers=headers)
        assert answer.status == 200
        if body.get("background"):
            response = answer.json
            while response["status"] in ("queued", "in_progress"):
                response = (await made.world.get(f"{RESPONSES}/{response['id']}", **KEY)).json
        assert made.asked == [["big"], ["small"]]


async def test_key_bounds_apply_to_the_configured_context_model(tmp_path: Path) -> None:
    """Whatever the client names, that one is asked for."""
    async with bound(tmp_path, bounds={"models": ["small"]}, context={"model": "big"}) as made:
        answer = await made.world.post({"model": "small", "messages": HI}, headers=KEY)
        assert (answer.status, answer.error["code"]) == (403, "model_not_allowed")
    async with bound(tmp_path, [says("Hi.")], bounds={"models": ["fast"]}, context={"model": "fast"}) as made:
        assert (await made.world.post({"model": "small", "messages": HI}, headers=KEY)).status == 200


async def test_upstream_bound_key_uses_only_its_models_of_an_alias(tmp_path: Path) -> None:
    """The others are as if they were not there; without any of its own, 403."""
    async with bound(tmp_path, (), [says("Hi."), BUSY], bounds={"upstreams": ["other"]}) as made:
        answer = await made.world.post({"model": "fast", "messages": HI}, headers=KEY)
        assert (answer.status, answer.headers["X-Context-Upstream"]) == (200, "other")
        assert (await made.world.post({"model": "fast", "messages": HI}, headers=KEY)).status == 503
        refused = await made.world.post({"model": "big", "messages": HI}, headers=KEY)
        assert (refused.status, refused.error["code"]) == (403, "upstream_not_allowed")
        assert made.asked == [[], ["small", "small"]]


@pytest.mark.parametrize(
    ("bounds", "listed"),
    [
        ({}, ["fast", "lone", "big", "small"]),
        ({"models": ["fast", "sm*"]}, ["fast", "small"]),
        ({"upstreams": ["other"]}, ["fast", "small"]),
        ({"models": ["nothing"]}, []),
        ({"upstreams": ["up"]}, ["fast", "lone", "big"]),
    ],
)
async def test_merged_model_list_contains_only_permitted_models(
    bounds: Json, listed: list[str], tmp_path: Path
) -> None:
    """And asks no upstream that the key may not use."""
    lists = [Answer(content=b'{"data": [{"id": "%b"}]}' % name) for name in (b"big", b"small")]
    aliases = {**FAST, "lone": {"use": [{"model": "big"}]}}
    settings = {"models": aliases, "context": {"models": "merged"}}
    async with bound(tmp_path, lists[:1], lists[1:], bounds=bounds, **settings) as made:
        answer = await made.world.get("/context/v1/models", **KEY)
        assert [model["id"] for model in answer.json["data"]] == listed
        asked = [bool(model.upstream.requests) for model in (made.world.model, made.other)]
        assert asked == [name in bounds.get("upstreams", ["up", "other"]) for name in ("up", "other")]
