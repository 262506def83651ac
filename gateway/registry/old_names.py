"""The former names of modules that plugins imported: they work for one minor version more, and warn."""

import importlib
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

from gateway.contracts import RENAMED
from gateway.registry.user_plugins import add_finder

#: Where the names of each module stand now; of a package, nothing by itself.
MOVED: Final[dict[str, tuple[str, ...]]] = {
    "gateway.caller": ("gateway.contracts.caller",),
    "gateway.confine": (),
    "gateway.confine.levels": ("gateway.sandbox.confinement",),
    "gateway.confine.order": ("gateway.sandbox.launch_messages",),
    "gateway.confine.programs": ("gateway.sandbox.programs",),
    "gateway.confine.run": ("gateway.sandbox.run",),
    "gateway.journal": ("gateway.contracts.storage.journal",),
    "gateway.managed": ("gateway.contracts.service",),
    "gateway.store": ("gateway.contracts.storage.store",),
    "gateway.wire": (),
    "gateway.wire.addresses": ("gateway.net.public_address",),
    "gateway.wire.audit_chain": ("gateway.contracts.storage.audit_chain",),
    "gateway.wire.canonical": ("gateway.jsontext.canonical",),
    "gateway.wire.chat_request": ("gateway.dialects.chat_request",),
    "gateway.wire.durations": ("gateway.contracts.units",),
    "gateway.wire.json_values": ("gateway.jsontext.value_count",),
    "gateway.wire.phrases": ("gateway.text.phrases", "gateway.dialects.chat_request"),
    "gateway.wire.risk_level": ("gateway.contracts.risk",),
    "gateway.wire.shell_paths": ("gateway.plugin.paths",),
    "gateway.wire.sql_lexer": ("gateway.plugin.sql.lexer",),
    "gateway.wire.strict_json": ("gateway.jsontext.strict_json",),
    "gateway.wire.wordlist": ("gateway.plugin.word_lists",),
    "gateway.wire.workflow_text": ("gateway.workflows.templates",),
}


class _MovedModuleFinder(MetaPathFinder, Loader):
    """The finder of moved modules: it stands behind all other finders."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if fullname not in MOVED:
            return None
        return ModuleSpec(fullname, self, is_package=not MOVED[fullname])

    def exec_module(self, module: ModuleType) -> None:
        homes = MOVED[module.__name__]
        if homes:
            text = f"{module.__name__} goes with the next minor version: import gateway.plugin (now {homes[0]})"
            warnings.warn(text, DeprecationWarning, stacklevel=2)

        def attribute(name: str) -> object:
            for home in homes:
                found = importlib.import_module(home)
                if hasattr(found, now := RENAMED.get(name, name)):
                    return getattr(found, now)
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

        vars(module)["__getattr__"] = attribute


_FINDER: Final = _MovedModuleFinder()


def install() -> None:
    """Let modules be imported by their old names. Idempotent."""
    add_finder(_FINDER)
