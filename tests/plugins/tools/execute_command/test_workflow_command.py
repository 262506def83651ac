"""Values of a workflow in a command: read by real shells, a value is always one word, or a part of one."""

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.contracts.templates import split_pieces
from gateway.plugins.tools.execute_command.workflow_command import build_command

SHELLS = [[path] for name in ("dash", "bash") if (path := shutil.which(name))]
SHELLS += [[path, "sh"] for path in [shutil.which("busybox")] if path]


def command(template: str, **params: object) -> str:
    return build_command(split_pieces(template, {"params": params}))


@pytest.mark.parametrize(
    ("template", "written"),
    [
        ("cat {{params.x}}", "cat 'a b'"),
        ("cat dir/{{params.x}}.txt", "cat dir/'a b'.txt"),
        ("echo 'about {{params.x}}'", "echo 'about a b'"),
        ('echo "about {{params.x}}"', 'echo "about "\'a b\'""'),
        ("echo {{params.n}} {{params.list}}", "echo '7' '[1,2]'"),
        ("ls {{params.absent}} -l", "ls  -l"),
        ("ls > {{params.absent}} x", "ls > '' x"),
        ("ls a{{params.absent}}b", "ls a''b"),
        ("echo a#b {{params.x}} # seen", "echo a#b 'a b' # seen"),
    ],
)
def test_workflow_value_is_quoted_for_its_position_in_the_command(template: str, written: str) -> None:
    """Outside quotes, within either kind; what is absent is no word."""
    assert command(template, x="a b", n=7, list=[1, 2]) == written


@pytest.mark.parametrize(
    "template",
    [
        "echo `cat {{params.x}}`",
        "echo $(cat {{params.x}})",
        'echo "$(cat {{params.x}})"',
        "echo ${HOME:-{{params.x}}}",
        "echo $(( {{params.x}} + 1 ))",
        "cat <<END\n{{params.x}}\nEND",
        "echo $'{{params.x}}'",
        "echo ${{params.x}}",
        "echo ${{params.absent}}'{{params.x}}'",
        "echo $HOME{{params.x}}$$${{params.x}}",
        "ls # {{params.x}}",
        "echo \\{{params.x}}",
        'echo "\\{{params.x}}"',
        "if ((  {{params.x}} > 1 )); then ls; fi",
    ],
)
def test_workflow_value_inside_a_nested_shell_construct_is_refused(template: str) -> None:
    """Quotes mean something else there, or nothing; the reason names the reference."""
    with pytest.raises(ValueError, match=r"\{\{params\.(x|absent)\}\}"):
        command(template, x="1")


TEMPLATES = [
    "printf '%s\\n' {{params.x}}",
    "printf '%s\\n' '{{params.x}}'",
    "printf '%s\\n' \"{{params.x}}\"",
    "printf '%s\\n' a{{params.x}}",
    'printf \'%s\\n\' "a \\" "{{params.x}}',
    "printf '%s\\n' 'it'\\''s '{{params.x}}",
    ": $HOME; printf '%s\\n' x#{{params.x}}",
]
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
HOSTILE = st.text("'\"`$(){}\\ \n;&|<>#*?[]!~-=ax", max_size=30)


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: Path(shell[0]).name)
@pytest.mark.parametrize("template", TEMPLATES)
@settings(max_examples=15)
@given(value=TEXT | HOSTILE)
@example("'; touch planted; '")
@example('"; touch planted; "')
@example("$(touch planted)`touch planted`")
@example("\\")
def test_real_shells_read_a_workflow_value_literally(template: str, shell: list[str], value: str) -> None:
    """What follows the template's own characters is the value, whatever is in it, and nothing else runs."""
    done = subprocess.run(
        [*shell, "-c", command(template, x=value)],
        capture_output=True,
        timeout=20,
        env={"HOME": "/", "LC_ALL": "C.UTF-8"},
    )
    own = {3: "a", 4: 'a " ', 5: "it's ", 6: "x#"}.get(TEMPLATES.index(template), "")
    assert (done.stdout, done.stderr) == (f"{own}{value}\n".encode(), b"")
