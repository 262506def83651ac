"""Names of secrets, of their copies, and the globs that may match one."""

import pytest

from gateway.plugin.paths import find_concern
from gateway.plugin.secret_names import is_secret_file, is_secret_folder, may_match_secret, may_match_secret_folder


@pytest.mark.parametrize("name", ["id_rsa", "a.pem", ".env", "secrets.yml", ".bash_history", "kubeconfig", "prod.env"])
def test_copy_of_a_secret_file_is_a_secret_file(name: str) -> None:
    """By its own name, and with whatever editors and people put behind it."""
    for copy in (name, f"{name}~", f"{name}.bak", f"{name}.old.gz", f"#{name}#", f"{name}-backup", f"{name}.1"):
        assert is_secret_file(copy), copy


def test_secret_folders_and_their_copies_are_detected() -> None:
    """And copies of them."""
    assert all(map(is_secret_folder, (".ssh", ".aws", ".ssh.bak", ".gnupg-old")))
    assert not any(map(is_secret_folder, ("src", "ssh", "aws")))


def test_glob_is_secret_if_it_may_match_a_secret_name() -> None:
    """A leading dot is matched by a dot only; an ending that many files have is no sign by itself."""
    assert all(map(may_match_secret, ("*", "*.k?y", "id*", ".*", "[c]redentials", "pass*.txt", "?hadow")))
    assert not any(map(may_match_secret, ("*.py", "*.txt", "*.json", "test*.go", "[a-z]*.md")))
    assert all(map(may_match_secret_folder, (".s*", ".?ws", "key*")))
    assert not any(map(may_match_secret_folder, ("*", "src*")))


@pytest.mark.parametrize("piece", [".bak", "~", "#", "-1", "_", "a.", "credentials-", "[", "*"])
def test_secret_name_check_of_long_names_is_fast(piece: str) -> None:
    """A few suffixes are taken off, not all."""
    assert is_secret_file(piece * 2000) in (True, False)
    assert may_match_secret("*" + piece * 2000) in (True, False)


@pytest.mark.parametrize(
    "path",
    [
        *("prod.tfvars", "wp-config.php", "gcp-key.json", "app-firebase-adminsdk-x1.json", "auth.json", "AuthKey_1.p8"),
        *("client_secret_12.apps.googleusercontent.com.json", ".credentials.json", "credentials.csv", "accessKeys.csv"),
        *("config/database.yml", "key4.db", "logins.json", "Login Data", "cookies.sqlite", "cookies.txt", "passwords"),
        *(".secrets", ".secret", ".git/config", "a/.git/config.worktree", "x.git/config", ".git/modules/a/config"),
        *(".git/FETCH_HEAD", ".hg/hgrc", "secrets/db.yml", "pip/pip.conf"),
        *("wg0.conf", "/etc/wireguard/wg0.conf", "/tmp/krb5cc_0", ".Xauthority", "env.production", "login.keychain-db"),
        *("/etc/NetworkManager/system-connections/home", ".config/gh/hosts.yml", ".m2/settings.xml", "app-secrets.yml"),
        *("/etc/security/opasswd", ".gnupg/private-keys-v1.d/1", "rclone.conf", "local.settings.json", ".claude.json"),
    ],
)
def test_secret_file_paths_are_recognised_by_name_and_folder(path: str) -> None:
    """By name, by folder, or by both together."""
    assert find_concern(path) is not None


@pytest.mark.parametrize(
    "path",
    [
        *(
            "/etc/passwd",
            "hosts.yml",
            "settings.xml",
            "package.json",
            "tsconfig.json",
            "src/auth.ts",
            "docs/secrets.md",
        ),
        *(
            "main.tf",
            "git/config",
            ".git/HEAD",
            "config",
            ".config/x",
            "cookies.py",
            "keys.go",
            "keyboard.json",
            "google-analytics.json",
            "test_passwords.py",
            "env.py",
        ),
    ],
)
def test_ordinary_file_names_are_not_secret(path: str) -> None:
    """A program about secrets is no secret."""
    assert find_concern(path) is None


def test_overlong_file_name_is_reported_secret_without_scanning() -> None:
    """It would take quadratic time; no file has it."""
    assert is_secret_file("gcp-" + "-key" * 50_000)
