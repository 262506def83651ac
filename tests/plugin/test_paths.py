"""Facts in a spelling: characters that nobody sees, paths that hold secrets."""

import pytest
from measuring import Effort

from gateway.plugin.paths import find_concern, find_glob_concern, find_unseen


@pytest.mark.parametrize("text", ["", "a\tb\nc", "你好，世界", "é e\u0301", "⚠\ufe0f 👍🏽", "完成\u3000了", "مرحبا"])
def test_visible_text_yields_no_unseen_character(text: str) -> None:
    """Letters of every script, marks, emoji, tabs and line ends show."""
    assert find_unseen(text) is None


@pytest.mark.parametrize(
    "character",
    ["\0", "\x1b", "\r", "\x7f", "\x85", "\xa0", "\xad", "\u200b", "\u200d", "\u2028", "\u202e", "\u2066", "\u3164",
     "\ufeff", "\ufe01", "\ue000", "\ud800", "\U000e0041", "\U000e0101", "\U0001ffff", "\u2800"],
)  # fmt: skip
def test_invisible_character_is_reported_by_code_point(character: str) -> None:
    """Controls, blanks in disguise, directions, tags and surrogates are named by their code point."""
    assert find_unseen(f"a{character}b") == f"U+{ord(character):04X}"
    assert find_unseen(f"你{character}b") == f"U+{ord(character):04X}"


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
def test_path_concern_states_the_reason(path: str, why: str) -> None:
    """Dot segments, separators and case are seen through."""
    assert why in str(find_concern(path))


@pytest.mark.parametrize(
    "path", ["", ".", "/", "a.py", "/proc/cpuinfo", "/proc", "C:\\a", "2024-01-01T00:00", "/rooted"]
)
def test_ordinary_paths_raise_no_concern(path: str) -> None:
    """Nothing in them says secret."""
    assert find_concern(path) is None


def test_glob_that_may_match_secrets_raises_concern() -> None:
    """In system folders, home, and wherever a name that it matches is one of a secret."""
    paths = (
        "/etc/*", "~/*", "a/.*", ".e?v", "/*/shadow", "/proc/*/environ", "*", "a/*", "server.ke?", "s[ae]cret",
        "id_*",
        "*.pem", "{a,x}.key", "a.{c,key}", "a/.ss?/b", "/usr/../pr*c/x", "cred*.json", "?env.env", "*y", "[i]d_rsa",
    )  # fmt: skip
    assert [path for path in paths if not find_glob_concern(path)] == []
    paths = (
        "*.py",
        "./*.c",
        "../*.md",
        "/tmp/*.txt",
        "a/*/b",
        "*.{js,ts}",
        "*.json",
        "test_*.py",
        ".github/*.yml",
        "**/*.go",
    )
    assert [path for path in paths if find_glob_concern(path)] == []


@pytest.mark.parametrize(
    "name",
    ["id_rsa.bak", ".env~", ".env-prod", ".env_local", "kubeconfig", "kubeconfig.yaml", ".kubeconfig", "x.key.old",
    ".id_rsa.swp",
     "#a.pem#", "id_ed25519_sk", "server.key.1", "aws-credentials.json", "API_KEY.txt", "private-key", "tokens.json",
     "~root/x", "~root"],
)  # fmt: skip
def test_backup_copies_of_secret_files_raise_concern(name: str) -> None:
    """By any suffix of a backup."""
    assert find_concern(name)


@pytest.mark.parametrize(
    "name",
    [
        "id_rsa.pub",
        ".env.example",
        ".env-sample",
        ".environment",
        "monkey.py",
        "keys.md",
        "tokenizer.py",
        "a.bak",
        "~/x",
    ],
)
def test_template_and_other_file_names_raise_no_concern(name: str) -> None:
    """Nor the templates that stand beside them."""
    assert find_concern(name) is None


def test_path_check_time_is_linear_in_path_length() -> None:
    """No pattern goes back over what it read."""
    effort = Effort()
    for piece in ("../", "a/", ".env", ".", "\\", "a.b", "id_rsa", "x_"):
        find_concern(piece * 20_000)
        find_glob_concern(piece * 20_000)
    assert effort.cpu_s < 2
