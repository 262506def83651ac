"""The nouns of the gateway and its extension points. Plugins import them from `gateway.plugin`."""

import importlib
import warnings

#: Where the names stand that this was a module of. They work for one minor version more.
_MODULES = ("exchange", "tools", "risk", "plugin", "store", "caller")


def __getattr__(name: str) -> object:
    if name.startswith("__"):
        raise AttributeError(name)
    for part in _MODULES:
        module = importlib.import_module(f"{__name__}.{part}")
        if hasattr(module, name):
            text = f"import {name} from gateway.plugin: {__name__} has it until the next minor version"
            warnings.warn(text, DeprecationWarning, stacklevel=2)
            return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
