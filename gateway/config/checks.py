"""The rules that span several keys. They read the raw tree, so they work even if single values are wrong."""

import re
from collections.abc import Iterable, Mapping
from typing import Literal

from gateway.config.decision_checks import check_decisions
from gateway.config.document import Document
from gateway.config.feature_checks import collect_checks
from gateway.config.messages import suggest_nearest
from gateway.config.models import check_models
from gateway.config.problems import KeyPath, quote_word
from gateway.config.reading.yaml_reader import BROKEN
from gateway.config.risk_name_check import BUILT_IN, describe_missing_tool
from gateway.config.schema.mcp import FOREIGN_MCP_KEYS
from gateway.config.schema.settings import DEFAULT_LISTEN
from gateway.config.serve_checks import check_serve, is_keyless
from gateway.config.timeout_checks import check_timeouts
from gateway.config.upstreams import check_upstreams
from gateway.config.values.addresses import parse_address
from gateway.config.values.secret import MaskedText
from gateway.text.confusables import compute_appearance
from gateway.text.reserved_names import ServiceNames

# What models accept as the name of a function.
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_MOST_NAMES_SHOWN = 12
# How other programs turn a server off, beside `enabled: false`, which is ours as well.
_OFF: Mapping[str, bool] = {"disabled": True, "isActive": False}
# What belongs to one of the two kinds of MCP servers.
_OF_COMMANDS, _OF_URLS = ("args", "env", "cwd", "run"), ("headers", "oauth", "private_networks")


def check(document: Document) -> None:
    """Report every conflict between keys."""
    _check_unique(document, document.iterate_matches("upstreams", "*", "name"))
    _check_unique(document, document.iterate_matches("keys", "*", "name"))
    _check_unique(document, document.iterate_matches("keys", "*", "sha256"))
    _check_imitations(document)
    _check_scopes(document)
    _check_declared(document)
    _check_listen(document)
    _check_tls(document)
    check_upstreams(document)
    check_timeouts(document)
    check_models(document)
    _check_alternatives(document)
    _check_tools(document)
    _check_services(document)
    _check_judged_tools(document)
    check_serve(document)
    check_decisions(document)
    for feature in collect_checks():
        feature.check_document(document)


def drop_foreign_keys(document: Document) -> None:
    """Drop the keys that other programs write into an `mcpServers` block, with a warning for each."""
    for path in list(document.iterate_matches("mcp", "servers", "*", "*")):
        if path[-1] in FOREIGN_MCP_KEYS:
            enabled = (*path[:-1], "enabled")
            if path[-1] in _OFF and document.get(*path) is _OFF[path[-1]] and document.get(*enabled) is None:
                document.warn(path, "a key of another program: taken for enabled: false")
                document.put(enabled, False, place=document.locate(path))
            else:
                document.warn(path, "ignored: a key of another program")
            document.drop(path)


def _check_unique(document: Document, paths: Iterable[KeyPath]) -> None:
    """Report equal values at several of these paths."""
    first: dict[str, KeyPath] = {}
    for path in paths:
        value = document.get(*path)
        if isinstance(value, str):
            twin = first.setdefault(value.lower() if path[-1] == "sha256" else value, path)
            if twin != path:
                document.complain(path, f"the same {path[-1]} as at {document.locate(twin)}: each is used once")


def _check_imitations(document: Document) -> None:
    """Report names of keys, and of tenants, of which one looks like another."""
    names = list(document.iterate_matches("keys", "*", "name"))
    given = [*document.iterate_matches("keys", "*", "tenant"), ("mcp", "serve", "oauth", "tenant")]
    limited = list(document.iterate_matches("limits", "tenants", "*"))
    own = [path for path in names if document.get(*path[:-1], "tenant") is None]
    for what, paths in (("key", names), ("tenant", [*given, *own, *limited])):
        first: dict[str, tuple[str, KeyPath]] = {}
        for path in paths:
            name = str(path[-1]) if path in limited else document.get(*path)
            if isinstance(name, str):
                twin, place = first.setdefault(compute_appearance(name), (name, path))
                if twin != name:
                    at = document.locate(place, key=place in limited)
                    document.complain(path, f"looks like the name of the {what} at {at}: choose one that differs more")


def _check_scopes(document: Document) -> None:
    """Report keys with an empty list of scopes."""
    for path in document.iterate_matches("keys", "*", "scopes"):
        if document.get(*path) == []:
            document.complain(path, "expected at least one scope: without any the key may do nothing")


def _check_declared(document: Document) -> None:
    """Report names of upstreams, chains and prompts that are used but not declared."""
    upstreams = [document.get(*path) for path in document.iterate_matches("upstreams", "*", "name")]
    _check_reference(document, ("context", "upstream"), upstreams)
    for path in document.iterate_matches("models", "*", "use", "*", "upstream"):
        _check_reference(document, path, upstreams)
    for path in document.iterate_matches("keys", "*", "upstreams", "*"):
        _check_reference(document, path, upstreams, kind="upstream")
    for key, section in (("chain", "chains"), ("prompt", "prompts")):
        _check_reference(document, ("context", key), [path[-1] for path in document.iterate_matches(section, "*")])
    chains = [str(path[-1]) for path in document.iterate_matches("chains", "*")]
    for path in document.iterate_matches("approvals", "chains", "*"):
        if path[-1] not in chains:
            hint = (
                suggest_nearest(str(path[-1]), chains)
                or f"; declared: {', '.join(map(quote_word, chains[:_MOST_NAMES_SHOWN]))}"
            )
            document.complain(path, f"no chain {quote_word(str(path[-1]))} is declared{hint}", key=True)


