"""The plugins that come with the gateway: the folder `plugins/` of a checkout, which a wheel carries in here."""

import importlib
import pkgutil
from functools import cache
from pathlib import Path
from typing import Any

from gateway.contracts.plugin import Plugin, PluginKind

_HERE = Path(__file__).parent
if not (_HERE / "stages").is_dir():  # a checkout; in a wheel they stand right here
    __path__ = [str(_HERE.parents[1] / "plugins")]


@cache
def list_built_in_plugins(kind: PluginKind) -> tuple[str, ...]:
    """Return the names of our plugins in `plugins/KIND/`, sorted. None of them is imported."""
    return tuple(sorted(module.name for path in __path__ for module in pkgutil.iter_modules([f"{path}/{kind}"])))


def load_built_in_plugin(kind: PluginKind, name: str) -> Plugin[Any, Any]:
    """Import and return one of our plugins."""
    plugin = importlib.import_module(f"{__name__}.{kind}.{name}").PLUGIN
    assert isinstance(plugin, Plugin), name
    return plugin
