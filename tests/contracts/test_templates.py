"""References in the texts of a workflow: replaced once, by values; everything else is literal (fault case T32)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measuring import Effort

from gateway.contracts.templates import Reference, TooLongError, fill_text, iterate_references, render_template

VALUES: dict[str, dict[str, Any]] = {
    "params": {
        "text": "a {{steps.first}} b",
        "n": 3,
        "on": True,
        "list": [1, "x"],
        "o": {"k": None},
        "half": "ams.n}}",
    },
    "steps": {"first": "{{params.n}}", "second-one": "two"},
}
#: What other programs would evaluate (LiteLLM CVE-2026-42203 and its kin).
LITERAL = (
    "{{config.keys}}",
    "{{ config.keys }}",
    "{{params}}",
    "{{params.}}",
    "{{params.N}}",
    "{{params.n.real}}",
    "{{params['n']}}",
    "{{params.n|upper}}",
    "{{params.n + 1}}",
    "{{\nparams.n}}",
    "{ {params.n} }",
    "{params.n}",
    "{% for x in params %}{% endfor %}",
    "{# comment #}",
    "${HOME}",
    "$HOME",
    "${params.n}",
    "{0.__class__}",
    "%(n)s",
    "<%= 1 %>",
    "#{1}",
    "`id`",
    "$(id)",
    "{{steps.first.__class__}}",
    "{{params." + "n" * 65 + "}}",
)


@pytest.mark.parametrize("text", LITERAL)
def test_text_outside_references_is_literal(text: str) -> None:
    """In a step's own text, and where a parameter or a result brings it (T32)."""
    assert fill_text(text, VALUES) == text == render_template(text, VALUES)
    assert not list(iterate_references(text))
    for kind in ("params", "steps"):
        brought = {kind: {"x": text}}
        assert fill_text(f"<{{{{{kind}.x}}}}>", brought) == f"<{text}>"
        assert render_template({"a": f"{{{{{kind}.x}}}}"}, brought) == {"a": text}


def test_template_reference_is_replaced_by_its_value() -> None:
    """As often as it stands there, with or without spaces inside; names have `-` and `_`."""
    assert fill_text("{{params.n}}, {{ params.n }}: {{steps.second-one}}", VALUES) == "3, 3: two"
    assert fill_text("{{{params.n}}}", VALUES) == "{3}"


def test_inserted_values_are_not_expanded_again() -> None:
    """Not alone, and not together with the text around it."""
    assert fill_text("{{params.text}}", VALUES) == "a {{steps.first}} b"
    assert render_template("{{steps.first}}", VALUES) == "{{params.n}}"
    assert fill_text("{{par{{params.half}}", VALUES) == "{{params.n}}"


def test_reference_as_the_whole_text_keeps_the_value_type() -> None:
    """Within a longer text it is JSON; texts are themselves."""
    template = {"n": "{{params.n}}", "deep": [{"on": "{{ params.on }}"}, "{{params.list}}"], "as text": "{{params.n}} "}
    assert render_template(template, VALUES) == {"n": 3, "deep": [{"on": True}, [1, "x"]], "as text": "3 "}
    text = "{{params.n}} {{params.on}} {{params.list}} {{params.o}}"
    assert fill_text(text, VALUES) == '3 true [1,"x"] {"k":null}'


def test_template_keys_and_non_strings_are_unchanged() -> None:
    """Numbers stay, and so do keys."""
    template = {"{{params.n}}": 1, "a": [None, True, 1.5]}
    assert render_template(template, VALUES) == template


def test_missing_value_is_empty_text_and_drops_its_argument() -> None:
    """So that an optional parameter can be an optional argument."""
    template = {"a": "{{params.gone}}", "b": ["{{params.gone}}", 1], "c": "<{{params.gone}}>"}
    assert render_template(template, VALUES) == {"b": [1], "c": "<>"}
    assert fill_text("{{params.gone}}", VALUES) == "" and render_template("{{steps.gone}}", {}) is None


def test_references_are_found_in_order() -> None:
    """Those that would be replaced, and no others."""
    template = ["{{params.a}} {{steps.b}} {{config.c}}", {"{{params.key}}": {"d": ("{{ steps.d }}",)}}, 3]
    found = [Reference("params", "a"), Reference("steps", "b"), Reference("steps", "d")]
    assert list(iterate_references(template)) == found


def test_rendered_template_length_is_limited() -> None:
    """However the values get there; keys and numbers of the step itself are its author's."""
    values = {"params": {"x": "y" * 10, "list": ["y" * 8]}}
    assert fill_text("{{params.x}}{{params.x}}", values, limit_chars=20) == "y" * 20
    for template in ("{{params.x}}{{params.x}}.", ["{{params.x}}", "{{params.x}}", "."], ["{{params.list}}"] * 2):
        with pytest.raises(TooLongError):
            render_template(template, values, limit_chars=20)
    with pytest.raises(TooLongError):
        fill_text("{{params.x}}" * 200_000, values)


@given(st.text(), st.text())
def test_inserted_value_is_unchanged(around: str, value: str) -> None:
    """Whatever it is, and whatever stands around it."""
    text = f"{around}|{{{{params.x}}}}|{around}"
    if not list(iterate_references(around)):
        assert fill_text(text, {"params": {"x": value}}) == f"{around}|{value}|{around}"


@pytest.mark.parametrize(
    "piece", ["{{", "{{ ", "{{params.", "{", "{{params.a", "{{params.a ", "}}", "{{ params . a }}"]
)
def test_template_rendering_takes_linear_time(piece: str) -> None:
    """Of a megabyte that is nearly a reference everywhere."""
    text = piece * (1_000_000 // len(piece))
    effort = Effort()
    assert not list(iterate_references(text)) or "}}" in piece
    assert fill_text(text, {}, limit_chars=1 << 21) == text
    assert fill_text("{{" + " " * 1_000_000, {}) == "{{" + " " * 1_000_000
    assert effort.cpu_s < 2
