"""The pages of system prompts: list, read, store and delete them, and show one as a model would get it."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from aiohttp import web
from pydantic import Field, ValidationError

from gateway.api.json_body import read_content
from gateway.api.ops_pages import Route, build_readable_routes
from gateway.api.request import Authorise, RequestBody, parse_limit, parse_query
from gateway.api.views import build_json_answer, build_page_answer
from gateway.context.prompts import (
    TEXT_LIMIT_BYTES,
    BasePrompts,
    ConfiguredPromptError,
    ListedPrompt,
    PromptIdError,
    PromptTextError,
)
from gateway.contracts.api_bounds import LIMIT_MOST
from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.contracts.plugin import EnhancedPrompt, Enhancer
from gateway.contracts.views import View, fill_view

PREFIX = "/v1/system-prompts"
#: The headers in which a key may come: the prompt of an id is another one in another tenant.
_KEYS: Final = "Authorization, X-Gateway-Key, X-Api-Key"
#: JSON may spell a byte of text with six characters (`\u0041`); the rest is for the syntax around it.
BODY_LIMIT_BYTES = 6 * TEXT_LIMIT_BYTES + 1024


class PromptBody(RequestBody):
    """The body of PUT."""

    text: str = Field(min_length=1, description="The prompt itself.")


class PromptView(View, frozen=True, kw_only=True):
    """A system prompt. One of the configuration has neither version nor time."""

    id: str
    object: Literal["system_prompt"] = "system_prompt"
    source: Literal["configured", "stored"]
    version: int | None
    updated_at: int | None
    characters: int


class PromptWithTextView(PromptView, frozen=True, kw_only=True):
    """A system prompt with its text."""

    text: str


class EnhancedPromptView(View, frozen=True, kw_only=True):
    """A system prompt as a model gets it. Tools are omitted that do not fit."""

    id: str
    object: Literal["system_prompt.enhanced"] = "system_prompt.enhanced"
    text: str
    characters: int
    estimated_tokens: int | None
    omitted_tools: Sequence[str]


class PromptDeletedView(View, frozen=True, kw_only=True):
    """The id of a deleted system prompt."""

    id: str
    object: Literal["system_prompt.deleted"] = "system_prompt.deleted"
    deleted: Literal[True] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptPages:
    """The pages of one worker. `prompts` and `enhancer` return the objects of the configuration in use."""

    prompts: Callable[[], BasePrompts]
    enhancer: Callable[[], Enhancer | None]
    authorise: Authorise

    def list_routes(self) -> list[Route]:
        """Return (method, path, handler) for `add_route` of aiohttp's router."""
        one = PREFIX + "/{id}"
        return [
            *build_readable_routes(PREFIX, self._list),
            *build_readable_routes(one, self._serve_prompt),
            *build_readable_routes(one + "/enhanced", self._get_enhanced),
            ("PUT", one, self._serve_put),
            ("DELETE", one, self._delete),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        caller = self.authorise(request, "context")
        query = parse_query(request, "after", "limit")
        limit = parse_limit(query, default=LIMIT_MOST)
        found = await self.prompts().list_page(tenant=caller.tenant, after=query.get("after", ""), limit=limit + 1)
        following = found[limit - 1].id if len(found) > limit else None
        return build_page_answer([_build_view(PromptView, prompt) for prompt in found[:limit]], following=following)

    async def _serve_prompt(self, request: web.Request) -> web.Response:
        caller = self.authorise(request, "context")
        prompt = await self.prompts().find(request.match_info["id"], tenant=caller.tenant)
        if prompt is None:
            raise _build_not_found_error()
        return build_json_answer(_build_view(PromptWithTextView, prompt))

    async def _get_enhanced(self, request: web.Request) -> web.Response:
        caller = self.authorise(request, "context")
        enhancer = self.enhancer()
        if enhancer is None:
            raise GatewayError(
                "unknown_route", "Nothing enhances prompts here: add 'use: prompt_enhancer' to the chain in 'chains'."
            )
        prompt_id = request.match_info["id"]
        enhanced = await enhancer.enhance_prompt(prompt_id, tenant=caller.tenant)
        if enhanced is None:
            raise _build_not_found_error()
        tag = _compute_etag(enhanced)
        headers = {"ETag": f'"{tag}"', "Cache-Control": f"private, max-age={int(enhanced.max_age_s)}", "Vary": _KEYS}
        if any(known.value in (tag, "*") for known in request.if_none_match or ()):
            return web.Response(status=304, headers=headers)
        answer = build_json_answer(
            EnhancedPromptView(
                id=prompt_id,
                text=enhanced.text,
                characters=len(enhanced.text),
                estimated_tokens=enhanced.tokens,
                omitted_tools=enhanced.omitted,
            )
        )
        answer.headers.update(headers)
        return answer

    async def _serve_put(self, request: web.Request) -> web.Response:
        caller = self.authorise(request, "admin")
        text = _parse_body(await _read_body(request, caller)).text
        try:
            prompt = await self.prompts().store_prompt(request.match_info["id"], text, tenant=caller.tenant)
        except ConfiguredPromptError as error:
            raise _is_configured() from error
        except PromptIdError as error:
            raise GatewayError("invalid_field", f"{_capitalize_sentence(str(error))}.", param="id") from error
        except PromptTextError as error:
            raise GatewayError("request_too_large", f"{_capitalize_sentence(str(error))}.", param="text") from error
        return build_json_answer(_build_view(PromptWithTextView, prompt))

    async def _delete(self, request: web.Request) -> web.Response:
        caller = self.authorise(request, "admin")
        prompt_id = request.match_info["id"]
        try:
            was_there = await self.prompts().delete(prompt_id, tenant=caller.tenant)
        except ConfiguredPromptError as error:
            raise _is_configured() from error
        if not was_there:
            raise _build_not_found_error()
        return build_json_answer(PromptDeletedView(id=prompt_id))


async def _read_body(request: web.Request, caller: Caller) -> bytes:
    """Return the whole body. Raises GatewayError (request_too_large) for more than a prompt can need."""
    if (request.content_length or 0) > BODY_LIMIT_BYTES:
        raise _build_too_large_error()
    return await read_content(request, caller, limit_bytes=BODY_LIMIT_BYTES, limit_name="what a prompt can need")


def _parse_body(body: bytes) -> PromptBody:
    try:
        return PromptBody.model_validate_json(body)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False, include_context=False)
    kinds = {problem["type"] for problem in problems}
    if "json_invalid" in kinds:
        raise GatewayError("invalid_json", 'The body is not JSON; send {"text": "..."}.')
    if "extra_forbidden" in kinds:
        raise GatewayError("unknown_field", 'The body has a field that is not known here; send {"text": "..."}.')
    raise GatewayError(
        "invalid_field", 'The body must be {"text": "..."}, with a text that is not empty.', param="text"
    )


def _compute_etag(enhanced: EnhancedPrompt) -> str:
    """Return the ETag: SHA-256 of the text and of the omitted tools' names. The rest of the body follows from them."""
    digest = hashlib.sha256(enhanced.text.encode())
    for name in enhanced.omitted:
        digest.update(b"\0" + name.encode())
    return digest.hexdigest()


def _build_view(kind: type[PromptView], prompt: ListedPrompt) -> PromptView:
    updated_at = None if prompt.updated_s is None else int(prompt.updated_s)
    return fill_view(kind, prompt, updated_at=updated_at, characters=len(prompt.text))


def _build_not_found_error() -> GatewayError:
    return GatewayError(
        "prompt_not_found", "The gateway has no system prompt with this id: GET /v1/system-prompts lists all prompts."
    )


def _is_configured() -> GatewayError:
    return GatewayError(
        "prompt_is_configured",
        "This prompt is part of the configuration: change it under 'prompts' there, or use another id.",
        param="id",
    )


def _build_too_large_error() -> GatewayError:
    return GatewayError("request_too_large", f"The body is larger than {BODY_LIMIT_BYTES} bytes: shorten the prompt.")


def _capitalize_sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
