"""Unquoted scalars."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.reading.yaml_scalars import resolve_plain


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("true", True),
        ("FALSE", False),
        ("0", 0),
        ("-12", -12),
        ("+5", 5),
        ("3.25", 3.25),
        ("y", "y"),
        ("5s", "5s"),
        ("127.0.0.1:8080", "127.0.0.1:8080"),
        ("gpt-4o", "gpt-4o"),
        ("2024-01-01", "2024-01-01"),
        ("=", "="),
        ("1" * 64, "1" * 64),
        ("0" * 64, "0" * 64),
        ("abc1e3", "abc1e3"),
    ],
)
def test_plain_scalar_resolves_to_its_common_yaml_value(text: str, value: object) -> None:
    """Words, decimal numbers and text; rows of digits as long as a hash are text."""
    assert resolve_plain(text) == value
    assert type(resolve_plain(text)) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        "yes",
        "No",
        "ON",
        "off",
        "010",
        "0x1F",
        "0b101",
        "0o17",
        "1_000",
        "1e3",
        "1.5e-3",
        ".5",
        "5.",
        "12:30",
        "1:30:00",
        ".inf",
        "-.INF",
        ".nan",
        "007",
    ],
)
def test_ambiguous_yaml_scalars_are_refused(text: str) -> None:
    """YAML 1.1 surprises are errors that say what to write instead."""
    with pytest.raises(ValueError, match="in quotes"):
        resolve_plain(text)


def _yaml_1_1(text: str) -> object:
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        return text


@given(st.text("0123456789+-._:exboEnyaIfN~truls", max_size=12))
def test_yaml_numbers_and_booleans_match_pyyaml(text: str) -> None:
    """Where a value other than text comes out, YAML 1.1 reads the same one."""
    try:
        value = resolve_plain(text)
    except ValueError:
        return
    if not isinstance(value, str):
        assert _yaml_1_1(text) == value
