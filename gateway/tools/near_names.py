"""The names that a caller may have meant by another one, in bounded time for any names.

Comparing two names takes up to the cube of their length. So few are compared, and no long ones.
"""

from collections.abc import Iterable
from heapq import nlargest
from typing import Final

#: Longer names are near to none, and none is near to them: models take names of 64 characters at most.
LONGEST: Final = 64
#: So many names are compared: the ones with the most letters in common.
COMPARED: Final = 10
_CUTOFF: Final = 0.5


def find_near_names(wanted: str, names: Iterable[str], *, most: int) -> list[str]:
    """Return the names that are nearest to the wanted one, `most` at most."""
    # Imported here because it takes 0.15 MB, and few names are wrong.
    from difflib import SequenceMatcher, get_close_matches

    if len(wanted) > LONGEST:
        return []
    matcher = SequenceMatcher(b=wanted)

    def measure_similarity(name: str) -> float:
        matcher.set_seq1(name)
        return matcher.quick_ratio()

    alike = nlargest(COMPARED, (name for name in names if len(name) <= LONGEST), key=measure_similarity)
    return get_close_matches(wanted, alike, n=most, cutoff=_CUTOFF)
