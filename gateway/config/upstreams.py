"""The check of upstreams that are valid by themselves, but get other requests than their operator meant."""

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Final

from gateway.config.document import Document
from gateway.config.messages import suggest_nearest
from gateway.config.problems import KeyPath, quote_word
from gateway.config.schema.http import Passthrough
from gateway.contracts.quirks import QUIRKS, QUIRKS_OF_API

#: A base URL ends before these; `/models` ends some that are right.
_ENDPOINT: Final = re.compile(r"/(?:chat/completions|completions|embeddings|responses|messages)/?\Z")
#: A pattern without these fits the one name that it is.
_WILDCARD: Final = re.compile(r"[*?[]")


def check_upstreams(document: Document) -> None:
    """Report upstreams without a place, or that cannot stand in for each other; warn of what gets no request."""
    upstreams = list(document.iterate_matches("upstreams", "*"))
    for path in upstreams:
        for url in ((*path, "base_url"), *_list_urls(document, path)):
            _check_base_url(document, url)
        _check_endpoints(document, path)
        _warn_of_api(document, path)
    _check_fallbacks(document, upstreams)
    if document.get("passthrough", "by_model") is not True:
        _warn_of_taken_paths(document, upstreams)
    _warn_of_taken_models(document, upstreams)


def _list_urls(document: Document, upstream: KeyPath) -> Iterator[KeyPath]:
    """Yield the paths of the URLs of its endpoints."""
    for endpoint in document.iterate_below((*upstream, "endpoints")):
        yield (*endpoint, "url")


def _check_endpoints(document: Document, upstream: KeyPath) -> None:
    """Report an upstream that has no place or two of them, and endpoints that look the same."""
    endpoints = list(document.iterate_below((*upstream, "endpoints")))
    single = document.get(*upstream, "base_url") is not None
    if single and endpoints:
        document.complain((*upstream, "endpoints"), "base_url is given as well: keep one of the two", key=True)
    elif not single and not endpoints and isinstance(document.get(*upstream), dict):
        document.complain(upstream, "expected 'base_url', or 'endpoints' with a 'url' each")
    names: dict[str, KeyPath] = {}
    for path in endpoints:
        name = document.get(*path, "name") or _get_authority(document.get(*path, "url"))
        if isinstance(name, str) and (twin := names.setdefault(name, path)) != path:
            place = document.locate(twin)
            document.complain(path, f"{quote_word(name)} stands for the endpoint at {place}, too: give each a 'name'")
    with_key = [path for path in endpoints if document.get(*path, "api_key") is not None]
    if with_key and len(with_key) < len(endpoints) and document.get(*upstream, "api_key") is None:
        without = next(path for path in endpoints if path not in with_key)
        text = "has no api_key, and others of its upstream have: clients send either the gateway's key or their own"
        document.complain(without, f"{text}; give each endpoint a key, or the upstream one for all")
    _warn_of_rules(document, upstream, endpoints)


def _warn_of_rules(document: Document, upstream: KeyPath, endpoints: list[KeyPath]) -> None:
    """Warn of rules that can never apply."""
    unlimited = all(document.get(*path, "concurrent") is None for path in endpoints)
    if unlimited and document.get(*upstream, "queue") is not None:
        document.warn((*upstream, "queue"), "has no effect: no endpoint has a limit (endpoints[].concurrent)")
    if document.get(*upstream, "hedge") is not None and len(endpoints) < 2:
        document.warn((*upstream, "hedge"), "has no effect: there is no second endpoint")


def _warn_of_api(document: Document, upstream: KeyPath) -> None:
    """Warn of settings of another API than the upstream's."""
    api = document.get(*upstream, "api") or "chat"
    known = next((quirks for name, quirks in QUIRKS_OF_API.items() if name == api), frozenset(QUIRKS))
    for name in _list_texts(document, (*upstream, "quirks")):
        if name in QUIRKS and name not in known:
            document.warn((*upstream, "quirks"), f"{quote_word(name)} has no effect with 'api: {api}'")
    for section in ("messages", "responses"):
        if document.get(*upstream, section) is not None and section != api:
            document.warn((*upstream, section), f"has no effect without 'api: {section}'")


