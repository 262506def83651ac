"""What a spelling tells: characters that nobody sees, paths that hold secrets."""

import time

import pytest

from gateway.wire.shell_paths import concern, glob_concern, unseen


@pytest.mark.parametrize("text", ["", "a\tb\nc", "你好，世界", "é e\u0301", "⚠\ufe0f 👍🏽", "完成\u3000了", "مرحبا"])
def test_what_a_person_sees_is_no_concern(text: str) -> None:
    """Letters of every script, marks, emoji, tabs and line ends show."""
    assert unseen(text) is None


@pytest.mark.parametrize(
    "character",
    ["\0", "\x1b", "\r", "\x7f", "\x85", "\xa0", "\xad", "\u200b", "\u200d", "\u2028", "\u202e", "\u2066", "\u3164",
     "\ufeff", "\ufe01", "\ue000", "\ud800", "\U000e0041", "\U000e0101", "\U0001ffff", "\u2800"],
)  # fmt: skip
def test_what_nobody_sees_is_named(character: str) -> None:
    """Controls, blanks in disguise, directions, tags and surrogates are named by their code point."""
    assert unseen(f"a{character}b") == f"U+{ord(character):04X}"
    assert unseen(f"你{character}b") == f"U+{ord(character):04X}"


@pytest.mark.parametrize(
    ("path", "why"),
    [
        (".env", "secrets"),
        ("a/b/.SSH/config", "secrets"),
        ("../../etc/shadow", "secrets"),
        ("x/../../root/a", "private place"),
        ("/root", "private place"),
        ("/proc/self/maps", "processes"),
        ("/procfs/../proc/1/mem", "processes"),
        ("/dev/sda", "device"),
        ("\\\\server\\share", "another machine"),
        ("file:///a", "URL"),
    ],
)
def test_a_concern_says_why(path: str, why: str) -> None:
    """Dot segments, separators and case are seen through."""
    assert why in str(concern(path))


@pytest.mark.parametrize(
    "path", ["", ".", "/", "a.py", "/proc/cpuinfo", "/proc", "C:\\a", "2024-01-01T00:00", "/rooted"]
)
def test_ordinary_paths_are_no_concern(path: str) -> None:
    """Nothing in them says secret."""
    assert concern(path) is None


def test_a_glob_may_match_secrets_where_secrets_are() -> None:
    """In system folders, home and hidden names; not among ordinary files."""
    assert all(glob_concern(path) for path in ("/etc/*", "~/*", "a/.*", ".e?v", "/*/shadow", "/proc/*/environ"))
    assert not any(glob_concern(path) for path in ("*.py", "./*.c", "../*.md", "/tmp/*", "a/*/b"))


def test_long_paths_cost_no_more_than_their_length() -> None:
    """No pattern goes back over what it read."""
    started = time.perf_counter()
    for piece in ("../", "a/", ".env", ".", "\\", "a.b", "id_rsa", "x_"):
        concern(piece * 20_000)
        glob_concern(piece * 20_000)
    assert time.perf_counter() - started < 2
