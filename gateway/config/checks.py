"""What must fit together across keys; the rules read the tree, so that they speak even when single values are wrong."""

import re
from collections.abc import Iterable, Mapping
from typing import Literal

from gateway.config.document import Draft
from gateway.config.judged import BUILT_IN, no_such_tool
from gateway.config.messages import nearest
from gateway.config.problems import KeyPath, format_path, shown
from gateway.config.reading.yaml_reader import BROKEN
from gateway.config.schema.mcp import FOREIGN_MCP_KEYS
from gateway.config.schema.settings import DEFAULT_LISTEN
from gateway.config.upstreams import check_upstreams
from gateway.config.values.addresses import parse_address
from gateway.config.values.secret import Hidden

# What models accept as the name of a function.
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_MOST_NAMES_SHOWN = 12
# How other programs turn a server off, beside `enabled: false`, which is ours as well.
_OFF: Mapping[str, bool] = {"disabled": True, "isActive": False}
# What belongs to one of the two kinds of MCP servers.
_OF_COMMANDS, _OF_URLS = ("args", "env", "cwd"), ("headers", "oauth", "private_networks")


def check(draft: Draft) -> None:
    """Notes everything that does not fit together."""
    _check_unique(draft, draft.matches("upstreams", "*", "name"))
    _check_unique(draft, draft.matches("keys", "*", "name"))
    _check_unique(draft, draft.matches("keys", "*", "sha256"))
    _check_scopes(draft)
    _check_declared(draft)
    _check_listen(draft)
    _check_tls(draft)
    check_upstreams(draft)
    _check_chains(draft)
    _check_alternatives(draft)
    _check_tools(draft)
    _check_judged(draft)


def set_aside_foreign_keys(draft: Draft) -> None:
    """Drops what other programs write into an `mcpServers` block, and says so."""
    for path in list(draft.matches("mcp", "servers", "*", "*")):
        if path[-1] in FOREIGN_MCP_KEYS:
            enabled = (*path[:-1], "enabled")
            if path[-1] in _OFF and draft.get(*path) is _OFF[path[-1]] and draft.get(*enabled) is None:
                draft.warn(path, "a key of another program: taken for enabled: false")
                draft.put(enabled, False, place=draft.place_of(path))
            else:
                draft.warn(path, "ignored: a key of another program")
            draft.drop(path)


def _check_unique(draft: Draft, paths: Iterable[KeyPath]) -> None:
    first: dict[str, KeyPath] = {}
    for path in paths:
        value = draft.get(*path)
        if isinstance(value, str):
            twin = first.setdefault(value.lower() if path[-1] == "sha256" else value, path)
            if twin != path:
                draft.complain(path, f"the same {path[-1]} as at {draft.place_of(twin)}: each is used once")


def _check_scopes(draft: Draft) -> None:
    for path in draft.matches("keys", "*", "scopes"):
        if draft.get(*path) == []:
            draft.complain(path, "expected at least one scope: without any the key may do nothing")


def _check_declared(draft: Draft) -> None:
    _check_reference(
        draft, ("context", "upstream"), [draft.get(*path) for path in draft.matches("upstreams", "*", "name")]
    )
    for key, section in (("chain", "chains"), ("prompt", "prompts")):
        _check_reference(draft, ("context", key), [path[-1] for path in draft.matches(section, "*")])
    chains = [str(path[-1]) for path in draft.matches("chains", "*")]
    for path in draft.matches("approvals", "chains", "*"):
        if path[-1] not in chains:
            hint = nearest(str(path[-1]), chains) or f"; declared: {', '.join(map(shown, chains[:_MOST_NAMES_SHOWN]))}"
            draft.complain(path, f"no chain {shown(str(path[-1]))} is declared{hint}", key=True)


def _check_reference(draft: Draft, path: KeyPath, declared: list[object]) -> None:
    name = draft.get(*path)
    if not isinstance(name, str) or name in declared or BROKEN in declared:
        return
    names = [known for known in declared if isinstance(known, str) and not isinstance(known, Hidden)]
    some = ", ".join(shown(known) for known in names[:_MOST_NAMES_SHOWN])
    hint = nearest(name, names) or (f"; declared: {some}" if names else "; none is")
    what = f"such {path[-1]}" if isinstance(name, Hidden) else f"{path[-1]} {shown(name)}"
    draft.complain(path, f"no {what} is declared{hint}")


