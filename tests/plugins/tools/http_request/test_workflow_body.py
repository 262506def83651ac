"""Values of a workflow in the body of a request: the structure is the author's, whatever a value holds."""

import json
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.contracts.templates import split_pieces
from gateway.plugins.tools.http_request.workflow_body import build_body_writer

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
TEMPLATE = '{"name": "{{params.x}}", "told": "by \\"{{params.x}}\\"", "it": {{params.x}}, "n": [{{params.n}}]}'


def body(template: str, kind: str | None, *, steps: dict[str, object] | None = None, **params: object) -> str:
    return build_body_writer(kind)(split_pieces(template, {"params": params, "steps": steps or {}}))


@given(x=TEXTS, n=st.none() | st.integers() | st.booleans() | st.lists(TEXTS) | st.dictionaries(TEXTS, TEXTS))
@pytest.mark.parametrize("kind", ["application/json", "Application/JSON; charset=utf-8", "application/ld+json", None])
def test_workflow_value_adds_no_key_to_a_json_body(kind: str | None, x: str, n: object) -> None:
    """A value is a text, a part of one, or a whole value with its type."""
    found = json.loads(body(TEMPLATE, kind, x=x, n=n))
    assert found == {"name": x, "told": f'by "{x}"', "it": x, "n": [n]}


@given(x=TEXTS)
def test_workflow_value_adds_no_field_to_a_form_body(x: str) -> None:
    written = body("name={{params.x}}&kind=a", "application/x-www-form-urlencoded", x=x)
    assert parse_qsl(written, keep_blank_values=True) == [("name", x), ("kind", "a")]


@pytest.mark.parametrize(
    ("result", "value"),
    [('{"rows":[[1]]}', {"rows": [[1]]}), ("12", 12), ("not JSON", "not JSON"), ('1}, {"a": 2', '1}, {"a": 2')],
)
def test_json_result_of_a_step_becomes_one_json_value(result: str, value: object) -> None:
    """Whatever it holds it adds nothing beside itself."""
    assert json.loads(body('{"found": {{steps.rows}}}', None, steps={"rows": result})) == {"found": value}


def test_absent_values_become_null_and_other_types_plain_text() -> None:
    assert body('{"a": {{params.none}}, "b": "{{params.none}}"}', None) == '{"a": null, "b": ""}'
    assert body('{"a": "{{params.x}}"}', "text/plain", x='"') == '{"a": """}'
    assert body("Dear {{params.x}},", None, x='"Ann"') == 'Dear "Ann",'


def test_workflow_reference_after_a_backslash_is_refused() -> None:
    """It would take the first character of it for an escape."""
    with pytest.raises(ValueError, match=r"\{\{params\.x\}\}"):
        body('{"a": "\\{{params.x}}"}', None, x="n")
