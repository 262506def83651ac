"""The nouns of the gateway and its extension points. Plugins import them from `gateway.plugin`."""

import importlib
import warnings
from typing import Final

#: The modules of the names that this module once had. They work from here for one minor version more.
_MODULES: Final = ("exchange", "tools", "risk", "plugin", "store", "caller")
#: The present names of renamed classes, by their former names.
RENAMED: Final = {
    "Condition": "ServiceStatus",
    "Decision": "Action",
    "Ruled": "DecisionResult",
    "Ruling": "DecisionWrite",
    "Tell": "Emit",
}


def __getattr__(name: str) -> object:
    if name.startswith("__"):
        raise AttributeError(name)
    for part in _MODULES:
        module = importlib.import_module(f"{__name__}.{part}")
        if hasattr(module, now := RENAMED.get(name, name)):
            text = f"import {now} from gateway.plugin: {__name__} has {name} until the next minor version"
            warnings.warn(text, DeprecationWarning, stacklevel=2)
            return getattr(module, now)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
