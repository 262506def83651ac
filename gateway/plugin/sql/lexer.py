"""Splits SQL into tokens, in one dialect or in any, and reports where dialects would split the same text differently.

Dialects disagree about a few things that decide what is code and what is text (`Trait`). `lex` reads with a given set
of them and reports the traits that mattered; `list_readings` follows every report, so that a caller can ask for
agreement. A spelling that the same engine reads in another way than written here is an error token, never a guess.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, NamedTuple, TypeAlias

#: backslash: `\\'` does not end a literal (MySQL; PostgreSQL where `standard_conforming_strings` is off). quotation:
#: `\\"` does not end what stands in double quotes (MySQL). estring: `\\'` does not end an E'...' (PostgreSQL). dollar:
#: $tag$...$tag$ is a literal (PostgreSQL). hash: `#` begins a comment (MySQL). dash: so does `--` without white space
#: after it (all but MySQL). nested: block comments nest (PostgreSQL, SQL Server).
Trait: TypeAlias = Literal["backslash", "quotation", "estring", "dollar", "hash", "dash", "nested"]
#: What a text is read as: the SQL of one database, or that of each.
Dialect: TypeAlias = Literal["any", "sqlite", "postgresql"]
Kind: TypeAlias = Literal["word", "name", "string", "number", "param", "op", "punct", "error", "unterminated"]

DEFAULT: frozenset[Trait] = frozenset({"estring", "dollar", "dash"})
#: Of the dialects that are read alone. PostgreSQL's holds while `standard_conforming_strings` is on.
TRAITS: Mapping[Dialect, frozenset[Trait]] = {
    "any": DEFAULT,
    "sqlite": frozenset({"dash"}),
    "postgresql": frozenset({"estring", "dollar", "dash", "nested"}),
}
#: Pieces of text (tokens, runs of white space, comments) before a statement counts as too long to judge.
MAX_STEPS = 2_000
MAX_CHARS = 16_384
MAX_TRAITS = 2  # that may matter in one text: four readings

_PIECE = re.compile(
    r"""(?P<space>[ \t\r\n\f]++)
      | (?P<word>[^\W\d][\w$]*+)
      | (?P<comment>--|/\*|\#)
      | (?P<number>0[xX][0-9A-Fa-f_]++|0[bB][01_]++|(?:[0-9][0-9_]*+(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)
      | (?P<quoted>['"])
      | (?P<backtick>`)
      | (?P<bracket>\[)
      | (?P<dollar>\$)
      | (?P<param>\?[0-9]*+|:[^\W\d][\w$]*+|:[0-9]++|@@?[\w$]++)
      | (?P<op>::|:=|@\?|[<>=!~|&^%]++|[-+*/@:])
      | (?P<punct>[(),;.\]])""",
    re.VERBOSE,
)
_PLAIN = {"'": re.compile(r"'(?:[^']++|'')*+'"), '"': re.compile(r'"(?:[^"]++|"")*+"')}
_ESCAPED = {
    "'": re.compile(r"'(?:[^'\\]++|\\.|'')*+'", re.DOTALL),
    '"': re.compile(r'"(?:[^"\\]++|\\.|"")*+"', re.DOTALL),
}
_BACKTICK = re.compile(r"`(?:[^`]++|``)*+`")
_BRACKETED = re.compile(r"\[([^\W\d][\w $@-]*+)\]")
#: What would be more than words to a dialect that does not know back-ticks.
_NOT_PLAIN = re.compile(r"[;'\"\\#\[\]\r\n]|--|/\*")
_DOLLAR_TAG = re.compile(r"\$(?:[^\W\d]\w*+)?\$")
_DOLLAR_NAME = re.compile(r"\$[\w$]++")
_DOLLAR_WORD = re.compile(r"\$\w++")
#: What stands directly behind a parameter that would not end there: `$a::b`, `@a(...)` to SQLite; `:e'...'`.
_PARAM_GOES_ON = re.compile(r"[(:'\"$]|::")
#: PostgreSQL reads a text behind an escape string, on another line, as more of that string.
_GOES_ON = re.compile(r"(?:[ \t\r\n\f]++|--[^\r\n]*+)*+'")
#: SQLite takes `#` for the beginning of a parameter, with what stands in parentheses behind it.
_HASH_NAMES: Mapping[Dialect, re.Pattern[str]] = {
    "any": re.compile(r"#\w++\("),
    "sqlite": re.compile(r"#\w"),
    "postgresql": re.compile(r"(?!)"),
}
_COMMENT_EDGE = re.compile(r"/\*|\*/")
#: Some databases end a line comment at more than a line feed.
_OTHER_LINE_END = re.compile("[\r\v\f\x85\u2028\u2029]")
#: NUL ends the text for C code; lone surrogates cannot be sent at all.
_UNREADABLE = re.compile("[\0-\x08\x0b\x0e-\x1f\x7f\ud800-\udfff]")


class Token(NamedTuple):
    """`text`: a word in lower case, the inside of a quoted name or string, else as written; for errors the reason."""

    kind: Kind
    text: str


#: Makes a token of its two fields; the class itself does so in Python, which takes a tenth of a verdict.
_TOKEN: Final[Callable[[tuple[Kind, str]], Token]] = partial(tuple.__new__, Token)


@dataclass(frozen=True, slots=True)
class LexResult:
    """The tokens, without white space and comments, and which traits made a difference."""

    tokens: tuple[Token, ...]
    divergent: frozenset[Trait]


def lex(sql: str, *, traits: frozenset[Trait] = DEFAULT, dialect: Dialect = "any") -> LexResult:
    """Split `sql` as a dialect with these traits does. The first uncertain thing is the last token."""
    return _Lexer(sql, traits=traits, dialect=dialect).run()


def list_readings(sql: str, *, dialect: Dialect = "any") -> tuple[tuple[Token, ...], ...] | None:
    """Split `sql` as this dialect, or each one, does, without repetitions; None if too many traits matter at once."""
    if dialect != "any":
        return (lex(sql, traits=TRAITS[dialect], dialect=dialect).tokens,)
    found: dict[tuple[Token, ...], None] = {}
    waiting, seen, mattered = [DEFAULT], {DEFAULT}, set[Trait]()
    while waiting:
        traits = waiting.pop()
        lexed = lex(sql, traits=traits)
        found[lexed.tokens] = None
        mattered |= lexed.divergent
        if len(mattered) > MAX_TRAITS:
            return None
        for trait in lexed.divergent:
            other = traits ^ {trait}
            if other not in seen:
                seen.add(other)
                waiting.append(other)
    return tuple(found)


class _Lexer:
    """One pass over one text. Each method consumes what begins at `_at` and returns whether to go on."""

    def __init__(self, sql: str, *, traits: frozenset[Trait], dialect: Dialect) -> None:
        self._sql = sql
        self._traits = traits
        self._dialect = dialect
        self._tokens: list[Token] = []
        self._divergent: set[Trait] = set()
        self._at = 0
        self._word_end = -1  # where the last bare word ended: E'...' and q'...' have no space between
        self._in_bracket = False

    def run(self) -> LexResult:
        sql, steps = self._sql, 0
        if len(sql) > MAX_CHARS:
            self._stop("more text than can be judged")
            return self._build_result()
        if _UNREADABLE.search(sql):
            self._stop("control or unreadable characters")
            return self._build_result()
        special, next_piece, add, size = self._read_special(), _PIECE.match, self._tokens.append, len(sql)
        token, plain = _TOKEN, sql.isascii()
        while self._at < size:
            steps += 1
            piece = next_piece(sql, self._at)
            if steps > MAX_STEPS or piece is None:
                self._stop("more text than can be judged" if piece else f"the character {sql[self._at]!r}")
                break
            kind = piece.lastgroup
            if kind == "space":
                self._at = piece.end()
            elif kind == "word" and plain:  # most of a text: as `_read_word`, without a check for look-alikes
                self._word_end = end = piece.end()
                self._at = end + sql.startswith(" ", end)
                add(token(("word", piece[0].lower())))
            elif kind == "op" or kind is None:
                self._at = piece.end()
                add(token(("op", piece[0])))
            elif not special[kind](piece[0]):
                break
        return self._build_result()

    def _build_result(self) -> LexResult:
        return LexResult(tuple(self._tokens), frozenset(self._divergent))

    def _read_special(self) -> dict[str, Callable[[str], bool]]:
        return {
            "word": self._read_word,
            "comment": self._read_comment,
            "number": self._read_number,
            "quoted": self._lex_quoted,
            "backtick": self._read_backticks,
            "bracket": self._read_brackets,
            "dollar": self._read_dollar,
            "param": self._read_parameter,
            "punct": self._read_punctuation,
        }

    def _add(self, kind: Kind, text: str, *, end: int) -> bool:
        self._tokens.append(_TOKEN((kind, text)))
        self._at = end
        return True

    def _stop(self, reason: str, *, kind: Kind = "error") -> bool:
        self._tokens.append(Token(kind, reason))
        return False

    def _read_word(self, text: str) -> bool:
        # Databases and drivers may fold full-width and other look-alike letters into keywords.
        if not text.isascii() and unicodedata.normalize("NFKC", text) != text:
            return self._stop(f"the look-alike letters in {text[:40]!r}")
        self._word_end = self._at + len(text)
        return self._add("word", text.lower(), end=self._word_end)

    def _read_number(self, text: str) -> bool:
        end = self._at + len(text)
        after = self._sql[end : end + 1]
        if after == "_" or after == "$" or after.isalnum():
            return self._stop(f"a number that runs into a word: {self._sql[self._at : end + 10]!r}")
        return self._add("number", text, end=end)

    def _read_parameter(self, text: str) -> bool:
        end = self._at + len(text)
        after = _PARAM_GOES_ON.match(self._sql, end)
        # `?` is an operator, too, and a cast may follow a parameter that has no name.
        if (
            after
            and not (text[0] == "?" and after.group() != "$")
            and not (text[0] == "$" and text[1:].isdecimal() and after.group() == ":")
        ):
            return self._stop(f"a parameter that runs into {after.group()!r}")
        return self._add("param", text, end=end)

    def _read_punctuation(self, text: str) -> bool:
        if text == "]":
            if not self._in_bracket:
                return self._stop("a closing bracket too many")
            self._in_bracket = False
        return self._add("punct", text, end=self._at + 1)

    # Comments.

    def _read_comment(self, opener: str) -> bool:
        if self._in_bracket:
            return self._stop("a comment inside brackets")
        if opener == "/*":
            return self._read_block_comment()
        if opener == "#":
            if _HASH_NAMES[self._dialect].match(self._sql, self._at):
                return self._stop("a '#' that is part of a name")
            if self._dialect != "any":
                return self._add("op", "#", end=self._at + 1)
            self._divergent.add("hash")
            if "hash" not in self._traits:
                return self._add("op", "#", end=self._at + 1)
        elif self._sql[self._at + 2 : self._at + 3] not in ("", " ", "\t", "\n", "\r"):
            self._divergent.add("dash")
            if "dash" not in self._traits:
                return self._add("op", "--", end=self._at + 2)
        end = self._sql.find("\n", self._at)
        end = len(self._sql) if end < 0 else end
        if _OTHER_LINE_END.search(self._sql[self._at : end].removesuffix("\r")):
            return self._stop("a line comment with an unusual line end")
        self._at = end
        return True

    def _read_block_comment(self) -> bool:
        sql, start = self._sql, self._at
        if sql.startswith(("/*!", "/*M!", "/*m!"), start):
            return self._stop("a comment that MySQL executes")
        end = sql.find("*/", start + 2) + 2
        if sql.find("/*", start + 2, end if end > 1 else len(sql)) >= 0:
            self._divergent.add("nested")
            if "nested" in self._traits:
                end = self._find_nested_end()
        if end <= 1:
            # Where comments do not nest, SQLite takes the rest for comment, and runs what stands before.
            return self._stop("a comment without an end", kind="unterminated" if "nested" in self._traits else "error")
        if sql.startswith("/*+", start) and "set_var" in sql[start:end].lower():
            return self._stop("an optimizer hint that sets a variable")
        self._at = end
        return True

    def _find_nested_end(self) -> int:
        depth = 0
        for edge in _COMMENT_EDGE.finditer(self._sql, self._at):
            depth += 1 if edge.group() == "/*" else -1
            if depth == 0:
                return edge.end()
        return -1

    # Quotes.

    def _lex_quoted(self, quote: str) -> bool:
        sql, start = self._sql, self._at
        prefix = self._tokens[-1].text if self._word_end == start else ""
        if quote == "'" and prefix in ("q", "nq"):
            return self._stop("Oracle's q-quoting")
        escapes = prefix == "e" and quote == "'"
        trait: Trait = "backslash" if quote == "'" else "quotation"
        if escapes and "backslash" not in self._traits:
            trait = "estring"
        patterns = (_ESCAPED, _PLAIN) if trait in self._traits else (_PLAIN, _ESCAPED)
        match = patterns[0][quote].match(sql, start)
        end = match.end() if match else len(sql)
        if trait not in self._divergent and sql.find("\\", start, end) >= 0:
            other = patterns[1][quote].match(sql, start)
            if (match and match.end()) != (other and other.end()):
                self._divergent.add(trait)
        if match is None:
            return self._stop("a quote without an end", kind="unterminated")
        if self._in_bracket and sql.find("]", start, end) >= 0:
            return self._stop("a bracket inside a quote inside brackets")
        if escapes and self._dialect != "sqlite" and _GOES_ON.match(sql, end):
            return self._stop("an escape string in several pieces")
        return self._add("string" if quote == "'" else "name", sql[start + 1 : end - 1], end=end)

    def _read_backticks(self, _: str) -> bool:
        match = _BACKTICK.match(self._sql, self._at)
        if self._dialect == "postgresql":
            return self._stop("a back-tick")
        if match is None:
            return self._stop("a back-tick without an end", kind="unterminated")
        if _NOT_PLAIN.search(match.group()) or self._in_bracket:
            return self._stop("an unusual name in back-ticks")
        return self._add("name", match.group()[1:-1], end=match.end())

    def _read_brackets(self, _: str) -> bool:
        if self._in_bracket:
            return self._stop("brackets inside brackets")
        if self._dialect == "sqlite":
            end = self._sql.find("]", self._at)
            if end < 0:
                return self._stop("a bracket without an end", kind="unterminated")
            return self._add("name", self._sql[self._at + 1 : end], end=end + 1)
        name = None if self._dialect == "postgresql" else _BRACKETED.match(self._sql, self._at)
        if name and "--" not in name.group() and not self._sql.startswith("]", name.end()):
            return self._add("name", name.group(1), end=name.end())
        self._in_bracket = True
        return self._add("punct", "[", end=self._at + 1)

    def _read_dollar(self, _: str) -> bool:
        tag = _DOLLAR_TAG.match(self._sql, self._at)
        if tag:
            self._divergent.add("dollar")
            if "dollar" in self._traits:
                end = self._sql.find(tag.group(), tag.end())
                if end < 0:
                    return self._stop("a dollar quote without an end", kind="unterminated")
                if self._in_bracket:
                    return self._stop("a dollar quote inside brackets")
                return self._add("string", self._sql[tag.end() : end], end=end + len(tag.group()))
            if self._dialect == "any" and (word := _DOLLAR_NAME.match(self._sql, self._at)):
                return self._add("word", word.group().lower(), end=word.end())
        word = _DOLLAR_WORD.match(self._sql, self._at)
        if word is None:
            return self._stop("a dollar sign by itself")
        return self._read_parameter(word.group())
