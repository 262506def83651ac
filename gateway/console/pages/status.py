"""The page of the gateway's own status: upstreams, figures over time, the configuration in force, the audit log."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from gateway.console.api_client import ApiError
from gateway.console.charts_status import Chart, Sample, build_chart, get_samples
from gateway.console.rendering import format_amount, format_seconds
from gateway.console.request import ADMIN, Page, Visit
from gateway.console.translation import Translate
from gateway.contracts.storage.store import Json


def _format_milliseconds(value: float) -> str:
    return f"{value:.2f} ms" if value < 10 else f"{value:.0f} ms"


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a history; `chart` is None where nothing was measured."""

    title: str
    chart: Chart | None


#: The figures of a history: their names in the API, their titles, and how a value is written.
FIGURES: Final[Sequence[tuple[str, str, Callable[[float], str]]]] = (
    ("requests", "Requests per minute", format_amount),
    ("errors", "Errors per minute", format_amount),
    ("overhead_ms", "Overhead of the gateway", _format_milliseconds),
    ("pending", "Calls that wait for a person", format_amount),
    ("approval_wait_s", "Wait for a decision", format_seconds),
)
#: The figures that count events in the time of a point.
COUNTS: Final = ("requests", "errors")


class StatusPage:
    """The pages of operators."""

    def list_pages(self) -> tuple[Page, ...]:
        return (
            Page("GET", "/status", self._show_status, ADMIN),
            Page("GET", "/status/audit", self._audit, ADMIN),
            Page("GET", "/status/audit/csv", self._log, ADMIN),
        )

    async def _show_status(self, visit: Visit) -> web.Response:
        status = await visit.api.get("context", "status")
        history = status["history"]
        points = history["points"]
        figures = build_figures(points, step_s=history["step_s"], t=visit.t)
        span = (points[0]["at"], points[-1]["at"]) if len(points) > 1 else None
        return await visit.render_page("status.html", title="Status", facts=status, figures=figures, span=span)

    async def _audit(self, visit: Visit) -> web.Response:
        """Verify a part of the audit log. An open page sends for the next part by itself."""
        found, problem, status = None, None, 200
        try:
            begin = {"from": "start"} if visit.query.get("begin") == "start" else {}
            found = await visit.api.get("context", "audit", "verification", **begin)
        except ApiError as error:
            problem, status = error.message, error.status
        if "HX-Request" in visit.request.headers:  # htmx leaves a page as it is when the answer is an error
            return visit.render_answer("audit.html", found=found, problem=problem)
        return await visit.render_page(
            "audit_page.html", title="Audit log", status=status, found=found, problem=problem
        )

    async def _log(self, visit: Visit) -> web.StreamResponse:
        """Return the table of the whole audit log."""
        return await visit.stream_table("context", "audit", file="audit.csv")


def build_figures(points: Sequence[Json], *, step_s: float, t: Translate) -> Sequence[Figure]:
    """Return the figures of a history, each with its chart."""
    # The last point is younger than a step: its counts would look like a fall.
    whole = [point for point in points if point["span_s"] >= step_s] or points

    def draw_chart(name: str, title: str, text_of: Callable[[float], str]) -> Chart | None:
        samples = get_samples(points, name)
        if name in COUNTS:
            per_minute = [60 / max(point["span_s"], step_s) for point in whole]
            counted = zip(get_samples(whole, name), per_minute, strict=True)
            samples = [Sample(one.at_s, None if one.value is None else one.value * share) for one, share in counted]
        return build_chart(title, samples, step_s=step_s, text_of=text_of, t=t)

    return [Figure(t(title), draw_chart(name, t(title), text_of)) for name, title, text_of in FIGURES]
