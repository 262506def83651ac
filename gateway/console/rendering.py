"""Pages from templates: Jinja2 with autoescaping, texts in the reader's language, times in the reader's zone."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import orjson
from jinja2 import BaseLoader, ChoiceLoader, Environment, FileSystemLoader, StrictUndefined
from jinja2.runtime import Context
from markupsafe import Markup

from gateway.approvals.escaping import NAME_CHARS, Language, escape_line, format_shown_name
from gateway.approvals.texts import convert_to_utc
from gateway.approvals.view import get_waiting_arguments
from gateway.console.translation import find_rule_sentence, get_translator, translate_reason
from gateway.console.visible_text import (
    render_exact_arguments,
    render_exact_json,
    render_exact_text,
    render_exact_value,
)
from gateway.features.registry import FOLDER as FEATURES
from gateway.features.registry import list_features

TEMPLATES: Final = Path(__file__).parent / "templates"


class _Context(Context):
    """The names of a template, known to its environment: a macro and its context hold each other, and both the page."""

    def __init__(self, environment: "_Environment", *facts: Any, **further: Any) -> None:
        super().__init__(environment, *facts, **further)
        environment.contexts.append(self)


class _Environment(Environment):
    """Templates with the contexts that the page under way has made."""

    context_class = _Context

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.contexts: list[Context] = []


class TemplateRenderer:
    """The templates of one process, compiled once."""

    def __init__(self, folder: Path = TEMPLATES) -> None:
        """`folder` has the templates, besides those that the features bring."""
        self._environment = _Environment(
            loader=build_loader(folder),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters.update(
            at=format_time,
            day=format_day,
            amount=format_amount,
            seconds=format_seconds,
            shown=format_line,
            tool=format_shown_name,
            exact=render_exact_text,
            value=render_exact_value,
            pretty=format_json,
            editable=render_exact_json,
            waiting=get_waiting_arguments,
            reason=translate_reason,
            rule_sentence=find_rule_sentence,
        )
        self._environment.globals.update(exact_arguments=render_exact_arguments)

    def compile(self) -> None:
        """Compile every template now, so that no request waits for it."""
        for name in self._environment.list_templates():
            self._environment.get_template(name)

    def render(self, template: str, language: Language, values: Mapping[str, Any]) -> str:
        """Return the text of a template. Leave no cycles: their collection held the event loop for 70 ms."""
        page = self._environment.get_template(template)
        try:
            return page.render(t=get_translator(language), language=language, **values)
        finally:
            for context in self._environment.contexts:
                context.vars.clear()
            self._environment.contexts.clear()


def build_loader(folder: Path) -> BaseLoader:
    """Return the loader of the templates of a folder, and of those in the folders of features."""
    folders = [folder, *(FEATURES / name / "templates" for name in list_features("console"))]
    return ChoiceLoader([FileSystemLoader(one) for one in folders])


def format_time(time_s: float | None) -> Markup:
    """Return a Unix time as HTML: in UTC, which a script of the page replaces by the reader's zone."""
    if time_s is None:
        return Markup("")
    at = convert_to_utc(time_s)
    exact = f"{at:%Y-%m-%dT%H:%M:%S.}{at.microsecond // 1000:03}Z"
    return Markup(f'<time datetime="{exact}">{_format_text(at)}</time>')  # noqa: S704 - digits and dashes only


def format_day(time_s: float) -> str:
    """Return a Unix time as the value of an `<input type="datetime-local">` in UTC."""
    return f"{convert_to_utc(time_s):%Y-%m-%dT%H:%M}"


def _format_text(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def format_amount(number: float | None) -> str:
    """Return a count with thin groups of three digits; a dash for none."""
    return "–" if number is None else f"{number:,.0f}".replace(",", "\u202f")


def format_seconds(duration_s: float | None) -> str:
    """Return a duration in the unit that fits it: 0.0123 is `12 ms`, 75 is `75 s`, 7200 is `2.0 h`."""
    if duration_s is None:
        return "–"
    for limit_s, unit_s, places, unit in ((0.9995, 0.001, 0, "ms"), (9.95, 1, 1, "s"), (120, 1, 0, "s")):
        if duration_s < limit_s:
            return f"{duration_s / unit_s:.{places}f} {unit}"
    return f"{duration_s / 60:.0f} min" if duration_s < 7200 else f"{duration_s / 3600:.1f} h"


def format_line(text: object, limit: int = NAME_CHARS) -> str:
    """Return an untrusted text on one line, with invisible characters written out."""
    return escape_line(str(text), limit)


def format_json(value: object) -> str:
    """Return JSON with indentation."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
