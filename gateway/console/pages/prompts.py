"""The pages of system prompts: their list, one of them, the form that stores it, and what a model gets of it."""

import unicodedata
from collections.abc import Mapping
from typing import Final

from aiohttp import web

from gateway.console.api_client import ApiError
from gateway.console.request import Page, Visit, see_other
from gateway.console.schema_form import FormError, FormField, build_fields, parse_values
from gateway.contracts.storage.store import Json

PROMPTS: Final = ("v1", "system-prompts")
SHOWN: Final = 50
#: The field of the form that holds a prompt.
TEXT: Final = "text"
#: Characters without which some languages and emoji cannot be written, though they do not show.
_JOINERS: Final = frozenset("\u200c\u200d")


class PromptsPage:
    """The pages of system prompts."""

    def list_pages(self) -> tuple[Page, ...]:
        reading, changing = ("context",), ("admin",)
        return (
            Page("GET", "/prompts", self._list, reading),
            Page("POST", "/prompts", self._create, changing),
            Page("GET", "/prompts/{id}", self._show_prompt, reading),
            Page("POST", "/prompts/{id}", self._save_prompt, changing),
            Page("GET", "/prompts/{id}/enhanced", self._show_enhanced, reading),
            Page("POST", "/prompts/{id}/delete", self._delete, changing),
        )

    async def _list(self, visit: Visit) -> web.Response:
        return await self._render_list(visit)

    async def _render_list(
        self, visit: Visit, *, status: int = 200, problem: str | None = None, form: Mapping[str, str] = {}
    ) -> web.Response:
        listed = await visit.api.get(*PROMPTS, after=visit.query.get("after"), limit=SHOWN)
        return await visit.render_page(
            "prompts.html",
            title="Prompts",
            status=status,
            prompts=listed["data"],
            following=listed["next"],
            field=_build_field(""),
            form=form,
            problem=problem,
        )

    async def _create(self, visit: Visit) -> web.Response:
        """Store a new prompt. One that is there already stays as it is."""
        prompt_id = visit.form.get("id", "").strip()
        if not prompt_id:
            return await self._render_list(visit, status=422, problem=visit.t("Enter an id."), form=visit.form)
        try:
            if await _find_prompt(visit, prompt_id) is not None:
                problem = visit.t("There is a prompt with this id already: open it in the list, or enter another id.")
                return await self._render_list(visit, status=409, problem=problem, form=visit.form)
            await visit.api.put(*PROMPTS, prompt_id, body=parse_values([_build_field("")], visit.form))
        except FormError as error:
            return await self._render_list(visit, status=422, problem=error.format_problem(visit.t), form=visit.form)
        except ApiError as error:
            return await self._render_list(visit, status=error.status, problem=error.message, form=visit.form)
        return see_other("prompts", prompt_id, done="changed")

    async def _show_prompt(self, visit: Visit) -> web.Response:
        return await self._render_page(visit, await visit.api.get(*PROMPTS, visit.match["id"]))

    async def _render_page(
        self,
        visit: Visit,
        prompt: Json,
        *,
        status: int = 200,
        problem: str | None = None,
        form: Mapping[str, str] = {},
    ) -> web.Response:
        return await visit.render_page(
            "prompt.html",
            title="Prompt",
            status=status,
            prompt=prompt,
            field=_build_field(prompt["text"]),
            editing="edit" in visit.query or problem is not None,
            form=form,
            problem=problem,
        )

    async def _save_prompt(self, visit: Visit) -> web.Response:
        """Store a new text, unless another person stored one since the form was opened."""
        prompt_id = visit.match["id"]
        prompt = await visit.api.get(*PROMPTS, prompt_id)
        if visit.form.get("version") != str(prompt["version"]):
            problem = visit.t("Another person has changed this prompt since you opened it. Compare, then save again.")
            return await self._render_page(visit, prompt, status=409, problem=problem, form=visit.form)
        try:
            await visit.api.put(*PROMPTS, prompt_id, body=parse_values([_build_field(prompt["text"])], visit.form))
        except FormError as error:
            return await self._render_page(
                visit, prompt, status=422, problem=error.format_problem(visit.t), form=visit.form
            )
        except ApiError as error:
            return await self._render_page(visit, prompt, status=error.status, problem=error.message, form=visit.form)
        return see_other("prompts", prompt_id, done="changed")

    async def _show_enhanced(self, visit: Visit) -> web.Response:
        enhanced = await visit.api.get(*PROMPTS, visit.match["id"], "enhanced")
        return await visit.render_page("prompt_enhanced.html", title="Enhanced prompt", enhanced=enhanced)

    async def _delete(self, visit: Visit) -> web.Response:
        await visit.api.delete(*PROMPTS, visit.match["id"])
        return see_other("prompts", done="deleted")


async def _find_prompt(visit: Visit, prompt_id: str) -> Json | None:
    """Return the prompt, or None. Raises ApiError."""
    try:
        return await visit.api.get(*PROMPTS, prompt_id)
    except ApiError as error:
        if error.code != "prompt_not_found":
            raise
        return None


def _build_field(text: str) -> FormField:
    """Return the control that holds a prompt: one that shows each of its characters and returns it."""
    if all(map(_is_plain, text)):
        return FormField(name=TEXT, control="text", kind="string", text=text, required=True, present=True)
    (field,) = build_fields({"properties": {TEXT: {"type": "string"}}, "required": [TEXT]}, {TEXT: text})
    return field


def _is_plain(character: str) -> bool:
    """Return whether a `<textarea>` shows the character, and a browser sends it as it is."""
    if character in _JOINERS or character in "\n\t":
        return True
    return unicodedata.category(character) not in ("Cc", "Cf")
