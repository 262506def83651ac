"""The SQL lexer: what is code and what is text, in each dialect's eyes."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.plugin.sql.lexer import DEFAULT, MAX_CHARS, MAX_STEPS, TRAITS, Dialect, Token, Trait, lex, list_readings


def kinds(sql: str, *traits: Trait) -> list[tuple[str, str]]:
    return [(token.kind, token.text) for token in lex(sql, traits=DEFAULT ^ frozenset(traits)).tokens]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT a", [("word", "select"), ("word", "a")]),
        ("'it''s'", [("string", "it''s")]),
        ('"a ""b"""', [("name", 'a ""b""')]),
        ("`a b`", [("name", "a b")]),
        ("[a b]", [("name", "a b")]),
        ("$$a;b$$", [("string", "a;b")]),
        ("$t$a$$b$t$", [("string", "a$$b")]),
        ("0x1F 1.5e-3 .5 1_000", [("number", "0x1F"), ("number", "1.5e-3"), ("number", ".5"), ("number", "1_000")]),
        ("? ?1 :a $1 @b @@c", [("param", text) for text in ("?", "?1", ":a", "$1", "@b", "@@c")]),
        ("a::b", [("word", "a"), ("op", "::"), ("word", "b")]),
        ("a:=1", [("word", "a"), ("op", ":="), ("number", "1")]),
        ("姓名", [("word", "姓名")]),
        ("a;b", [("word", "a"), ("punct", ";"), ("word", "b")]),
        ("a -- b\nc /* d */ e", [("word", "a"), ("word", "c"), ("word", "e")]),
    ],
)
def test_lexer_splits_sql_into_tokens(sql: str, expected: list[tuple[str, str]]) -> None:
    """Words, names in every quoting, strings, numbers, parameters, operators; comments are left out."""
    assert kinds(sql) == expected


@pytest.mark.parametrize(
    ("sql", "trait", "plain", "flipped"),
    [
        (r"'a\'; b --'", "backslash", 2, 1),
        (r'"a\"; b --"', "quotation", 2, 1),
        (r"E'a\''; b --'", "estring", 3, 4),
        ("$$a$$", "dollar", 1, 1),
        ("a # b", "hash", 3, 1),
        ("a --b", "dash", 1, 3),
        ("/* /* */ a */", "nested", 3, 0),
    ],
)
def test_lexer_reports_traits_where_dialects_differ(sql: str, trait: Trait, plain: int, flipped: int) -> None:
    """A trait that changes what is code is reported, and both readings are told."""
    assert trait in lex(sql).divergent
    both = list_readings(sql)
    assert both is not None and len(both) >= 2
    assert len(lex(sql, traits=DEFAULT ^ {trait}).tokens) == flipped or trait in ("backslash", "quotation", "estring")
    assert len(lex(sql).tokens) >= plain or trait in ("estring", "nested")


def test_backslash_not_before_a_quote_causes_no_dialect_divergence() -> None:
    """A backslash that precedes no quote is read alike everywhere."""
    assert lex(r"SELECT 'C:\temp', '100\%', '\d+'").divergent == frozenset()


def test_text_with_too_many_dialect_differences_has_no_readings() -> None:
    """Text about which dialects disagree in many ways has no readings."""
    assert list_readings(r"'\'' # $$ --x" + "\n/* /* */ $$ */") is None


@pytest.mark.parametrize(
    "sql",
    [
        "/*! 1 */",
        "/*M! 1 */",
        "/*+ SET_VAR(a=1) */",
        "q'[x]'",
        "1a",
        "0xDELETE",
        "{",
        "\\g",
        "a\x00",
        "\ud800",
        "＇a",
        "ＳＥＬＥＣＴ",
        "ſelect",
        "sel\u200bect",
        "a\u00a0b",
        "[a]]",
        "['a]']",
        "[[a]]",
        "`a;b`",
        "-- a\rb",
    ],
)
def test_ambiguous_sql_lexes_to_an_error_token(sql: str) -> None:
    """Executable comments, look-alike letters, q-quotes and the like end in an error token."""
    assert lex(sql).tokens[-1].kind == "error"


@pytest.mark.parametrize("sql", ["'a", '"a', "`a", "$$a"])
def test_unclosed_quote_is_an_unterminated_token(sql: str) -> None:
    """A literal without an end is told apart: a database refuses it."""
    assert lex(sql).tokens[-1].kind == "unterminated"


