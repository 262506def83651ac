"""Versions, awk, printf, tar and xargs: only what lists, prints or computes."""

from contextlib import suppress

import pytest
from measuring import Effort

from gateway.plugin.shell.commands import COMMANDS
from gateway.plugin.shell.objection import Objection
from gateway.plugin.shell.parser import parse
from gateway.plugin.shell.programs import PROGRAMS, read_awk, read_jq, read_line, read_printf, read_tar, read_xargs
from gateway.plugin.shell.words import Word


def arguments(text: str) -> tuple[Word, ...]:
    return parse(text).steps[0].words[1:]


def test_program_line_must_match_completely() -> None:
    """No word more, and none that expands or hides a blank."""
    read_line("go", arguments("go version"), PROGRAMS["go"])
    for text in ("go", "go version x", "go 'version x'", "go versio*", "go version $HOME"):
        with pytest.raises(Objection):
            read_line("go", arguments(text), PROGRAMS["go"])


def test_xargs_reader_returns_the_command_it_runs() -> None:
    """Whether they stand behind or in the place of braces."""
    (run,) = read_xargs(arguments("xargs -0 -n 1 basename -a")).runs
    assert [(word.text, word.wild) for word in run] == [("basename", False), ("-a", False), ("{}", True)]
    (run,) = read_xargs(arguments("xargs -I {} echo a{}b")).runs
    assert [word.wild for word in run] == [False, True, True]
    (run,) = read_xargs(()).runs
    assert run[0].text == "echo"


@pytest.mark.parametrize("program", ["{print $1}", "NR>1", "/a|b/ {n++} END {print n}", "{for (k in a) print k}"])
def test_awk_reader_accepts_printing_programs(program: str) -> None:
    """And compare, count and split."""
    assert len(read_awk("awk", arguments(f"awk -F: -v n=0 '{program}' f ./*")).operands) == 3


@pytest.mark.parametrize(
    "program",
    ["{print > f}", "{print | c}", "{print $1}; $2>1", "BEGIN {while (1);}", "{system(c)}", "{c | getline}", "@f()",
     "{for (i = 0; ; i++);}", "BEGIN {ARGV[1] = a}", "sys\\\ntem(c)", "{printf \"%9999999d\", 1}"],
)  # fmt: skip
def test_awk_reader_refuses_output_commands_and_loops(program: str) -> None:
    """Nor hide any of that."""
    with pytest.raises(Objection):
        read_awk("awk", arguments(f"awk '{program}' f"))


def test_printf_and_tar_readers_accept_only_plain_forms() -> None:
    """A format that is written out; a list of one file of this machine."""
    read_printf(arguments("printf '%s %5d' a $HOME *"))
    read_tar(arguments("tar -tvzf a.tgz b"))
    for text in ("printf", "printf -v a", "printf $HOME", "printf '%*d' 9 9"):
        with pytest.raises(Objection):
            read_printf(arguments(text))
    for text in ("tar tf a:b", "tar xf a", "tar tf *", "tar tf a --to-command=b", "tar tft a", "tar f a"):
        with pytest.raises(Objection):
            read_tar(arguments(text))


@pytest.mark.parametrize("piece", ["print", "for (", "for  ", "%5", "|", "while", "{"])
def test_awk_reader_time_is_linear_in_program_length(piece: str) -> None:
    """It is searched once for each thing."""
    word = Word(piece * (200_000 // len(piece)), 200_000, 0)
    effort = Effort()
    with suppress(Objection):
        read_awk("awk", (Word(word.text, len(word.text), len(word.text)),))
    assert effort.cpu_s < 2


@pytest.mark.parametrize("form", ["%n", "%5n", "%ln", "%-n", "%s%n", "%1$n", "%.3n", "%Z", "%(%Y)T", "%"])
def test_printf_sets_no_variable(form: str) -> None:
    """bash writes the count of `%n` into the variable that its argument names, such as PATH."""
    with pytest.raises(Objection):
        read_printf((Word(form, len(form), len(form)), Word("PATH", 4, 4)))


@pytest.mark.parametrize(
    "text",
    ["-v OFMT=%99999f 1 f", "-v CONVFMT=x 1 f", "-v NF=9 1 f", "-v PATH=x 1 f", "1 OFMT=%99999f f", "1 NF=9 f",
     "'{printf \"%\" 9 \"d\", 1}'", "'{printf $1}'", "'{x = sprintf(f, 1)}'", "'{printf (\"%\") 9 \"d\", 1}'",
     "'{OFMT = $1; print 1.5}'", "'{print ENVIRON[\"HOME\"]}'"],
)  # fmt: skip
def test_awk_with_computed_format_or_builtin_variable_is_rejected(text: str) -> None:
    """A computed width prints more blanks than anybody reads."""
    with pytest.raises(Objection):
        read_awk("awk", arguments(f"awk {text}"))


def test_jq_reader_accepts_named_values_and_literal_filter_only() -> None:
    """A file that a name stands for is one of its files."""
    use = read_jq(arguments("jq -r --arg a 'b c' --slurpfile d d.json '.x' e.json f/*.json"), COMMANDS["jq"])
    assert [word.text for word in use.operands] == [".x", "e.json", "f/*.json"]
    assert [(option, word.text) for option, word in use.values] == [("--slurpfile", "d.json")]
    for text in ("--arg a", "--arg $HOME b .", "--arg a -f .", "--arg a $HOME .", "-f x", "--args . a", "$HOME", "env"):
        with pytest.raises(Objection):
            read_jq(arguments(f"jq {text}"), COMMANDS["jq"])


@pytest.mark.parametrize(
    "text", ["-I -m json.tool", "-m json.tool a", "-I -m json.tool --indent 2 a", "-Im pip list", "--version"]
)
def test_python_is_allowed_only_json_tool_and_pip_list(text: str) -> None:
    """With -I, which takes no module from the work folder. What looks like -m and is none is a file."""
    read_line("python3", arguments(f"python3 {text}"), PROGRAMS["python3"])
    modules = ("-m json.tool a b", "-I -m json.tool a b", "-I -m http.server", "-m pip install a")
    files = ("-I x", "-I -c 1", "-I m json.tool", "-I m pip list", "-I-m json.tool", "m json.tool", "-m -I json.tool")
    for other in (*modules, *files):
        with pytest.raises(Objection):
            read_line("python3", arguments(f"python3 {other}"), PROGRAMS["python3"])


def test_xargs_reader_accepts_an_argument_file() -> None:
    """Which is one of its values."""
    assert [(option, word.text) for option, word in read_xargs(arguments("xargs -a f wc -l")).values] == [("-a", "f")]
    for text in ("-a", "-a -x", "-a $HOME", "-a *", "-af"):
        with pytest.raises(Objection):
            read_xargs(arguments(f"xargs {text}"))
