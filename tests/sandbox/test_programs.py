"""The program that a name means."""

import pytest

from gateway.sandbox.programs import find_program


def test_program_name_is_resolved_in_system_folders_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the gateway's own PATH says."""
    monkeypatch.setenv("PATH", "/nowhere")
    assert find_program("ls") in ("/usr/bin/ls", "/bin/ls")


@pytest.mark.parametrize("name", ["", ".", "..", "no-such-program", "/bin/ls", "./ls", "../bin/ls", "x/"])
def test_path_or_unknown_name_does_not_resolve_to_a_program(name: str) -> None:
    """Folders and paths included."""
    assert find_program(name) is None
