"""The plain subset of sh is read as sh reads it; everything else is not plain, and says why."""

import contextlib
import random
import subprocess

import pytest
from measuring import Effort

from gateway.plugin.shell.objection import Objection
from gateway.plugin.shell.parser import parse


def words(text: str) -> list[list[str]]:
    return [[word.text for word in step.words] for step in parse(text).steps]


def objection(text: str) -> str:
    with pytest.raises(Objection) as caught:
        parse(text)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ls -la", [["ls", "-la"]]),
        ("  ls\t-l \n", [["ls", "-l"]]),
        ("echo 'a b' \"c d\" e\\ f", [["echo", "a b", "c d", "e f"]]),
        ("echo ''", [["echo", ""]]),
        ("echo a''b\"c\"'d'\\e", [["echo", "abcde"]]),
        ('echo "a\\"b\\\\c\\d\\$e"', [["echo", 'a"b\\c\\d$e']]),
        ("echo 'a\\'", [["echo", "a\\"]]),
        ('grep "a$" f$ "$|b"', [["grep", "a$", "f$", "$|b"]]),
        ("a|b&&c||d;e", [["a"], ["b"], ["c"], ["d"], ["e"]]),
        ("a;", [["a"]]),
        ("a 2>/dev/null >/dev/null 2>&1 b", [["a", "b"]]),
        ("a\n\nb # c\n# d\n c |\n d", [["a"], ["b"], ["c"], ["d"]]),
        ("for f in a *; do b $f; done | c", [["b", "$f"], ["c"]]),
        ("if a; then\nb\nelif c; then d; else e\nfi; f", [["a"], ["b"], ["c"], ["d"], ["e"], ["f"]]),
        ("a for if 'then' do", [["a", "for", "if", "then", "do"]]),
        ("a {} x{1} @{u} stash@{0}", [["a", "{}", "x{1}", "@{u}", "stash@{0}"]]),
        (">/dev/null a", [["a"]]),
        ("echo a2>/dev/null", [["echo", "a2"]]),
        ("a # b; c", [["a"]]),
        ("a b#c", [["a", "b#c"]]),
        ("a \\\n  b | \\\n c", [["a", "b"], ["c"]]),
        ("a 'b\nc'", [["a", "b\nc"]]),
        ("[ -f a ]", [["[", "-f", "a", "]"]]),
        ("a $(b 'c d' | e) f", [["b", "c d"], ["e"], ["a", "$(b 'c d' | e)", "f"]]),
        ('a "x $(b)" && c', [["b"], ["a", "x $(b)"], ["c"]]),
        ("for f in $(a); do b $f; done", [["a"], ["b", "$f"]]),
        ("a <<'b' | c\n$(d) `e`\nb\nf", [["a"], ["c"], ["f"]]),
        ('a <<"b"\nb', [["a"]]),
        ("a << b |\nd\nb\nc", [["a"], ["c"]]),
    ],
)
def test_shell_text_is_split_into_the_words_of_sh(text: str, expected: list[list[str]]) -> None:
    """Quotes are removed, operators separate, discarded output and comments are gone."""
    assert words(text) == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a $(b $(c))", "expansion"),
        ('a "$(b "c")"', "expansion"),
        ("a $(b \\; c)", "expansion"),
        ("a $(b # c)", "expansion"),
        ("a $(b\nc)", "expansion"),
        ("a $(case b in c) d ;; esac)", "missing"),
        ("a $((1 + 1))", "expansion"),
        ("a $(<b)", "missing"),
        ("a $(cd b && c)", "more than commands"),
        ("a $(if b; then c; fi)", "more than commands"),
        ("a >$(b)", "target of a redirection is expanded"),
        ("a `b`", "command substitution"),
        ('a "`b`"', "command substitution"),
        ("(a)", "subshell"),
        ("a )", "parenthesis"),
        ("a & b", "background job"),
        ("a; do b", "stands where it may not"),
        ("then a", "stands where it may not"),
        ("if a; done", "stands where it may not"),
        ("if a; then b; fi c", "stands where it may not"),
        ("if a; then b", "has no end"),
        ("for f in a; do b", "has no end"),
        ("for PATH in a; do b; done", "sets 'PATH'"),
        ("for npm_config_userconfig in a; do b; done", "sets 'npm_config_userconfig'"),
        ("for http_proxy in a; do b; done", "sets 'http_proxy'"),
        ("for f in a; do b; done </dev/tcp/c/1", "input to a whole construct"),
        ("if a; then b; fi <c", "input to a whole construct"),
        ("for f; do b; done", "not `for NAME in WORDS`"),
        ("for f in a; do for g in b; do c; done; done", "not `for NAME in WORDS`"),
        ("if a; then " * 5 + "b" + "; fi" * 5, "nested constructs"),
        (">/dev/null if a; then b; fi", "in front of a reserved word"),
        ("for f in a; do\ndone", "missing"),
        ("a $f; for f in b; do c; done", "variable 'f'"),
        ("a\\\nb", "escaped line end"),
        ("a 'b", "unbalanced quote"),
        ('a "b', "unbalanced quote"),
        ("a <<b", "here-document has no end"),
        ("a <<b\nc\nb c", "here-document has no end"),
        ("a <<-b\nc\nb", "redirection"),
        ("a <<'b c'\nd\nb c", "redirection"),
        ("a <<'b'c\nd\nbc", "redirection"),
        ("a 3<<b\nc\nb", "descriptor"),
        ("a <<b <<c\nb\nc", "more than one here-document"),
        ("a <<b\n$(c)\nb", "here-document expands"),
        ("a <<b\nc\\\nb", "here-document expands"),
        ("a <<b 'c\nb\nd'\nb", "hides where"),
        ("a <<b \\\n c\nd\nb", "hides where"),
        ("for f in a; do b; done <<c\nd\nc", "input to a whole construct"),
        ("a >|b", "redirection"),
        ("a > b", "writes to 'b'"),
        ("a >", "no target"),
        ("a > > /dev/null", "no target"),
        ("a 12>/dev/null", "descriptor"),
        ("a &>/dev/null", "background job"),
        ("{PATH}>/dev/null", "descriptor"),
        ("{a['$(b)']}>/dev/null", "descriptor"),
        ("a b{c}</dev/null", "descriptor"),
        ('a <"$HOME/b"', "target of a redirection is expanded"),
        ('a >"$USER/dev/null"', "target of a redirection is expanded"),
        ("a <[b]", "target of a redirection is expanded"),
        ("ls ~+", "tilde"),
        ("ls ~-", "tilde"),
        ("ls ~1/x", "tilde"),
        ("a |", "missing"),
        ("; a", "missing"),
        (" ", "missing"),
        ("# a", "missing"),
        ("a; >/dev/null", "missing"),
        ("a $x", "variable 'x'"),
        ("a ${HOMES}", "variable 'HOMES'"),
        ("a\rb", "U+000D"),
        ("a \u202eb", "U+202E"),
        ("a {1..9}", "brace counts"),
        ("a {b,c}{d,e}", "more than one brace"),
        ("a" * 5000, "5000 characters"),
        ("a " * 300, "more than 256 words"),
        ("a " + "*" * 17, "more than 16 globs"),
    ],
)
def test_nontrivial_shell_syntax_raises_objection_with_reason(text: str, why: str) -> None:
    """The reason names what a person should look at."""
    assert why in objection(text)