def test_lexer_bounds_the_number_of_tokens() -> None:
    """There is an end to what is split."""
    tokens = lex("a " * 100_000).tokens
    assert len(tokens) <= MAX_STEPS + 1 and tokens[-1].kind == "error"


@given(st.text(max_size=200) | st.text(alphabet="'\"`[]$#-/*!\\ \nae;q1.@:?", max_size=60))
def test_lexer_splits_any_text_without_error(sql: str) -> None:
    """No text raises; what is not an error lies in the text in order."""
    found = list_readings(sql)
    for tokens in found or ():
        at = 0
        for token in tokens:
            if token.kind in ("error", "unterminated"):
                assert token is tokens[-1]
            elif token.kind != "word":
                at = sql.index(token.text, at) + len(token.text)


HOSTILE = (
    "/*",
    "/**/",
    "'",
    r"'\' ",
    "$a$",
    "$",
    "[",
    "`",
    "#\n",
    "--x\n",
    "a#b--c\n",
    "E'\\' ",
    "é",
    "\u0301",
    "1",
    "$a",
)


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_text_takes_linear_time(piece: str) -> None:
    """100 kB of anything are split in every reading in less than 100 ms."""
    sql = "SELECT " + piece * (100_000 // len(piece))
    took = []
    for _ in range(3):
        started = time.thread_time()
        list_readings(sql)
        took.append(time.thread_time() - started)
    assert min(took) < 0.1


def test_token_equals_a_plain_pair() -> None:
    """Tokens compare with plain pairs."""
    assert Token("word", "a") == ("word", "a")


def test_text_over_the_length_limit_is_an_error_token() -> None:
    """Its length alone tells that nobody would read it either."""
    assert lex("SELECT " + "x" * MAX_CHARS).tokens == (Token("error", "more text than can be judged"),)
    assert lex("SELECT '" + "x" * (MAX_CHARS - 9) + "'").tokens[-1].kind == "string"


@pytest.mark.parametrize("sql", ["/* a", "/* /* a", "/* /* */ a"])
def test_a_comment_without_an_end_is_refused_only_where_comments_nest(sql: str) -> None:
    """SQLite takes the rest of the text for comment, and runs what stands before it."""
    assert lex(f"SELECT 1 {sql}", dialect="postgresql", traits=TRAITS["postgresql"]).tokens[-1].kind == "unterminated"
    closed = sql.endswith("*/ a")
    assert closed or lex(f"SELECT 1 {sql}", dialect="sqlite", traits=TRAITS["sqlite"]).tokens[-1].kind == "error"


@pytest.mark.parametrize(
    ("sql", "dialect"),
    [
        ("SELECT E'a'\n'\\', x --'", "postgresql"),
        ("SELECT E'a' -- c\n '\\', x --'", "postgresql"),
        ("SELECT $1'a'", "postgresql"),
        ("SELECT $1$a$", "postgresql"),
        ("SELECT :e'\\', x --'", "postgresql"),
        ("SELECT `a`", "postgresql"),
        ("SELECT #a(')", "sqlite"),
        ("SELECT @a(')", "sqlite"),
        ("SELECT $a::b(')", "sqlite"),
        ("SELECT #a", "sqlite"),
        ("SELECT 1 /* a", "sqlite"),
        ("SELECT #a(')", "any"),
        ("SELECT @a(')", "any"),
    ],
)
def test_text_read_differently_by_an_engine_is_an_error_token(sql: str, dialect: Dialect) -> None:
    """A guess would hide what stands behind it."""
    for tokens in list_readings(sql, dialect=dialect) or ():
        assert tokens[-1].kind == "error"


def test_one_dialect_has_one_reading() -> None:
    """Each database by its own rules: comments that nest, names in brackets, escape strings."""

    def split(sql: str, dialect: Dialect) -> list[str]:
        (tokens,) = list_readings(sql, dialect=dialect) or ((),)
        return [token.kind for token in tokens]

    assert split("1 /* /* */ x */", "postgresql") == ["number"]
    assert split("1 /* /* */ x */", "sqlite") == ["number", "word", "op", "op"]
    assert split("[a b, f('x')]", "sqlite") == ["name"]
    assert split("a[1]", "postgresql") == ["word", "punct", "number", "punct"]
    assert split(r"E'\''", "postgresql") == ["word", "string"]
    assert split(r"E'\'", "sqlite") == ["word", "string"]
    assert split(r"E'\'", "postgresql") == ["word", "unterminated"]
    assert split(r'E"\" x', "postgresql") == ["word", "name", "word"]
