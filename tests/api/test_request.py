"""Queries and bodies, read strictly."""

from collections.abc import Callable

import pytest
from aiohttp.test_utils import make_mocked_request
from pydantic import Field

from gateway.api.openapi.operations import OPERATIONS
from gateway.api.request import (
    RequestBody,
    identify_with_scope,
    paginate,
    parse_json,
    parse_limit,
    parse_query,
    parse_query_choice,
    parse_query_number,
    parse_query_time,
    validate_body,
)
from gateway.contracts.api_bounds import LIMIT_MOST
from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError


class Order(RequestBody):
    """Has a name that is a keyword, and a list."""

    as_: str = Field(alias="as", max_length=3)
    places: list[int] = Field(default=[])


def refused(ask: Callable[[], object]) -> tuple[str, str | None]:
    with pytest.raises(GatewayError) as caught:
        ask()
    assert caught.value.facts.status == 400
    return caught.value.code, caught.value.param


def test_one_of_the_scopes_is_enough() -> None:
    """Without any, the first refusal says why."""

    def identify(scope: str) -> Caller:
        if scope not in held:
            raise GatewayError("scope_missing", scope)
        return Caller("ann", "acme", frozenset(held))

    held = {"approve"}
    assert identify_with_scope(("context", "approve"), identify).name == "ann"
    held.clear()
    with pytest.raises(GatewayError, match=r"^context$"):
        identify_with_scope(("context", "approve"), identify)
    with pytest.raises(GatewayError, match="No gateway key"):
        identify_with_scope((), identify)


def test_query_is_decoded_and_unknown_parameters_are_refused() -> None:
    """Decoded; anything else is named."""
    request = make_mocked_request("GET", "/x?a=1%202&b=%E5%A5%BD")
    assert parse_query(request, "a", "b", "c") == {"a": "1 2", "b": "好"}
    assert refused(lambda: parse_query(request, "a")) == ("unknown_field", "b")
    assert parse_query(make_mocked_request("GET", "/x")) == {}


@pytest.mark.parametrize("query", ["a=1&a=1", "a=", "a"])
def test_repeated_or_empty_query_parameter_is_refused(query: str) -> None:
    """Two readers would not agree on any other."""
    assert refused(lambda: parse_query(make_mocked_request("GET", f"/x?{query}"), "a")) == ("invalid_field", "a")


def test_unknown_parameter_name_is_truncated_in_the_error() -> None:
    """It is the client's own text."""
    _, param = refused(lambda: parse_query(make_mocked_request("GET", f"/x?{'n' * 5000}=1"), "a"))
    assert param == "n" * 100


@pytest.mark.parametrize("text", ["-1", "+1", "1.0", "1e3", "０", " 1", "1_0", "9" * 19, "x"])
def test_invalid_query_number_is_refused(text: str) -> None:
    """Digits are, and not too many."""
    assert refused(lambda: parse_query_number({"after": text}, "after", default=0)) == ("invalid_field", "after")


def test_numbers_have_defaults_and_bounds() -> None:
    """A limit is from 1 to 200."""
    assert parse_query_number({}, "after", default=7) == 7
    assert parse_query_number({"after": "0012"}, "after", default=7) == 12
    assert [parse_limit(query) for query in ({}, {"limit": "1"}, {"limit": "200"})] == [50, 1, 200]
    for text in ("0", "201"):
        assert refused(lambda text=text: parse_limit({"limit": text})) == ("invalid_field", "limit")


@pytest.mark.parametrize("text", ["-1", "+1", "1e3", "nan", "inf", "２", " 1", "1.", ".5", "9" * 13, "2026-01-01"])
def test_invalid_query_time_is_refused(text: str) -> None:
    """Unix seconds are, with a fraction or without."""
    assert refused(lambda: parse_query_time({"since": text}, "since")) == ("invalid_field", "since")
    assert [parse_query_time(query, "since") for query in ({}, {"since": "0"}, {"since": "1767225600.25"})] == [
        None,
        0.0,
        1767225600.25,
    ]


def test_query_choice_accepts_only_known_values() -> None:
    """Or it is not there."""
    assert parse_query_choice({}, "state", ("a", "b")) is None
    assert parse_query_choice({"state": "b"}, "state", ("a", "b")) == "b"
    assert refused(lambda: parse_query_choice({"state": "A"}, "state", ("a", "b"))) == ("invalid_field", "state")


def test_validate_body_accepts_aliases_of_fields() -> None:
    """By the names that clients know."""
    assert validate_body(Order, {"as": "x", "places": [1]}) == Order(**{"as": "x", "places": [1]})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([], ("invalid_json", None)),
        (None, ("invalid_json", None)),
        ({}, ("missing_field", "as")),
        ({"as": 1}, ("invalid_field", "as")),
        ({"as": "long"}, ("invalid_field", "as")),
        ({"as": "x", "places": [1, "2"]}, ("invalid_field", "places.1")),
        ({"as": "x", "places": [True]}, ("invalid_field", "places.0")),
        ({"as": "x", "as_": "y"}, ("unknown_field", "as_")),
        ({"as": "x", "n" * 5000: 1}, ("unknown_field", "n" * 100)),
    ],
)
def test_invalid_body_error_names_the_place_without_the_value(value: object, expected: tuple[str, str | None]) -> None:
    """Where it is, and never what it was."""
    with pytest.raises(GatewayError) as caught:
        validate_body(Order, value)
    assert (caught.value.code, caught.value.param) == expected
    assert "long" not in caught.value.message and "nnn" not in caught.value.message


@pytest.mark.parametrize(
    "text",
    ["", "{", '{"a": 1, "a": 2}', '{"a": NaN}', '{"a": 1e999}', '{"a": ' + "9" * 400 + "}", '"\\ud800"', "[" * 200],
)
def test_ambiguous_json_is_refused(text: str) -> None:
    """Nothing is decided on it; a key of it is not repeated."""
    assert refused(lambda: parse_json(text)) == ("invalid_json", None)


def test_parse_json_returns_parsed_values() -> None:
    """As it is meant."""
    assert parse_json('{"a": [1, "好", null]}') == {"a": [1, "好", None]}


@pytest.mark.parametrize("name", ["listGrants", "listAsks", "listPrompts", "listServices", "listWorkflows"])
def test_default_page_length_matches_the_api_description(name: str) -> None:
    """Of lists that came whole before they came in pages, it is as long as one may be."""
    [listed] = [operation for operation in OPERATIONS if operation.name == name]
    [default] = [one.schema["default"] for one in listed.parameters if one.name == "limit"]
    entries = [*range(LIMIT_MOST + 1)]
    page, following = paginate(entries, {}, key=str)
    assert (len(page), following) == (default, str(entries[default - 1]))
    assert paginate(entries, {"after": str(following)}, key=str) == (entries[default:], None)
