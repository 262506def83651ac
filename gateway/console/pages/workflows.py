"""The pages of workflows: all by category, and one of them with its steps, its form and its last runs."""

import asyncio
import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import orjson
from aiohttp import web

from gateway.console.api_client import ApiError
from gateway.console.request import Page, Visit, see_other
from gateway.console.schema_form import FormError, FormField, build_fields, parse_values
from gateway.contracts.storage.journal import ENDED
from gateway.contracts.storage.store import Json

#: So many runs of a workflow stand on its page; the others are on the page of runs.
LAST: Final = 10
#: The fields of the form besides the parameters, by the names that the API has for them.
FURTHER: Final = ("conversation", "model")


class WorkflowsPage:
    """The pages of workflows."""

    def list_pages(self) -> tuple[Page, ...]:
        return (
            Page("GET", "/workflows", self._list, ("context",)),
            Page("GET", "/workflows/{name}", self._show_workflow, ("context",)),
            Page("POST", "/workflows/{name}", self._start, ("context",)),
        )

    async def _list(self, visit: Visit) -> web.Response:
        chosen = visit.query.get("category")
        listed, categories = await asyncio.gather(
            visit.api.get("workflows", category=chosen, after=visit.query.get("after")),
            visit.api.get("workflows", "categories"),
        )
        return await visit.render_page(
            "workflows.html",
            title="Workflows",
            workflows=listed["data"],
            following=listed["next"],
            categories=categories["data"],
            chosen=chosen,
        )

    async def _show_workflow(self, visit: Visit) -> web.Response:
        return await self._render_page(visit, await visit.api.get("workflows", visit.match["name"]))

    async def _render_page(
        self,
        visit: Visit,
        workflow: Json,
        *,
        status: int = 200,
        problem: str | None = None,
        form: Mapping[str, str] = {},
    ) -> web.Response:
        runs = await visit.api.get("context", "runs", kind="workflow", workflow=workflow["name"], limit=LAST)
        return await visit.render_page(
            "workflow.html",
            title="Workflow",
            status=status,
            workflow=workflow,
            fields=_list_fields(workflow),
            form=form,
            problem=problem,
            attempt=secrets.token_urlsafe(12),
            ended=ENDED,
            runs=runs["data"],
            has_more=runs["next"] is not None,
        )

    async def _start(self, visit: Visit) -> web.Response:
        """Start a run. A form that a browser sends twice, on a double click say, starts one."""
        name = visit.match["name"]
        workflow = await visit.api.get("workflows", name)
        try:
            body = _build_body(workflow, visit.form)
            run = await visit.api.post(
                "workflows",
                name,
                "runs",
                body=body,
                Prefer="respond-async",
                Idempotency_Key=_build_idempotency_key(visit.form, body),
            )
        except FormError as error:
            problem = f"{error.name}: {error.format_problem(visit.t)}"
            return await self._render_page(visit, workflow, status=422, problem=problem, form=visit.form)
        except ApiError as error:
            return await self._render_page(
                visit, workflow, status=error.status, problem=_format_problem(error), form=visit.form
            )
        return see_other("runs", run["id"])


def _list_fields(workflow: Json) -> list[FormField]:
    return [_build_field(one) for one in build_fields(workflow["parameters"], {}, defaults=True)]


def _build_field(one: FormField) -> FormField:
    """Return the field as the form of a workflow has it.

    A text that begins with its default can be emptied: then it is the empty text. One that begins empty takes several
    lines, since a control of one line drops the line ends of what a person pastes.
    """
    if one.control not in ("line", "text"):
        return one
    return replace(one, present=True) if one.text else replace(one, control="text")


def _build_body(workflow: Json, form: Mapping[str, str]) -> dict[str, Any]:
    """Return the body that starts a run. Raises FieldError."""
    further = {name: text for name in FURTHER if (text := form.get(name, "").strip())}
    return {"parameters": parse_values(_list_fields(workflow), form), **further}


def _format_problem(error: ApiError) -> str:
    """Return the error's text with the field at fault, which not every text names."""
    param = str(error.param or "")
    return error.message if param in error.message else f"{param}: {error.message}"


def _build_idempotency_key(form: Mapping[str, str], body: Mapping[str, Any]) -> str:
    """Return the Idempotency-Key of a form: the same for the same values of the same page."""
    content = orjson.dumps([form.get("attempt", ""), body], option=orjson.OPT_SORT_KEYS)
    return "console-" + hashlib.sha256(content).hexdigest()
