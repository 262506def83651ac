"""A text is read command by command, those included that other commands run."""

import pytest

from gateway.plugin.shell.classifier import read_command
from gateway.plugin.shell.objection import Objection


def test_classifier_returns_one_reading_per_command() -> None:
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
def test_unknown_command_anywhere_raises_objection(text: str) -> None:
    """Wherever it stands."""
    with pytest.raises(Objection):
        read_command(text)


@pytest.mark.parametrize(
    "text",
    ["date +%999999Y", "find . -printf '%99999p'", "stat -c %99999n a", "seq -f %99999g 3", "nl -w 9999999 a",
     "git log --format='%<(99999)%s'", "expand -t9999999 a", "fold -9999999 a", "column -c 9999999 a"],
)  # fmt: skip
def test_excessive_output_width_is_rejected(text: str) -> None:
    """It prints as many blanks, for each line or tab."""
    with pytest.raises(Objection):
        read_command(text)


@pytest.mark.parametrize("text", ["uniq a -c", "sort -S -o a", "rg -e --pre=a", "unzip -Z a.zip b", "diff -I -l a b"])
def test_command_with_implementation_dependent_options_is_rejected(text: str) -> None:
    """A word that is a value or an operand to one of them is an option, or a file that is written, to another."""
    with pytest.raises(Objection):
        read_command(text)
