"""The nouns of the context lane: facts that nobody changes, and extension points that are only shapes."""

import subprocess
import sys
from dataclasses import FrozenInstanceError, is_dataclass

import pytest

from gateway.contracts import exchange as contracts
from gateway.contracts.caller import Caller
from gateway.contracts.exchange import Exchange

FACTS = [one for one in vars(contracts).values() if isinstance(one, type) and is_dataclass(one)]


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.__name__)
def test_facts_are_frozen_and_have_slots(fact: type) -> None:
    """What a stage was given is what the next one sees."""
    assert fact.__dataclass_params__.frozen and "__slots__" in vars(fact)  # type: ignore[attr-defined]


def test_an_exchange_shows_no_credential() -> None:
    """Nor anything of the client's header: it may land in a log."""
    exchange = Exchange(
        id="run_1",
        body={},
        caller=Caller("c", "t", frozenset()),
        chain="main",
        header=b"X-Secret: s3cret\r\n",
        credential=b"Authorization: Bearer s3cret\r\n",
    )
    assert "s3cret" not in repr(exchange)
    with pytest.raises(FrozenInstanceError):
        exchange.chain = "other"  # type: ignore[misc]


def test_contracts_need_no_pydantic() -> None:
    """A plugin's author reads them, and the lanes import them."""
    code = "import sys, gateway.contracts.exchange; print('pydantic' in sys.modules, 'aiohttp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
