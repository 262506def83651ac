"""A path leads out of its prefix, or ends like another one, if any server may read it so."""

from itertools import chain, combinations
from posixpath import normpath
from urllib.parse import unquote, urljoin

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.lanes.path_normalization import may_end_with, may_leave_root

SLASHES = ("%2f", "%5c", "\\")
ENDS = (b"/completions", b"/messages")
PATHS = st.lists(
    st.sampled_from(["a", "..", ".", "%2e%2E", ".%2e", "chat", "completions", "/", "//", "%2F", "%2f", "%5C", "\\"]),
    max_size=14,
).map("".join)


def readings(path: str) -> list[str]:
    """The path as servers with each set of slashes read it, before its dot segments are removed."""
    sets = chain.from_iterable(combinations(SLASHES, count) for count in range(4))
    found = []
    for known in sets:
        text = path.replace("%2F", "%2f").replace("%5C", "%5c")
        for slash in SLASHES:
            text = text.replace(slash, "/" if slash in known else "_")
        found.append(unquote(text))
    return found


@given(PATHS)
def test_path_judged_not_climbing_stays_below_its_prefix(path: str) -> None:
    """By what the standard library makes of each reading beneath a prefix."""
    out = [read for read in readings(path) if not f"{normpath(f'/deep/{read}')}/".startswith("/deep/")]
    assert may_leave_root(path.encode()) or not out, out


@given(PATHS)
def test_path_ending_is_found_in_every_server_reading(path: str) -> None:
    """Neither one that merges slashes, nor one that takes the dot segments of RFC 3986 away."""
    for read in readings(f"/v1/chat/{path}"):
        tidy = (normpath(read), urljoin("http://h/", read.lstrip("/")).rstrip("/"))
        if any(one.encode().endswith(ENDS) for one in tidy):
            assert may_end_with(f"/v1/chat/{path}".encode(), ENDS), tidy


@pytest.mark.parametrize(
    "path",
    [
        rb"a\b\c%2f..%2f..%2f..%2fteam-b",
        rb"a\b\c/..%2f..%2f..%2fteam-b",
        rb"a%2fb%2fc\..\..\..\x",
        rb"a%5cb%5c..%2f..%2f..%2fx",
        rb"a%5Cb\c%2f../../x",
        b"a/" * 1000 + b"..",  # too long to be read in all ways
    ],
)
def test_path_climbing_in_one_server_reading_is_climbing(path: bytes) -> None:
    """Whatever others take its slashes for."""
    assert may_leave_root(path)


@pytest.mark.parametrize(
    "path",
    [rb"a\b/..", rb"a%2fb\c", b"a/b/../../c", b"..;/x", b"%252e%252e/x", b"..a/b", b"...", b"%2", b"a" * 3000 + b"%2e"],
)
def test_path_below_prefix_in_every_reading_is_not_climbing(path: bytes) -> None:
    assert not may_leave_root(path)


@pytest.mark.parametrize(
    "path",
    [
        rb"/v1/chat/completions/q\r/..",
        b"/v1/chat/completions//..",
        b"/v1/chat/completions/x%2fy/..",
        b"/v1/chat/compl%65tions/",
        b"/v1/chat/Completions;x=y",
        b"/v1/chat/completions%20",
    ],
)
def test_path_that_may_be_a_model_endpoint_is_detected(path: bytes) -> None:
    assert may_end_with(path, ENDS)


@pytest.mark.parametrize("path", [b"/v1/chat/completions/x", b"/v1/completionsx", b"/v1/files/a%20b", b"/v1/models"])
def test_path_of_another_endpoint_is_not_a_model_endpoint(path: bytes) -> None:
    assert not may_end_with(path, ENDS)