def _check_fallbacks(document: Document, upstreams: list[KeyPath]) -> None:
    """Report fallbacks that do not exist, and fallbacks that would get another upstream's credential."""
    by_name = {str(document.get(*path, "name")): path for path in upstreams}
    for upstream in upstreams:
        for path in document.iterate_below((*upstream, "fallback")):
            name = document.get(*path)
            if not isinstance(name, str):
                continue
            other = by_name.get(name)
            if other is None:
                hint = suggest_nearest(name, list(by_name)) or ""
                document.complain(path, f"no upstream {quote_word(name)} is declared{hint}")
            elif other == upstream:
                document.complain(path, "an upstream is no fallback of itself: name another one")
            elif _has_key(document, other) != _has_key(document, upstream):
                text = "one of the two has an api_key and the other has none: a client's credential would go to"
                document.complain(path, f"{text} the wrong one; give both a key, or none")


def _has_key(document: Document, upstream: KeyPath) -> bool:
    below = (document.get(*path, "api_key") for path in document.iterate_below((*upstream, "endpoints")))
    return any(key is not None for key in (document.get(*upstream, "api_key"), *below))


def _get_authority(url: object) -> object:
    return url.partition("://")[2].partition("/")[0] if isinstance(url, str) else None


def _check_base_url(document: Document, path: KeyPath) -> None:
    url = document.get(*path)
    if isinstance(url, str) and (found := _ENDPOINT.search(url)):
        document.complain(
            path, f"this is the URL of one endpoint: write {quote_word(url[: found.start()])}, clients add {found[0]!r}"
        )


def _warn_of_taken_paths(document: Document, upstreams: list[KeyPath]) -> None:
    """Warn of shared paths: in passthrough the first upstream with a path gets its requests, whatever their model."""
    owners: dict[str, str] = {}
    fallbacks = {document.get(*path) for path in document.iterate_matches("upstreams", "*", "fallback", "*")}
    for upstream in upstreams:
        name = str(document.get(*upstream, "name"))
        own = list(_list_texts(document, (*upstream, "paths")))
        paths = own or list(_list_texts(document, ("passthrough", "paths"))) or list(Passthrough().paths)
        taken = {path: owners[bare] for path in paths if (bare := path.rstrip("/")) in owners}
        owners = {path.rstrip("/"): name for path in paths} | owners
        if own or (document.get("context", "upstream") != name and name not in fallbacks):
            _warn_of_paths(document, upstream, taken, rest=len(paths) - len(taken))


def _warn_of_paths(document: Document, upstream: KeyPath, taken: Mapping[str, str], *, rest: int) -> None:
    """Warn of an upstream whose paths belong to earlier upstreams in passthrough."""
    if not taken:
        return
    some = ", ".join(f"{path!r} belongs to upstream {owner!r}" for path, owner in taken.items())
    by_model = document.get(*upstream, "models") is not None
    why = "whatever the model, which chooses in the context lane only" if by_model else "which comes first"
    what = "gets no request in passthrough" if not rest else "does not get all that its paths name"
    document.warn(upstream, f"{what}: {some}, {why}; give it 'paths' of its own")


def _warn_of_taken_models(document: Document, upstreams: list[KeyPath]) -> None:
    """Warn of shared patterns: in the context lane the first upstream with a fitting pattern gets the request."""
    names: dict[str, tuple[int, str]] = {}  # patterns that fit themselves only: thousands cost no more than one
    patterns: list[tuple[int, str, str]] = []
    for number, upstream in enumerate(upstreams):
        name, models = str(document.get(*upstream, "name")), list(_list_texts(document, (*upstream, "models")))
        for model in models:
            fitting = [(first, owner) for first, pattern, owner in patterns if fnmatchcase(model, pattern)]
            if model in names:
                fitting.append(names[model])
            if fitting:
                owner = min(fitting)[1]
                document.warn(
                    (*upstream, "models"), f"{quote_word(model)} belongs to upstream {owner!r}, which comes first"
                )
        for model in models:
            if _WILDCARD.search(model):
                patterns.append((number, model, name))
            else:
                names.setdefault(model, (number, name))


def _list_texts(document: Document, path: KeyPath) -> Iterator[str]:
    texts = document.get(*path)
    yield from (text for text in texts if isinstance(text, str)) if isinstance(texts, list) else ()
