"""Paths beneath a folder: what is refused, what is opened, and what no race opens."""

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.plugins.tools.file_operations.safe_open import (
    PathRefusedError,
    open_beneath,
    open_by_kernel,
    open_by_walk,
    split_components,
)
from tests.sandbox.machine import exchanging

Open = Callable[[int, Sequence[str], int], int]
WAYS = (open_beneath, open_by_kernel, open_by_walk)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    inside = tmp_path / "inside"
    (inside / "a" / "b").mkdir(parents=True)
    (inside / "a" / "file").write_text("inside")
    (tmp_path / "secret").write_text("secret")
    descriptor = os.open(inside, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def content(way: Open, root: int, *names: str) -> bytes:
    descriptor = way(root, names, os.O_RDONLY)
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("a/file", ("a", "file")),
        ("./a//file/", ("a", "file")),
        ("a/b/../file", ("a", "file")),
        (".", ()),
        ("", ()),
        ("...", ("...",)),
        ("a b/ü.txt", ("a b", "ü.txt")),
        ("price$.txt", ("price$.txt",)),
        ("50%.txt", ("50%.txt",)),
    ],
)
def test_components_resolve_dots_and_double_slashes(path: str, names: tuple[str, ...]) -> None:
    """Dots and doubled slashes mean what they always mean."""
    assert split_components(path) == names


@pytest.mark.parametrize(
    "path",
    [
        "..",
        "../x",
        "a/../../x",
        "a/../../inside/file",
        "/etc/passwd",
        "//etc/passwd",
        "%2e%2e/x",
        "%2E%2E%2Fx",
        "a/..%2f..%2fx",
        "..\\x",
        "a\\..\\..\\x",
        "a\0b",
        "a\nb",
        "a\x7fb",
        "~/x",
        "~root/x",
        "$HOME/x",
        "${HOME}/x",
        "file:///etc/passwd",
        "FILE:/etc/passwd",
        "x" * 5000,
        "x" * 256,
        "é" * 128,
        "a/" * 65 + "x",
        "\ud800",
    ],
)
def test_components_refuse_traversal_in_every_spelling(path: str) -> None:
    """T1: by its spelling alone, so that nothing is told about what is there."""
    with pytest.raises(PathRefusedError):
        split_components(path)


@given(st.text(alphabet=st.sampled_from("ab./\\~%2eE\0é"), max_size=60))
def test_components_never_contain_dots_slashes_or_empty_names(path: str) -> None:
    """Whatever is accepted has no dots, no slashes and no emptiness left."""
    with suppress(PathRefusedError):
        for name in split_components(path):
            assert name not in ("", ".", "..") and "/" not in name and "\0" not in name


@pytest.mark.parametrize("way", WAYS)
def test_safe_open_opens_files_and_folders_beneath_the_root(way: Open, root: int) -> None:
    """Files and folders, and the folder itself."""
    assert content(way, root, "a", "file") == b"inside"
    for names in ((), ("a",)):
        descriptor = way(root, names, os.O_RDONLY | os.O_DIRECTORY)
        assert os.get_inheritable(descriptor) is False
        os.close(descriptor)


@pytest.mark.parametrize("way", WAYS)
def test_safe_open_raises_the_system_error_for_missing_paths(way: Open, root: int) -> None:
    """As the system says it."""
    with pytest.raises(FileNotFoundError):
        way(root, ("a", "nothing"), os.O_RDONLY)
    with pytest.raises(NotADirectoryError):
        way(root, ("a", "file", "x"), os.O_RDONLY)


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_PATH, os.O_RDONLY | os.O_DIRECTORY, os.O_WRONLY])
@pytest.mark.parametrize("way", WAYS)
def test_safe_open_follows_no_symbolic_link(way: Open, flags: int, root: int, tmp_path: Path) -> None:
    """T2: a file, a folder, a chain of 50, a dangling one, one that stays inside: all refused, in one text."""
    inside = tmp_path / "inside"
    (inside / "to-file").symlink_to(tmp_path / "secret")
    (inside / "to-folder").symlink_to(tmp_path)
    (inside / "dangling").symlink_to(tmp_path / "nothing")
    (inside / "within").symlink_to("a")
    (inside / "chain0").symlink_to(tmp_path / "secret")
    for number in range(50):
        (inside / f"chain{number + 1}").symlink_to(f"chain{number}")
    said = set()
    for names in (("to-file",), ("to-folder", "secret"), ("dangling",), ("within", "file"), ("within",), ("chain50",)):
        with pytest.raises(PathRefusedError) as refused:
            os.close(way(root, names, flags))
        said.add(str(refused.value))
    assert len(said) == 1


@pytest.mark.parametrize("way", WAYS)
def test_safe_open_reads_nothing_outside_during_symlink_races(way: Open, root: int, tmp_path: Path) -> None:
    """While a name changes between a folder and a link to the outside, only the inside is ever read."""
    inside = tmp_path / "inside"
    (inside / "link").symlink_to(tmp_path)
    (tmp_path / "file").write_text("outside")
    seen = set()
    with exchanging(inside / "a", inside / "link"):
        for _ in range(10_000):
            with suppress(PathRefusedError, NotADirectoryError):
                seen.add(content(way, root, "a", "file"))
    assert seen <= {b"inside"}


@pytest.mark.parametrize("way", WAYS)
def test_safe_open_returns_at_once_on_a_pipe(way: Open, root: int, tmp_path: Path) -> None:
    """Opening one for reading returns at once."""
    os.mkfifo(tmp_path / "inside" / "pipe")
    opened = way(root, ("pipe",), os.O_RDONLY)
    assert stat.S_ISFIFO(os.fstat(opened).st_mode)
    os.close(opened)
