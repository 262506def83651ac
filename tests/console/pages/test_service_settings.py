"""The settings of a service as fields: what a person sees is what the API gets back."""

import pytest

from gateway.console.pages.service_settings import build_form, get_field_name, parse_settings
from gateway.console.schema_form import FormError

SETTINGS = {
    "enabled": True,
    "command": "python",
    "args": ["-m", "x y", "--name=é"],
    "env": {"TOKEN": "***"},
    "description": "Tells the time.",
    "trigger_keywords": ["clock", "time zone"],
    "requires_approval": True,
    "timeout": 30.0,
    "timeouts": {"slow": 300.0},
}


def test_settings_survive_the_form() -> None:
    form = build_form(SETTINGS)
    assert form["args"] == "-m\nx y\n--name=é"
    assert parse_settings({name: text for name, text in form.items() if text}) == SETTINGS


def test_crlf_in_a_form_field_separates_arguments() -> None:
    assert parse_settings({"args": "-m\r\nclock\r\n\r\n"}) == {"args": ["-m", "clock"]}


@pytest.mark.parametrize(
    "settings",
    [
        {"args": ["a\nb"]},
        {"args": [""]},
        {"args": ["a", "  "]},
        {"command": " padded "},
        {"command": "hidden\u202eoder"},
        {"description": "two\nlines"},
        {"trigger_keywords": ["a\rb"]},
    ],
)
def test_setting_a_field_cannot_represent_is_shown_as_json(settings: dict[str, object]) -> None:
    form = build_form(settings)
    assert set(form) == {"further"}
    assert parse_settings(form) == settings


def test_empty_fields_produce_no_settings() -> None:
    empty = dict.fromkeys(("command", "url", "args", "env", "headers", "description", "further"), " ")
    assert parse_settings(empty) == {}
    assert build_form({"args": [], "env": {}, "trigger_keywords": [], "requires_approval": False}) == {
        "args": "",
        "env": "",
        "trigger_keywords": "",
        "requires_approval": "",
        "further": "",
    }


@pytest.mark.parametrize(
    ("form", "field"),
    [
        ({"env": "{"}, "env"),
        ({"headers": "[]"}, "headers"),
        ({"further": '{"a": 1, "a": 2}'}, "further"),
        ({"further": '{"command": "sh"}', "command": "python"}, "further"),
    ],
)
def test_unparsable_field_is_named_in_the_error(form: dict[str, str], field: str) -> None:
    with pytest.raises(FormError) as caught:
        parse_settings(form)
    assert caught.value.name == field


@pytest.mark.parametrize(
    ("param", "field"),
    [("env.TOKEN", "env"), ("name", "name"), ("timeout", "further"), ("oauth.issuer", "further"), (None, "")],
)
def test_error_param_is_mapped_to_its_form_field(param: str | None, field: str) -> None:
    assert get_field_name(param) == field
