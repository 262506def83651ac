"""find, test, sed -n and command -v: only what prints or answers, in every spelling."""

import pytest

from gateway.plugin.shell.command_grammars import find_paths, is_narrow, read_find, read_lookup, read_sed, read_test
from gateway.plugin.shell.objection import Objection
from gateway.plugin.shell.options import CommandUse
from gateway.plugin.shell.parser import parse
from gateway.plugin.shell.words import Word


def arguments(text: str) -> tuple[Word, ...]:
    return parse(text).steps[0].words[1:]


def find(text: str) -> CommandUse:
    return read_find(arguments(f"find {text}"))


def test_find_reader_separates_starting_points_and_tests() -> None:
    """What stands before the first test is where it starts; values are kept with their tests."""
    read = find("-L a b -name '*.py' ! -newer ref -print")
    assert [word.text for word in read.operands] == ["a", "b"]
    assert [(test, word.text) for test, word in read.values] == [("-name", "*.py"), ("-newer", "ref")]
    assert [word.text for word in find_paths(read)] == ["a", "b", "ref"]


@pytest.mark.parametrize(
    "text",
    [". -delete", ". -exec a", ". -fprint a", ". -nope", ". -name", ". -newerXX a", ". -name a b", "*", ". -name *",
     "{a,-delete}", ". -name [-]x", ". -n*", "$USER", ". -print {-delete,a}", "-D exec .", "[-.]delete",
     ". $SHELL-delete",
     '"$USER" -name a', ". -name $USER", ". -name a$USER.c", "a$PWD", ". -exec cat {}",
     ". -exec echo a + b {} +", ". -exec echo {} a + -print", ". -exec echo -delete {} +", ". -name -delete",
     ". -newer -fprint", ". -exec cat * {} +", ". -execdir cat {} +", ". -ok cat {} \\;"],
)  # fmt: skip
def test_find_with_actions_or_unknown_tests_raises_objection(text: str) -> None:
    """Actions with effects, unknown tests, and globs that may become one."""
    with pytest.raises(Objection):
        find(text)


def test_find_reader_accepts_globs_that_cannot_be_tests() -> None:
    """No test begins with a letter, and none has a dot in it."""
    for text in (
        ". -name *.py",
        "*.d -name a",
        "src/* -type f",
        "a* -empty",
        ". -name a*",
        "~ -name a",
        '. -name "$HOME"',
    ):
        find(text)


def test_is_narrow_recognises_find_limited_by_name_or_depth() -> None:
    """By a pattern with something fixed in it, or by its depth."""
    assert all(is_narrow(find(text)) for text in ("/ -name hosts", "/ -iname '*.conf'", "/ -maxdepth 1"))
    assert not any(
        is_narrow(find(text)) for text in ("/", "/ -name '*'", "/ -name '*.*'", "/ -type f", "/ -maxdepth 9")
    )


@pytest.mark.parametrize("text", ["-f a", "! -d 'a b'", "a", "", "a = b", "1 -lt 2", '-n "$HOME"', "a -nt b"])
def test_shell_test_accepts_one_plain_condition(text: str) -> None:
    """As `test` and as `[`."""
    read_test("test", arguments(f"test {text}"))
    read_test("[", arguments(f"[ {text} ]"))


@pytest.mark.parametrize("text", ["-v a", "-f 'a[$(x)]'", "a -eq b", "-f a -o -f b", "-R a", "-f *", "\\( a \\)"])
def test_shell_test_refuses_other_conditions(text: str) -> None:
    """What evaluates, expands or combines; and `[` without its end."""
    for name, words in (("test", f"test {text}"), ("[", f"[ {text} ]"), ("[", "[ -f a")):
        with pytest.raises(Objection):
            read_test(name, arguments(words))


@pytest.mark.parametrize(
    "script", ["5p", "1,9p", "$p", "1~2p", "2,+3p", "/a b/p", "/a/,/b/p", "/a/,$p", "1p;3,4p", "p"]
)
def test_sed_reader_accepts_printing_scripts(script: str) -> None:
    """Addresses and p, with files behind."""
    read = read_sed(arguments(f"sed -n '{script}' a ./*"))
    assert [word.text for word in read.operands] == ["a", "./*"]


@pytest.mark.parametrize(
    "words",
    [
        "5p",
        "10q",
        "'$='",
        "'s/^[ \\t]*//;s/[[:space:]]*$//'",
        "-n -e 1p -e '/a/!p'",
        "-e s/a/b/ -e '/^#/d'",
        "s/a/b/",
        "'s/a b/c/g'",
        "-E 's|/a|/b|'",
        "-n 's/a/b/p'",
        "1d",
        "/^#/d",
        "'s/a\\/b/&c/2'",
        "-r 1,5d",
    ],
)
def test_sed_reader_accepts_substitution_and_deletion(words: str) -> None:
    """On its way to the output."""
    assert [word.text for word in read_sed(arguments(f"sed {words} f ./*")).operands] == ["f", "./*"]


@pytest.mark.parametrize(
    "words",
    [
        "-n",
        "'s/a/b/w out' f",
        "'s/a/b/e' f",
        "'s/a/b/;w out' f",
        "'s/a/b/g;e' f",
        "s/a/b",
        "'s|a|b|w out' f",
        "'s/a\nb/c/' f",
        "-i s/a/b/ f",
        "-e s/a/b/ f -e p",
        "-e 's/a/b/w out' f",
        "-e p -e",
        "s/a/b/ *",
        "s/a/b/ $HOME",
        'p "$SHELL"',
        "-n p $SHELL-e'1e x' a",
        "-n 5w f",
        "-n 1e f",
        "-n '/a/w b' f",
        "-n '/a/p;w f'",
        "-n '/[/]/w/p' f",
        "-n -i 5p f",
        "-ni 5p f",
        "-n 5p -i f",
        "-n 5p *",
        "-n '5p\nw f'",
        "-n -e 5w",
        "'/[/s,],/w out,' f",
        "'/a/s/[/]/w/;p' f",
        "'s/[/]/w out/;s/a/b/' f",
        "'/a\\/w out/p' f",
        "'y/a/b/' f",
        "'5e' f",
        "'1!G;h;$!d' f",
        "':a;N;ba' f",
        "-n -f a",
        "-n $HOME f",
    ],
)
def test_sed_reader_refuses_other_scripts_and_options(words: str) -> None:
    """No other command, no option, no word that may become one."""
    with pytest.raises(Objection):
        read_sed(arguments(f"sed {words}"))


def test_command_builtin_is_accepted_only_as_lookup() -> None:
    """`command -v NAME` only."""
    read_lookup(arguments("command -v git"))
    for text in ("command git", "command -p git", "command -v", "command -v *", "command -v $HOME"):
        with pytest.raises(Objection):
            read_lookup(arguments(text))
