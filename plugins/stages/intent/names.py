"""The names by which users call services and their tools, and their names for models."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from gateway.plugin import encode_model_name
from gateway.plugin.text import Phrases, fold_phrase


@dataclass(frozen=True, slots=True)
class NamedService:
    """The words of one service. It is hashable, so that an index is built once for each set of services."""

    name: str
    keywords: tuple[str, ...]
    tools: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NameMeaning:
    """One meaning of a word: the service at `service` in the configured order, and its tool if it names one.

    `weak`: the word has this meaning only with a word like "tool" or "service" behind it.
    """

    service: int
    tool: str | None = None
    weak: bool = False


@dataclass(frozen=True, slots=True)
class NameIndex:
    """The index of names. `called`: the names for explicit calls. `keywords`: each keyword's services and spellings."""

    called: Mapping[str, tuple[NameMeaning, ...]]
    keywords: Mapping[str, tuple[tuple[int, str], ...]]
    phrases: Phrases


@lru_cache(maxsize=8)
def build_name_index(services: tuple[NamedService, ...]) -> NameIndex:
    """Build the index. The last 8 are cached: that of the running configuration, and a few while it changes."""
    called: dict[str, list[NameMeaning]] = {}
    keywords: dict[str, list[tuple[int, str]]] = {}
    for i, service in enumerate(services):
        for tool in service.tools:
            named = NameMeaning(i, tool)
            qualified = (
                f"{service.name}.{tool}",
                f"{service.name}__{tool}",
                encode_model_name(f"{service.name}.{tool}"),
            )
            _add_meaning(called, {tool, tool.replace("_", "-"), *qualified}, named)
            _add_meaning(called, {tool.replace("_", " ")}, NameMeaning(i, tool, weak=True))
        _add_meaning(called, {service.name, service.name.replace("_", "-")}, NameMeaning(i))
        _add_meaning(called, {service.name.replace("_", " "), *service.keywords}, NameMeaning(i, weak=True))
        for keyword in service.keywords:
            folded = fold_phrase(keyword)
            if folded:
                keywords.setdefault(folded, []).append((i, keyword))
    return NameIndex(
        {word: tuple(named) for word, named in called.items()},
        {word: tuple(found) for word, found in keywords.items()},
        Phrases({*called, *keywords}),
    )


@lru_cache(maxsize=8)
def build_phrase_set(phrases: tuple[str, ...]) -> Phrases:
    return Phrases(phrases)


def _add_meaning(called: dict[str, list[NameMeaning]], words: Iterable[str], named: NameMeaning) -> None:
    for folded in {fold_phrase(word) for word in words} - {""}:
        known = called.setdefault(folded, [])
        if replace(named, weak=False) not in known:
            known.append(named)
