"""The check of limits that could not be counted or shared, or would not hold where their operator expects it."""

import importlib.util
from collections.abc import Iterator

from gateway.config.document import Document
from gateway.config.feature_checks import FeatureChecks
from gateway.config.problems import ConfigError, KeyPath, quote_word
from gateway.config.schema.settings import Settings
from gateway.contracts.allowance import BUDGETS
from gateway.contracts.model_names import is_model_match, may_be_shared
from gateway.features.usage.section_prices import load_prices


def check_limits(document: Document) -> None:
    """Report budgets without usage or prices; warn of limits of models that passthrough does not see."""
    _check_valkey(document)
    records = document.get("usage", "enabled") is True
    for path in _list_budgets(document):
        if not records:
            document.complain(path, "is counted by usage, which is not recorded: set usage.enabled to true", key=True)
        elif str(path[-1]).startswith("cost_") and document.get("usage", "prices") is None:
            document.complain(path, "is counted by prices, and usage.prices names no file of them", key=True)
    if document.get("passthrough", "by_model") is not True:
        for path in document.iterate_matches("limits", "models", "*"):
            document.warn(path, "does not count what passes through: set passthrough.by_model to true")
    for path in document.iterate_matches("limits", "models", "*"):
        _warn_of_aliases(document, path)
        if may_be_shared(glob := str(path[-1])):
            other = glob.replace("|", "[|]") if "|" in glob else f"{glob[:-1]}[{glob[-1]}]"
            document.complain(
                path, f"is a name of usage that many models share: write it as {quote_word(other)}", key=True
            )


def _check_valkey(document: Document) -> None:
    """Report a place of shares that is not used, or has no client."""
    path = "limits", "valkey"
    if document.get(*path) is None:
        return
    if document.get("limits", "shared") is False:
        document.complain(path, "is where gateways share limits, and limits.shared is false: remove one", key=True)
    elif importlib.util.find_spec("valkey") is None:
        document.complain(path, "needs a client of Valkey: pip install 'twolane[valkey]'", key=True)


def _warn_of_aliases(document: Document, path: KeyPath) -> None:
    """Warn of a limit that names an alias: calls have the names of the models that the alias stands for."""
    glob = str(path[-1])
    for alias in document.iterate_matches("models", "*"):
        if not is_model_match(str(alias[-1]), glob):
            continue
        models = [str(document.get(*use, "model")) for use in document.iterate_below((*alias, "use"))]
        if missed := [model for model in dict.fromkeys(models) if not is_model_match(model, glob)]:
            document.warn(
                path,
                f"does not count {', '.join(map(quote_word, missed))}, for which the alias {quote_word(str(alias[-1]))}"
                " stands: limits count models by their own names, so write one for each of them",
            )


def check_prices(document: Document, settings: Settings) -> None:
    """Warn of budgets that count models without a price. What is wrong in the file of prices is reported elsewhere."""
    costs = [path for path in _list_budgets(document) if str(path[-1]).startswith("cost_")]
    if not costs:
        return
    try:
        prices = load_prices(settings.usage)
    except ConfigError:
        return
    if not prices.covers_all_models:
        for path in costs:
            document.warn(
                path,
                "counts models without a price at the highest prices of usage.prices: write an entry for '*' there, as "
                "the last one",
            )


def _list_budgets(document: Document) -> Iterator[KeyPath]:
    """Yield the path of each figure for a day or a month."""
    for owner in (
        ("keys", "*", "limits"),
        ("upstreams", "*", "limits"),
        ("limits", "tenants", "*"),
        ("limits", "models", "*"),
    ):
        for name in BUDGETS:
            yield from (path for path in document.iterate_matches(*owner, name) if document.get(*path) is not None)


CHECKS = FeatureChecks(check_document=check_limits, check_settings=check_prices)
