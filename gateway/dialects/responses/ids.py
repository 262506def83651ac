"""Ids of responses and of their items, all made of the id of the request. The id of an item leads to its response."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

RESPONSE: Final = "resp_"
_OF_RESPONSE: Final = re.compile(r"resp_([0-9a-f]{24})")
_OF_ITEM: Final = re.compile(r"[a-z]+_([0-9a-f]{24})i?[0-9a-f]{4,}")
_OF_OUTPUT: Final = re.compile(r"[a-z]+_([0-9a-f]{24})[0-9a-f]{4,}")


def build_response_id(request_id: str) -> str:
    """Return the id of the response to a request: `resp_` and the 24 hex digits of `run_...`."""
    return RESPONSE + request_id.removeprefix("run_")


def find_run_id(response_id: str) -> str | None:
    """Return the id of the request, and of the run that began with it. None: the gateway did not make this id."""
    found = _OF_RESPONSE.fullmatch(response_id)
    return None if found is None else f"run_{found[1]}"


def build_output_id(prefix: str, response_id: str, index: int) -> str:
    """Return the id of an output item, such as `msg_<24 hex digits>0002`: `index` is its place in the output."""
    return f"{prefix}_{response_id.removeprefix(RESPONSE)}{index:04x}"


def build_input_id(prefix: str, response_id: str, index: int) -> str:
    """Return the id of an input item that came without one, such as `msg_<24 hex digits>i0000`."""
    return f"{prefix}_{response_id.removeprefix(RESPONSE)}i{index:04x}"


def find_response_id(item_id: str) -> str | None:
    """Return the id of the response that an item belongs to. None: the gateway did not make this id."""
    found = _OF_ITEM.fullmatch(item_id)
    return None if found is None else RESPONSE + found[1]


def find_request_id(item: Mapping[str, object]) -> str:
    """Return the id of the request whose response an item is of; "" if the gateway did not make the item's id."""
    found = _OF_OUTPUT.fullmatch(item_id) if isinstance(item_id := item.get("id"), str) else None
    return "" if found is None else f"run_{found[1]}"


def list_request_ids(items: Iterable[Mapping[str, object]]) -> list[str]:
    """Return the ids of the requests whose responses these items belong to, as far as the gateway made their ids."""
    found = (_OF_ITEM.fullmatch(item_id) for item in items if isinstance(item_id := item.get("id"), str))
    return list(dict.fromkeys(f"run_{one[1]}" for one in found if one is not None))
