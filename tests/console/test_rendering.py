"""Texts, times and figures in templates."""

import gc
import weakref
from pathlib import Path

import pytest
from jinja2 import UndefinedError

from gateway.console.rendering import (
    TEMPLATES,
    TemplateRenderer,
    format_amount,
    format_day,
    format_json,
    format_line,
    format_seconds,
    format_time,
    get_translator,
)


def test_template_escapes_values_and_raises_on_missing_names(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('{{ t("Inbox") }} {{ text }}')
    (tmp_path / "b.html").write_text("{{ missing }}")
    rendering = TemplateRenderer(tmp_path)
    rendering.compile()
    assert rendering.render("a.html", "en", {"text": "<b>&"}) == "Inbox &lt;b&gt;&amp;"
    assert rendering.render("a.html", "zh", {"text": ""}) == "待办 "
    with pytest.raises(UndefinedError, match="missing"):
        rendering.render("b.html", "en", {})


class Value:
    """Something that a page shows."""

    text = "a"


def test_rendered_page_leaves_no_reference_cycles(tmp_path: Path) -> None:
    """The collector of cycles has nothing to do after a page: it would hold the event loop."""
    (tmp_path / "parts.html").write_text("{% macro part() %}{{ value.text }}{% endmacro %}")
    page = '{% from "parts.html" import part with context %}{% macro own() %}{{ part() }}{% endmacro %}{{ own() }}'
    (tmp_path / "page.html").write_text(page)
    rendering = TemplateRenderer(tmp_path)
    rendering.compile()
    gc.disable()
    try:
        value = Value()
        left = weakref.ref(value)
        assert rendering.render("page.html", "en", {"value": value}) == "a"
        del value
        assert left() is None
    finally:
        gc.enable()


def test_every_template_can_be_compiled() -> None:
    TemplateRenderer(TEMPLATES).compile()


def test_a_text_without_a_translation_stays_english() -> None:
    assert get_translator("zh")("There is no such text: {0}", 1) == "There is no such text: 1"
    assert get_translator("en")("{0} of {1}", 3, "<b>") == "3 of <b>"
    assert get_translator("en")("{braces} stay without values") == "{braces} stay without values"


def test_times_are_rendered_in_utc_with_a_machine_readable_form() -> None:
    assert format_time(0.25) == '<time datetime="1970-01-01T00:00:00.250Z">1970-01-01 00:00:00 UTC</time>'
    assert (format_time(None), format_day(86_400.0)) == ("", "1970-01-02T00:00")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *(
            (None, "–"),
            (0, "0 ms"),
            (0.0123, "12 ms"),
            (0.15, "150 ms"),
            (0.9994, "999 ms"),
            (0.9996, "1.0 s"),
            (1.25, "1.2 s"),
        ),
        *((9.94, "9.9 s"), (9.96, "10 s"), (75, "75 s"), (119.9, "120 s"), (120, "2 min"), (7199, "120 min")),
        (7200, "2.0 h"),
    ],
)
def test_a_duration_has_the_unit_that_fits(seconds: float | None, text: str) -> None:
    assert format_seconds(seconds) == text


def test_amounts_lines_and_json_are_formatted() -> None:
    assert [format_amount(number) for number in (None, 0, 999, 1234567)] == ["–", "0", "999", "1\u202f234\u202f567"]
    assert format_line("a\nb\u202e") == "a\\nb\\u{202e}" and len(format_line("x" * 1000)) < 250
    assert format_json({"a": [1]}) == '{\n  "a": [\n    1\n  ]\n}'
