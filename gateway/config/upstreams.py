"""The check of upstreams that are valid by themselves, but get other requests than their operator meant."""

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Final

from gateway.config.document import Document
from gateway.config.problems import KeyPath, shown
from gateway.config.schema.http import Passthrough

#: A base URL ends before these; `/models` ends some that are right.
_ENDPOINT: Final = re.compile(r"/(?:chat/completions|completions|embeddings|responses|messages)/?\Z")
#: A pattern without these fits the one name that it is.
_WILDCARD: Final = re.compile(r"[*?[]")


def check_upstreams(document: Document) -> None:
    """Report base URLs that name an endpoint, and warn of upstreams hidden behind earlier ones."""
    upstreams = list(document.matches("upstreams", "*"))
    for path in upstreams:
        _check_base_url(document, (*path, "base_url"))
    _warn_of_taken_paths(document, upstreams)
    _warn_of_taken_models(document, upstreams)


def _check_base_url(document: Document, path: KeyPath) -> None:
    url = document.get(*path)
    if isinstance(url, str) and (found := _ENDPOINT.search(url)):
        document.complain(
            path, f"this is the URL of one endpoint: write {shown(url[: found.start()])}, clients add {found[0]!r}"
        )


def _warn_of_taken_paths(document: Document, upstreams: list[KeyPath]) -> None:
    """Warn of shared paths: in passthrough the first upstream with a path gets its requests, whatever their model."""
    owners: dict[str, str] = {}
    for upstream in upstreams:
        name = str(document.get(*upstream, "name"))
        own = list(_texts(document, (*upstream, "paths")))
        paths = own or list(_texts(document, ("passthrough", "paths"))) or list(Passthrough().paths)
        taken = {path: owners[bare] for path in paths if (bare := path.rstrip("/")) in owners}
        owners = {path.rstrip("/"): name for path in paths} | owners
        if own or document.get("context", "upstream") != name:
            _warn_of_paths(document, upstream, taken, rest=len(paths) - len(taken))


def _warn_of_paths(document: Document, upstream: KeyPath, taken: Mapping[str, str], *, rest: int) -> None:
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
        name, models = str(document.get(*upstream, "name")), list(_texts(document, (*upstream, "models")))
        for model in models:
            fitting = [(first, owner) for first, pattern, owner in patterns if fnmatchcase(model, pattern)]
            if model in names:
                fitting.append(names[model])
            if fitting:
                owner = min(fitting)[1]
                document.warn((*upstream, "models"), f"{shown(model)} belongs to upstream {owner!r}, which comes first")
        for model in models:
            if _WILDCARD.search(model):
                patterns.append((number, model, name))
            else:
                names.setdefault(model, (number, name))


def _texts(document: Document, path: KeyPath) -> Iterator[str]:
    texts = document.get(*path)
    yield from (text for text in texts if isinstance(text, str)) if isinstance(texts, list) else ()
