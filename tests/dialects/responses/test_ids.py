"""Ids of responses and items: made of the id of a request, and leading back to it."""

import pytest

from gateway.dialects.responses.ids import (
    build_input_id,
    build_output_id,
    build_response_id,
    find_request_id,
    find_response_id,
    find_run_id,
)

RUN, RESPONSE = "run_" + "0a" * 12, "resp_" + "0a" * 12


def test_response_id_converts_to_and_from_its_run_id() -> None:
    """In both directions."""
    assert build_response_id(RUN) == RESPONSE
    assert find_run_id(RESPONSE) == RUN


@pytest.mark.parametrize("index", [0, 1, 65_535, 65_536, 1_000_000])
def test_item_id_leads_to_its_response(index: int) -> None:
    """Those of the output and those of the input, which differ, however many there are."""
    ids = build_output_id("msg", RESPONSE, index), build_input_id("msg", RESPONSE, index)
    assert len({*ids}) == 2
    assert [find_response_id(item_id) for item_id in ids] == [RESPONSE, RESPONSE]


def test_item_id_contains_prefix_response_digits_and_index() -> None:
    """A prefix, the digits of the response, and the place."""
    assert build_output_id("msg", RESPONSE, 2) == f"msg_{'0a' * 12}0002"
    assert build_input_id("fc", RESPONSE, 10) == f"fc_{'0a' * 12}i000a"


@pytest.mark.parametrize(
    "foreign",
    ["", "msg_1", RESPONSE, RESPONSE.upper(), f"msg_{'0a' * 12}", f"msg_{'0a' * 12}00", f"msg_{'zz' * 14}", "ap_1" * 9],
)
def test_foreign_item_ids_lead_to_no_response(foreign: str) -> None:
    """Clients send any text as an id."""
    assert find_response_id(foreign) is None
    assert find_run_id(foreign) == (RUN if foreign == RESPONSE else None)


@pytest.mark.parametrize("foreign", [RESPONSE + "\n", RESPONSE + "0", "x" + RESPONSE, "resp_" + "é" * 24])
def test_malformed_response_id_leads_to_no_run(foreign: str) -> None:
    """Not even with a line end."""
    assert find_run_id(foreign) is None


def test_request_id_is_found_for_output_items_only() -> None:
    """An item of the input has the id of the same request, and was not answered."""
    response_id = build_response_id("run_" + "0a" * 12)
    assert find_request_id({"id": build_output_id("msg", response_id, 2)}) == "run_" + "0a" * 12
    for item in ({"id": build_input_id("msg", response_id, 2)}, {"id": "msg_1"}, {"id": None}, {"id": 5}, {}):
        assert find_request_id(item) == ""
