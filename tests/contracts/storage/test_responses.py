"""Stored responses and conversations: facts that nobody changes."""

from dataclasses import is_dataclass
from typing import get_args

import pytest

from gateway.contracts.storage import responses

FACTS = [one for one in vars(responses).values() if isinstance(one, type) and is_dataclass(one)]


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.__name__)
def test_facts_are_frozen_and_have_slots(fact: type) -> None:
    """What was read is what there is."""
    assert fact.__dataclass_params__.frozen and "__slots__" in vars(fact)  # type: ignore[attr-defined]


def test_open_response_states_exclude_final_states() -> None:
    """The others end a response."""
    ended = set(get_args(responses.ResponseState)) - responses.OPEN
    assert ended == {"completed", "incomplete", "failed", "cancelled"}
