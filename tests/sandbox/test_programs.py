"""The program that a name means."""

import pytest

from gateway.sandbox.programs import program


def test_a_name_is_looked_for_in_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the gateway's own PATH says."""
    monkeypatch.setenv("PATH", "/nowhere")
    assert program("ls") in ("/usr/bin/ls", "/bin/ls")


@pytest.mark.parametrize("name", ["", ".", "..", "no-such-program", "/bin/ls", "./ls", "../bin/ls", "x/"])
def test_everything_else_is_no_program_of_the_system(name: str) -> None:
    """Folders and paths included."""
    assert program(name) is None