def _check_listen(draft: Draft) -> None:
    """Without keys everybody who reaches the port may do everything."""
    addresses = {}
    for path in (("listen",), ("admin", "listen")):
        value = draft.get(*path)
        if value is None and path == ("listen",):
            value = DEFAULT_LISTEN
        try:
            addresses[path] = parse_address(value)
        except ValueError:
            continue
    if draft.get("keys") in (None, []):
        for path, address in addresses.items():
            if not address.is_loopback:
                message = f"{str(address)!r} is open to others and there are no keys"
                draft.complain(path, f"{message}: add keys, or listen on 127.0.0.1:{address.port}")
    listen, admin = addresses.get(("listen",)), addresses.get(("admin", "listen"))
    if admin is not None and admin == listen and admin.port:
        draft.complain(
            ("admin", "listen"), "the same address as listen: choose another port, or null for listen itself"
        )


def _check_tls(draft: Draft) -> None:
    for path in draft.matches("upstreams", "*"):
        base_url, tls = draft.get(*path, "base_url"), [given[-1] for given in draft.matches_below((*path, "tls"))]
        if tls and isinstance(base_url, str) and base_url.startswith("http:"):
            draft.complain(
                (*path, "tls"), "there is no TLS with an http:// URL: write https://, or remove it", key=True
            )
        if "key_file" in tls and "cert_file" not in tls:
            draft.complain((*path, "tls", "key_file"), "needs cert_file as well", key=True)
        if draft.get(*path, "auth_header") is not None and draft.get(*path, "api_key") is None:
            draft.warn((*path, "auth_header"), "has no effect without api_key")


def _check_chains(draft: Draft) -> None:
    """What the prompt says of tools must be what the loop below does."""
    for path in draft.matches("chains", "*"):
        stages = draft.get(*path)
        uses = [draft.get(*path, index, "use") for index in range(len(stages))] if isinstance(stages, list) else []
        for index, use in enumerate(uses):
            tools = (*path, index, "with", "tools")
            if use != "prompt_enhancer" or BROKEN in uses or draft.get(*tools) not in (None, True):
                continue
            below = [i for i in range(index + 1, len(uses)) if uses[i] == "agent_loop"]
            if not below:
                draft.complain(tools, "offers tools and no agent_loop below runs them: add one, or write tools: false")
            for loop in below:
                tool_format = (*path, loop, "with", "tool_format")
                if draft.get(*tool_format) == "native":
                    draft.complain(
                        tool_format,
                        f"the prompt_enhancer above ({format_path(tools[:-2])}) tells the model to call tools in JSON: "
                        "write tools: false there, or tool_format: json here",
                    )


def _check_alternatives(draft: Draft) -> None:
    for path in draft.matches("prompts", "*"):
        _check_one_of(draft, path, "text", "file")
    for path in draft.matches("mcp", "servers", "*"):
        _check_one_of(draft, path, "command", "url")
        _check_effects(draft, path)
    for path in draft.matches("approvals", "notify", "*"):
        _check_one_of(draft, path, "webhook")


def _check_effects(draft: Draft, path: KeyPath) -> None:
    """Keys of an MCP server that belong to the other kind."""
    kinds = {key: draft.get(*path, key) is not None for key in ("command", "url")}
    for kind, keys in (("command", _OF_COMMANDS), ("url", _OF_URLS)):
        for key in keys:
            if sum(kinds.values()) == 1 and not kinds[kind] and draft.get(*path, key):
                draft.warn((*path, key), f"has no effect without {kind}")


def _check_tools(draft: Draft) -> None:
    """A tool that is named is meant to be on; null would be read as off."""
    tools = draft.get("tools")
    for name, tool in tools.items() if isinstance(tools, dict) else ():
        if tool is None:
            draft.complain(("tools", name), "write {} to have it with its defaults, or remove it")
        elif not _TOOL_NAME.match(name):
            draft.complain(("tools", name), "expected a name of 1 to 64 letters, digits, '_' or '-'", key=True)


def _check_judged(draft: Draft) -> None:
    """Rules and assessors for tools that do not exist; what a plugin's tools are called is known once it is built."""
    tools = draft.get("tools")
    if set(tools if isinstance(tools, dict) else ()) - BUILT_IN:
        return
    sections: tuple[Literal["rules", "assessors"], ...] = ("rules", "assessors")
    for section in sections:
        for path in draft.matches("risk", section, "*"):
            if (problem := no_such_tool(section, str(path[-1]))) is not None:
                draft.complain(path, problem, key=True)


def _check_one_of(draft: Draft, path: KeyPath, *keys: str) -> None:
    if not isinstance(draft.get(*path), dict):
        return
    given = [key for key in keys if draft.get(*path, key) is not None]
    if not given:
        draft.complain(path, f"expected {' or '.join(keys)}")
    elif len(given) > 1:
        draft.complain((*path, given[1]), f"{' and '.join(given)} are both given: keep one of the two", key=True)
