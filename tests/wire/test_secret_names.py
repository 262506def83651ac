"""Names of secrets, of their copies, and the globs that may match one."""

import pytest

from gateway.wire.secret_names import is_secret_file, is_secret_folder, may_match_secret, may_match_secret_folder


@pytest.mark.parametrize("name", ["id_rsa", "a.pem", ".env", "secrets.yml", ".bash_history", "kubeconfig", "prod.env"])
def test_a_copy_of_a_secret_is_one(name: str) -> None:
    """By its own name, and with whatever editors and people put behind it."""
    for copy in (name, f"{name}~", f"{name}.bak", f"{name}.old.gz", f"#{name}#", f"{name}-backup", f"{name}.1"):
        assert is_secret_file(copy), copy


def test_folders_of_secrets() -> None:
    """And copies of them."""
    assert all(map(is_secret_folder, (".ssh", ".aws", ".ssh.bak", ".gnupg-old")))
    assert not any(map(is_secret_folder, ("src", "ssh", "aws")))


def test_a_glob_is_told_by_what_it_may_match() -> None:
    """A leading dot is matched by a dot only; an ending that many files have is no sign by itself."""
    assert all(map(may_match_secret, ("*", "*.k?y", "id*", ".*", "[c]redentials", "pass*.txt", "?hadow")))
    assert not any(map(may_match_secret, ("*.py", "*.txt", "*.json", "test*.go", "[a-z]*.md")))
    assert all(map(may_match_secret_folder, (".s*", ".?ws", "key*")))
    assert not any(map(may_match_secret_folder, ("*", "src*")))


@pytest.mark.parametrize("piece", [".bak", "~", "#", "-1", "_", "a.", "credentials-", "[", "*"])
def test_a_long_name_costs_no_more_than_its_length(piece: str) -> None:
    """A few suffixes are taken off, not all."""
    assert is_secret_file(piece * 2000) in (True, False)
    assert may_match_secret("*" + piece * 2000) in (True, False)
