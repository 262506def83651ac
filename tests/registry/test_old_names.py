"""Names of before that plugins of operators still have."""

import importlib
import sys
from collections.abc import Iterator

import pytest

import gateway.plugin
from gateway import contracts
from gateway.contracts.plugin import Plugin
from gateway.contracts.units import positive_seconds
from gateway.registry import old_names

MODULES = sorted(name for name, homes in old_names.MOVED.items() if homes)


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """Each test imports anew."""
    old_names.install()
    yield
    for name in old_names.MOVED:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_found_by_its_old_name_with_a_warning(name: str) -> None:
    """It has what the new one has, by the same identity."""
    with pytest.warns(DeprecationWarning, match="gateway.plugin"):
        module = importlib.import_module(name)
    home = importlib.import_module(old_names.MOVED[name][0])
    public = [one for one in vars(home) if not one.startswith("_")]
    assert public and all(getattr(module, one) is getattr(home, one) for one in public)
    with pytest.raises(AttributeError, match="nothing_of_this_name"):
        module.nothing_of_this_name  # noqa: B018


def test_names_are_imported_from_an_old_module() -> None:
    """As plugins write it; the finder comes once, however often it is asked for."""
    old_names.install()
    assert sum(type(finder).__module__ == old_names.__name__ for finder in sys.meta_path) == 1
    with pytest.warns(DeprecationWarning, match="gateway.contracts.units"):
        found = importlib.import_module("gateway.wire.durations").positive_seconds
    assert found is positive_seconds


@pytest.mark.parametrize(("before", "now"), [("Tell", "Emit"), ("Decision", "Action")])
def test_what_has_another_name_is_found_by_the_one_of_before(before: str, now: str) -> None:
    """As a plugin of the last version imports it; the warning names the new one."""
    with pytest.warns(DeprecationWarning, match=f"import {now} from gateway.plugin"):
        assert getattr(contracts, before) is getattr(gateway.plugin, now)


def test_a_module_that_never_was_is_not_found() -> None:
    """Nor one whose name begins like an old one."""
    for name in ("gateway.wire.nothing", "gateway.stores"):
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(name)


def test_the_contracts_are_where_they_were_with_a_warning() -> None:
    """Every name of the public door that stands in the contracts."""
    with pytest.warns(DeprecationWarning, match="import Plugin from gateway.plugin"):
        assert contracts.Plugin is Plugin
    for name in ("Exchange", "ToolSpec", "Verdict", "Host", "Json", "Store", "Caller"):
        with pytest.warns(DeprecationWarning, match=name):
            assert getattr(contracts, name) is getattr(gateway.plugin, name)
    with pytest.raises(AttributeError, match="Nothing"):
        contracts.Nothing  # noqa: B018
