"""The names that somebody may have meant, of however many, and whoever chose them."""

import pytest
from measuring import Effort

from gateway.tools.near_names import LONGEST, find_near_names


def test_near_names_lists_the_closest_first() -> None:
    """Those that are far are left out."""
    names = ["github__create_issue", "github__close_issue", "files__read", "clock__now"]
    assert find_near_names("create_issue", names, most=3)[:1] == ["github__create_issue"]
    assert find_near_names("github__closeissue", names, most=1) == ["github__close_issue"]
    assert find_near_names("xyz", names, most=3) == find_near_names("a", [], most=3) == []


@pytest.mark.parametrize("wanted", ["abc" * 66, "abc" * 21, "a" * LONGEST, "a" * 1_000_000])
def test_near_names_time_is_bounded(wanted: str) -> None:
    """500 names of one server took 36 s, for one call of a tool that there is not."""
    effort = Effort()
    find_near_names(wanted, [f"{'acb' * length}{n}" for n in range(500) for length in (19, 40)], most=3)
    assert effort.cpu_s < 0.5
