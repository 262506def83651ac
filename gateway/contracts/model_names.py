"""The names of models, and the globs that name them for upstreams, endpoints, keys, limits and prices."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final
from unicodedata import normalize

#: The longest name of a model. What is longer is none, and only the glob `*` fits it: clients write what they like, and
#: a look at megabytes for each glob would hold up all others, as would sorting their marks.
MODEL_CHARS: Final = 200
#: The name of usage that models share which no glob names, and of usage that counts for every glob.
OTHER: Final = "other"
EVERY: Final = "all models"
#: Stands between the globs in a name that many models share.
_AND: Final = " | "


def is_listed_model(model: str, patterns: Iterable[str]) -> bool:
    """Return whether one of these globs names a model as it is written."""
    if len(model) > MODEL_CHARS:
        return "*" in patterns
    return any(fnmatchcase(model, pattern) for pattern in patterns)


def is_model_match(model: str, pattern: str) -> bool:
    """Return whether a glob of prices or limits names a model, however both are written.

    Clients choose how they write a name, many upstreams take all spellings for the same model, and some repeat the
    client's. Letters of any case and width, as a Chinese keyboard writes them, are the same, and blanks around them
    count nothing.
    """
    if len(model) > MODEL_CHARS:
        return pattern.strip() == "*"
    return fnmatchcase(_normalize_name(model), _normalize_name(pattern))


def build_shared_name(globs: Iterable[str]) -> str:
    """Return a name for all the models that exactly these globs of limits name."""
    return _AND.join(globs)


def may_be_shared(name: str) -> bool:
    """Return whether a row of many models may have this name, so that none may have it for itself alone."""
    return name in (OTHER, EVERY) or _AND in name


def is_usage_match(name: str, pattern: str) -> bool:
    """Return whether what was used under a name, which many models may share, is that of a glob."""
    if name == EVERY or not pattern.strip("* "):
        return True
    return name != OTHER and (pattern in name.split(_AND) or is_model_match(name, pattern))


def _normalize_name(name: str) -> str:
    if not name.isascii():
        name = normalize("NFKC", name)
    return name.strip().casefold()