def _check_reference(document: Document, path: KeyPath, declared: list[object], *, kind: str | None = None) -> None:
    """Report a name that is not declared. `kind` is the kind of thing that it names; None: as its key is called."""
    name = document.get(*path)
    if not isinstance(name, str) or name in declared or BROKEN in declared:
        return
    names = [known for known in declared if isinstance(known, str) and not isinstance(known, MaskedText)]
    some = ", ".join(quote_word(known) for known in names[:_MOST_NAMES_SHOWN])
    hint = suggest_nearest(name, names) or (f"; declared: {some}" if names else "; none is")
    kind = kind or str(path[-1])
    what = f"such {kind}" if isinstance(name, MaskedText) else f"{kind} {quote_word(name)}"
    document.complain(path, f"no {what} is declared{hint}")


def _check_listen(document: Document) -> None:
    """Report an address that others can reach while no keys are configured: any client could then do everything."""
    addresses = {}
    for path in (("listen",), ("admin", "listen")):
        value = document.get(*path)
        if value is None and path == ("listen",):
            value = DEFAULT_LISTEN
        try:
            addresses[path] = parse_address(value)
        except ValueError:
            continue
    if is_keyless(document):
        for path, address in addresses.items():
            if not address.is_loopback:
                message = f"{str(address)!r} is open to others and there are no keys"
                document.complain(path, f"{message}: add keys, or listen on 127.0.0.1:{address.port}")
    listen, admin = addresses.get(("listen",)), addresses.get(("admin", "listen"))
    if admin is not None and admin == listen and admin.port:
        document.complain(
            ("admin", "listen"), "the same address as listen: choose another port, or null for listen itself"
        )


def _check_tls(document: Document) -> None:
    """Report TLS settings without a TLS URL, and warn of credential headers without a key."""
    for path in document.iterate_matches("upstreams", "*"):
        tls = [given[-1] for given in document.iterate_below((*path, "tls"))]
        places = [(*path, "base_url"), *((*one, "url") for one in document.iterate_below((*path, "endpoints")))]
        urls = [url for place in places if isinstance(url := document.get(*place), str)]
        if tls and urls and all(url.startswith("http:") for url in urls):
            document.complain(
                (*path, "tls"), "there is no TLS with an http:// URL: write https://, or remove it", key=True
            )
        if "key_file" in tls and "cert_file" not in tls:
            document.complain((*path, "tls", "key_file"), "needs cert_file as well", key=True)
        keys = [(*path, "api_key"), *((*one, "api_key") for one in document.iterate_below((*path, "endpoints")))]
        if document.get(*path, "auth_header") is not None and all(document.get(*key) is None for key in keys):
            document.warn((*path, "auth_header"), "has no effect without api_key")


def _check_alternatives(document: Document) -> None:
    """Report prompts, MCP servers and webhooks that set none, or several, of alternative keys."""
    for path in document.iterate_matches("prompts", "*"):
        _check_exactly_one(document, path, "text", "file")
    for path in document.iterate_matches("mcp", "servers", "*"):
        _check_exactly_one(document, path, "command", "url")
        _check_effects(document, path)
    for path in document.iterate_matches("approvals", "notify", "*"):
        _check_exactly_one(document, path, "webhook")


def _check_effects(document: Document, path: KeyPath) -> None:
    """Report keys of an MCP server that belong to the other kind."""
    kinds = {key: document.get(*path, key) is not None for key in ("command", "url")}
    for kind, keys in (("command", _OF_COMMANDS), ("url", _OF_URLS)):
        for key in keys:
            if sum(kinds.values()) == 1 and not kinds[kind] and document.get(*path, key):
                document.warn((*path, key), f"has no effect without {kind}")


def _check_tools(document: Document) -> None:
    """Report a tool whose value is null: a named tool is meant to be on, and null would be read as off."""
    tools = document.get("tools")
    for name, tool in tools.items() if isinstance(tools, dict) else ():
        if tool is None:
            document.complain(("tools", name), "write {} to have it with its defaults, or remove it")
        elif not _TOOL_NAME.match(name):
            document.complain(("tools", name), "expected a name of 1 to 64 letters, digits, '_' or '-'", key=True)


def _check_services(document: Document) -> None:
    """Report a service whose name may be taken for another's, or for the gateway's own."""
    names = ServiceNames()
    for path in document.iterate_matches("mcp", "servers", "*"):
        name = str(path[-1])
        if (problem := names.find_problem(name)) is not None:
            document.complain(path, f"{problem}: choose another name", key=True)
        names.add(name)


def _check_judged_tools(document: Document) -> None:
    """Report risk rules and assessors for tools that do not exist, except tools of plugins."""
    tools = document.get("tools")
    if set(tools if isinstance(tools, dict) else ()) - BUILT_IN:
        return
    sections: tuple[Literal["rules", "assessors"], ...] = ("rules", "assessors")
    for section in sections:
        for path in document.iterate_matches("risk", section, "*"):
            if (problem := describe_missing_tool(section, str(path[-1]))) is not None:
                document.complain(path, problem, key=True)


def _check_exactly_one(document: Document, path: KeyPath, *keys: str) -> None:
    """Report a section that sets none or several of the keys."""
    if not isinstance(document.get(*path), dict):
        return
    given = [key for key in keys if document.get(*path, key) is not None]
    if not given:
        document.complain(path, f"expected {' or '.join(keys)}")
    elif len(given) > 1:
        document.complain((*path, given[1]), f"{' and '.join(given)} are both given: keep one of the two", key=True)
