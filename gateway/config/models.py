"""The check of aliases of models: each has models to try, none of them twice, and no aliases."""

from gateway.config.document import Document
from gateway.config.problems import KeyPath, quote_word


def check_models(document: Document) -> None:
    """Report aliases without models, and models that an alias would try twice. Warn of aliases among them."""
    for path in document.iterate_matches("models", "*", "use"):
        if document.get(*path) == []:
            document.complain(path, "expected at least one model: an alias stands for models of upstreams")
        _check_repeats(document, path)
        _warn_of_aliases(document, path)


def _check_repeats(document: Document, path: KeyPath) -> None:
    """Report a model that an alias tries twice at the same upstream."""
    first: dict[tuple[str, object], KeyPath] = {}
    for use in document.iterate_below(path):
        model, upstream = document.get(*use, "model"), document.get(*use, "upstream")
        if isinstance(model, str) and isinstance(upstream, str | None):
            twin = first.setdefault((model, upstream), use)
            if twin != use:
                place = document.locate(twin)
                document.complain(use, f"{quote_word(model)} is tried at {place} already: name each model once")


def _warn_of_aliases(document: Document, path: KeyPath) -> None:
    """Warn of a model with the name of another alias: the upstream gets a request for a model of that name."""
    for use in document.iterate_below(path):
        model = document.get(*use, "model")
        own = ("models", str(model), "use")
        if own == path or document.get(*use, "upstream") is not None or document.get(*own) is None:
            continue
        if model not in [document.get(*other, "model") for other in document.iterate_below(own)]:
            text = f"{quote_word(str(model))} is an alias, too, and is not followed: a model of this name is requested"
            document.warn((*use, "model"), f"{text}; list the models that you mean, or name its 'upstream'")
