"""The part of features in the console: each has its pages and its entries of the navigation in `console.py`.

Their templates stand in `templates/` beside it, and their Chinese in `chinese.yaml`.
"""

from collections.abc import Callable, Sequence

from gateway.console.request import ENTRIES, NavigationEntry, Page
from gateway.features.registry import load_parts


def collect_entries() -> Sequence[NavigationEntry]:
    """Return all entries of the navigation. One of a feature stands behind the entry that it names."""
    found = list(ENTRIES)
    for part in load_parts("console"):
        entry: NavigationEntry
        for entry in part.ENTRIES:
            places = [place for place, other in enumerate(found, 1) if other.path == entry.after]
            found.insert(places[0] if places else len(found), entry)
    return found


def collect_pages(now_s: Callable[[], float]) -> Sequence[Page]:
    """Return the pages of all features. `now_s` returns the Unix time."""
    return [page for part in load_parts("console") for page in part.build_pages(now_s)]
