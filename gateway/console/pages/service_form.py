"""The forms that register a service and change the settings of a registered one."""

from collections.abc import Mapping
from typing import Final

from aiohttp import web

from gateway.console.api_client import ApiError
from gateway.console.pages.service_settings import build_form, get_field_name, parse_settings
from gateway.console.request import ADMIN, Page, Visit, see_other
from gateway.console.schema_form import FormError

#: Labels of the fields that hold JSON, as the template has them.
LABELS: Final[Mapping[str, str]] = {"env": "Environment", "headers": "Header fields", "further": "Further settings"}


class ServiceForm:
    """The pages that write the settings of services.

    The form for a new one is not below `/services`: any name is allowed for a service, `new` too.
    """

    def list_pages(self) -> tuple[Page, ...]:
        return (
            Page("GET", "/tools/new-service", self._show_new_form, ADMIN),
            Page("POST", "/tools/new-service", self._register, ADMIN),
            Page("GET", "/services/{name}/change", self._show_change_form, ADMIN),
            Page("POST", "/services/{name}/change", self._store_service, ADMIN),
        )

    async def _show_new_form(self, visit: Visit) -> web.Response:
        return await _render_form(visit, {})

    async def _register(self, visit: Visit) -> web.Response:
        name = visit.form.get("name", "").strip()
        try:
            answer = await visit.api.post("mcp", "services", body={"name": name, **parse_settings(visit.form)})
        except (ApiError, FormError) as error:
            return await _render_form(visit, visit.form, error=error)
        return see_other("services", answer["name"], done="started")

    async def _show_change_form(self, visit: Visit) -> web.Response:
        service = await visit.api.get("mcp", "services", visit.match["name"])
        return await _render_form(visit, build_form(service["settings"] or {}), name=service["name"])

    async def _store_service(self, visit: Visit) -> web.Response:
        name = visit.match["name"]
        try:
            await visit.api.put("mcp", "services", name, body=parse_settings(visit.form))
        except (ApiError, FormError) as error:
            return await _render_form(visit, visit.form, name=name, error=error)
        return see_other("services", name, done="changed")


async def _render_form(
    visit: Visit,
    form: Mapping[str, str],
    *,
    name: str | None = None,
    error: ApiError | FormError | None = None,
) -> web.Response:
    """Return the form. `name` is that of the service whose settings it changes, None for a new one."""
    status, problem, field = 200, None, ""
    if isinstance(error, ApiError):
        status, problem, field = error.status, error.message, get_field_name(error.param)
        if error.param and "." in str(error.param):
            problem = f"{error.param}: {problem}"
    elif error is not None:
        field = error.name
        status, problem = 422, f"{visit.t(LABELS[field])}: {error.format_problem(visit.t)}"
    texts = {field: text.replace("\r\n", "\n") for field, text in form.items()}
    title = "Add a service" if name is None else "Change the service"
    return await visit.render_page(
        "service_form.html", title=title, status=status, problem=problem, field=field, form=texts, name=name
    )
