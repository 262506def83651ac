"""A text is read command by command, those included that other commands run."""

import pytest

from gateway.plugin.shell.objection import Objection
from gateway.plugin.shell.reading import read_command


def test_each_command_has_its_reading() -> None:
    """In the order of the text."""
    _, readings = read_command("cd a && /bin/ls -l | sort; for f in x; do echo $f; done")
    assert [reading.name for reading in readings] == ["cd", "ls", "sort", "echo"]


@pytest.mark.parametrize(
    "text",
    ["rm a", "ls; rm a", "'ls'", "./ls", "/usr/bin/git log", "cat </dev/tcp/a/1", "xargs echo",
    "find . -exec rm {} +",
     "find . -exec cd {} \\;", "find . -exec /tmp/cat {} +", "ls | xargs sort", "ls | xargs cd",
     "ls | xargs xargs echo"],
)  # fmt: skip
def test_one_that_is_not_known_is_enough(text: str) -> None:
    """Wherever it stands."""
    with pytest.raises(Objection):
        read_command(text)