def test_word_records_the_position_and_kind_of_its_expansions() -> None:
    """How much of a word is fixed in front and behind, and whether it may become several, or any words at all."""
    glob, behind, quoted, home, user, bracket = (
        parse("a *.py src/*.c '*' $HOME/x \"$USER\"x [-.]delete").steps[0].words[1:]
    )
    assert (glob.fixed, glob.tail, glob.splits, glob.wild) == (0, 3, True, False)
    assert (behind.fixed, behind.tail, behind.splits) == (4, 2, True)
    assert (quoted.expands, quoted.bare) == (False, False)
    assert (home.fixed, home.splits, home.wild) == (0, True, True)
    assert (user.fixed, user.tail, user.splits, user.wild) == (0, 1, False, False)
    assert (bracket.fixed, bracket.tail) == (0, 0)
    several, one = parse('a $(b) "$(b)"').steps[-1].words[1:]
    assert (several.may_be_option, several.wild, one.may_be_option, one.splits) == (True, True, True, False)


def test_parsed_steps_record_their_input() -> None:
    """A pipe or a redirection gives a command its input; a list does not."""
    first, second, third = parse("a | b; c < f").steps
    assert (first.piped, second.piped, third.piped) == (False, True, False)
    assert [word.text for word in third.inputs] == ["f"]
    assert [step.has_input for step in parse("a <<b\nc\nb\nd").steps] == [True, False]
    assert parse("a $(b)").extras == {"substitution"}
    assert parse("a \\\n b < c # d").extras == {"continuation", "input", "comment"}


@pytest.mark.parametrize(
    ("text", "argv"),
    [
        ("ls 'a b'", ("ls", "a b")),
        ("ls *", None),
        ("ls $HOME", None),
        ("ls ~", None),
        ("ls '~' '*'", ("ls", "~", "*")),
        ("ls | wc", None),
        ("ls >/dev/null", None),
        ("cd a", None),
        ("[ -f a ]", ("[", "-f", "a", "]")),
    ],
)
def test_parse_sets_argv_only_for_simple_commands(text: str, argv: tuple[str, ...] | None) -> None:
    """`argv` is what to execute, None where only a shell does what the text says."""
    assert parse(text).argv == argv


PIECES = [
    "a",
    "b c",
    "'",
    '"',
    "\\",
    "\\\\",
    "$",
    "#",
    " ",
    "\t",
    "~x",
    "=",
    "%",
    "^",
    "!",
    "]",
    "}",
    "-",
    "'x'",
    '"y"',
    "\\\n",
]


def test_parser_words_match_words_of_sh() -> None:
    """For random texts that are plain and expand nothing, the machine's own sh sees the same words."""
    chance = random.Random(7)
    texts = ["p " + "".join(chance.choices(PIECES, k=chance.randint(1, 12))) for _ in range(4000)]
    plain: dict[str, list[str]] = {}
    for text in texts:
        try:
            script = parse(text)
        except Objection:
            continue
        if len(script.steps) == 1 and script.argv is not None:
            plain[text] = list(script.argv[1:])
    assert len(plain) > 300
    program = "p() { for w in \"$@\"; do printf '%s\\0' \"$w\"; done; printf '\\1\\0'; }\n" + "\n".join(plain) + "\n"
    printed = subprocess.run(["/bin/sh", "-c", program], capture_output=True, check=True, text=True).stdout
    seen = [group.split("\0")[:-1] for group in printed.split("\1\0")[:-1]]
    assert seen == list(plain.values())


@pytest.mark.parametrize("piece", ["'", '"', "\\", "a ", "a;", "$", "(", '""', "\\\n", "${", "*", "{", "<", "#", "你"])
def test_parse_time_is_bounded_for_hostile_texts(piece: str) -> None:
    """A megabyte is refused at once, the longest text that is read takes milliseconds."""
    effort = Effort()
    objection(piece * 1_000_000)
    with contextlib.suppress(Objection):
        parse("echo " + piece * (4000 // len(piece)))
    assert effort.cpu_s < 0.5
