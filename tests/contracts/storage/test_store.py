"""What is kept besides runs: facts that nobody changes, and no library to name them."""

import subprocess
import sys
from dataclasses import is_dataclass

import pytest

from gateway.contracts.storage import store

FACTS = [one for one in vars(store).values() if isinstance(one, type) and is_dataclass(one)]


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.__name__)
def test_facts_are_frozen_and_have_slots(fact: type) -> None:
    """What was read is what there is."""
    assert fact.__dataclass_params__.frozen and "__slots__" in vars(fact)  # type: ignore[attr-defined]


def test_store_contract_imports_without_libraries() -> None:
    """A plugin's author reads it."""
    code = "import sys, gateway.contracts.storage.store; print(*('pydantic' in sys.modules, 'sqlite3' in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
