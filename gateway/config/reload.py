"""The judgement of a configuration that is to replace the one in use.

It is judged with the old values of the settings that only a restart can change. A reload opens nothing that was closed.
It never removes the last key. A guard of tools is not dropped by leaving it out. A file that looks truncated is not
used. A start has nothing to compare with: there the rules of `config/checks.py` apply.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gateway.config.load import LoadedConfig
from gateway.config.problems import ConfigError, KeyPath, Problem, fits, format_path
from gateway.config.schema.mcp import Mcp
from gateway.config.schema.section import Section
from gateway.config.schema.settings import Settings

log = logging.getLogger("gateway")

#: Sections that a reload cannot change.
_FIXED = ("listen", "workers", "admin", "replicas", "store", "tracing")
#: Values that close something. A reload may change them, and drop whole tools, servers, keys and upstreams. The
#: remaining ones keep their guards, unless the file sets other values.
_GUARDS: Sequence[KeyPath] = (
    ("upstreams",),
    ("upstreams", "*", "paths"),
    ("upstreams", "*", "tls", "*"),
    ("passthrough", "paths"),
    ("keys", "*", "tenant"),
    ("risk", "*"),
    ("keys", "*", "approvals"),
    ("approvals", "mode"),
    ("approvals", "chains"),
    ("approvals", "self"),
    ("approvals", "require"),
    ("tools", "*", "*"),
    ("tools", "*", "limits", "*"),
    ("mcp", "servers", "*", "*"),
    ("mcp", "serve", "tools"),
    *(("keys", "*", bound) for bound in ("expires", "models", "tools", "upstreams", "networks")),
)
_ANY = "*"


def merge_configs(new: LoadedConfig, *, old: LoadedConfig) -> LoadedConfig:
    """Return the configuration that comes into use when `new` replaces `old`.

    Raises ConfigError with every reason against.
    """
    fixed: dict[str, object] = {name: getattr(old.settings, name) for name in _FIXED}
    for name, value in fixed.items():
        if getattr(new.settings, name) != value:
            log.warning("reload: %r changed, which needs a restart; the old value stays in use", name)
    if new.settings.metrics.enabled != old.settings.metrics.enabled:
        log.warning("reload: 'metrics.enabled' changed, which needs a restart; the old value stays in use")
    sharing = {name: getattr(old.settings.limits, name) for name in ("shared", "valkey")}
    for name, value in sharing.items():
        if getattr(new.settings.limits, name) != value:
            log.warning("reload: 'limits.%s' changed, which needs a restart; the old value stays in use", name)
    fixed["limits"] = new.settings.limits.model_copy(update=sharing)
    enabled = {"enabled": old.settings.metrics.enabled}
    fixed["metrics"] = new.settings.metrics.model_copy(update=enabled)
    fixed["mcp"] = _keep_old_mcp_endpoint(new.settings.mcp, old=old.settings.mcp)
    merged = new.settings.model_copy(update=fixed)
    place = "configuration" if new.file is None else str(new.file)
    problems = [Problem(place, path, message) for path, message in _list_objections(new, merged, old)]
    if problems:
        raise ConfigError(tuple(problems))
    return replace(new, settings=merged)


def _keep_old_mcp_endpoint(new: Mcp, *, old: Mcp) -> Mcp:
    """Return the section with the old path and sessions of `mcp.serve`, which only a restart changes."""
    if new.serve is None or old.serve is None:
        serve = old.serve
    else:
        serve = new.serve.model_copy(update={"path": old.serve.path, "sessions": old.serve.sessions})
    if serve == new.serve:
        return new
    log.warning("reload: 'mcp.serve' changed in a way that needs a restart; the old value stays in use")
    return new.model_copy(update={"serve": serve})


def _list_objections(new: LoadedConfig, merged: Settings, old: LoadedConfig) -> Iterator[tuple[str, str]]:
    """Yield the reasons against the reload, each with its path."""
    if new.empty and not old.empty:
        yield "", "the file is empty, and the one in use is not: restart the gateway if that is meant"
    elif new.text is not None and old.text is not None and _looks_truncated(new.text, of=old.text):
        yield (
            "",
            "the file is the beginning of the one in use, or ends within a line: it looks cut short; if it is meant, "
            "end it with a line end and add a line (a comment will do), or restart the gateway",
        )
    if merged.is_keyless and not old.settings.is_keyless:
        yield (
            "keys",
            f"there are none any more, and no 'runtime_keys': every client that reaches {old.settings.listen} could do "
            "everything; restart the gateway if that is meant",
        )
    for path in _list_lost_guards(old.settings, merged):
        yield (
            format_path(path),
            "this was set and is gone: a reload loosens nothing by silence; write the value that you want, or restart",
        )


def _looks_truncated(text: str, *, of: str) -> bool:
    """Return whether `text` looks like the result of an unfinished write of another text."""
    if of.endswith("\n") and not text.endswith("\n"):
        return True
    begun = text.rstrip()
    return of.startswith(begun) and begun != of.rstrip()


def _list_lost_guards(old: Settings, new: Settings) -> Iterator[KeyPath]:
    """Yield the guards that the old configuration sets, and that the new one omits and thereby changes."""
    said, says, holds = (
        dict(_walk(settings, said=said)) for settings, said in ((old, True), (new, True), (new, False))
    )
    for path, value in said.items():
        guard = next((guard for guard in _GUARDS if fits(path, guard)), None)
        if guard is None or path in says or holds.get(path, value) == value:
            continue
        owner = path[: guard.index(_ANY) + 1] if _ANY in guard[:-1] else ()
        if not owner or owner in holds:
            yield path


def _walk(value: object, path: KeyPath = (), *, said: bool) -> Iterator[tuple[KeyPath, object]]:
    """Yield every value below `value` with its path. Items of lists go by name. `said`: only values in the file."""
    if path:
        yield path, value
    if isinstance(value, Section):
        for name, below in value:
            if not said or name in value.model_fields_set:
                yield from _walk(below, (*path, name.rstrip("_")), said=said)
    elif isinstance(value, Mapping):
        for name, below in value.items():
            yield from _walk(below, (*path, str(name)), said=said)
    elif isinstance(value, tuple):
        for item in value:
            item_name = getattr(item, "name", None)
            if isinstance(item_name, str):
                yield from _walk(item, (*path, item_name), said=said)
