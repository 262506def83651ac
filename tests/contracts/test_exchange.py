"""The nouns of the context lane: facts that nobody changes, and extension points that are only shapes."""

import subprocess
import sys
from dataclasses import FrozenInstanceError, is_dataclass, replace

import pytest

from gateway.contracts import exchange as contracts
from gateway.contracts.caller import Caller
from gateway.contracts.exchange import Delivery, Exchange, Execution, Job, Origin, Reply, ToolSteering

FACTS = [one for one in vars(contracts).values() if isinstance(one, type) and is_dataclass(one)]
#: See gateway/contracts/records.py.
COPIED = (Exchange, ToolSteering, Job, Delivery, Origin, Execution, Reply)


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.__name__)
def test_facts_are_frozen_and_have_slots(fact: type) -> None:
    """A stage changes nothing that another one sees. Exchanges and replies, copied by each request, have no slots."""
    assert fact.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert ("__slots__" in vars(fact)) != (fact in COPIED)


def test_an_exchange_shows_no_credential() -> None:
    """Nor anything of the client's header: it may land in a log."""
    exchange = Exchange(
        id="run_1",
        body={},
        caller=Caller("c", "t", frozenset()),
        chain="main",
        origin=Origin(header=b"X-Secret: s3cret\r\n", credential=b"Authorization: Bearer s3cret\r\n"),
    )
    assert "s3cret" not in repr(exchange)
    with pytest.raises(FrozenInstanceError):
        exchange.chain = "other"  # type: ignore[misc]


ANY = Exchange(id="run_1", body={}, caller=Caller("c", "t", frozenset()), chain="main")


def test_tool_steering_narrows_tools_by_name_and_glob() -> None:
    """By names and globs; a name with the signs of a glob in it is not one. `no_tools` leaves none."""
    assert ANY.steering.allows("time.look")
    named = ToolSteering(only_tools=("now", "time.*", "odd[[]1]"))
    assert [name for name in ("now", "nowadays", "time.look", "time", "odd[1]", "odd1") if named.allows(name)] == [
        "now",
        "time.look",
        "odd[1]",
    ]
    assert not replace(named, no_tools=True).allows("now") and not ToolSteering(no_tools=True).allows("now")


def test_tool_steering_requires_approval_for_named_tools() -> None:
    """None without it: an empty list names none, and not all."""
    assert not ANY.steering.asks_first("now")
    asks = ToolSteering(ask_first=("now", "time.*"))
    assert [asks.asks_first(name) for name in ("now", "time.look", "other")] == [True, True, False]


def test_contracts_need_no_pydantic() -> None:
    """A plugin's author reads them, and the lanes import them."""
    code = "import sys, gateway.contracts.exchange; print('pydantic' in sys.modules, 'aiohttp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
