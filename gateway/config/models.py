"""The check of aliases of models: each has models to try, and none of them twice."""

from gateway.config.document import Document
from gateway.config.problems import KeyPath, shown


def check_models(document: Document) -> None:
    """Report aliases without models, and models that an alias would try twice."""
    for path in document.matches("models", "*", "use"):
        if document.get(*path) == []:
            document.complain(path, "expected at least one model: an alias stands for models of upstreams")
        _check_repeats(document, path)


def _check_repeats(document: Document, path: KeyPath) -> None:
    first: dict[tuple[str, object], KeyPath] = {}
    for use in document.matches_below(path):
        model, upstream = document.get(*use, "model"), document.get(*use, "upstream")
        if isinstance(model, str) and isinstance(upstream, str | None):
            twin = first.setdefault((model, upstream), use)
            if twin != use:
                place = document.place_of(twin)
                document.complain(use, f"{shown(model)} is tried at {place} already: name each model once")
