"""The walk over one SQL query, token by token, which doubts whatever is not known to be harmless.

Invariants:
- Every call is looked up in the allow-list of functions; a name before a parenthesis is a call unless known otherwise.
- Operand after operand is an alias, once; more of them is not SQL, or a second statement without a semicolon.

Theory of operation. This is not a parser. Databases differ too much for one grammar, and a text that a grammar does not
fit could still run somewhere. The walk reads each token once, from left to right, with a few tokens of context, and
answers one question: could this do anything but read? There are three answers, and they differ in strength:

- `Doubt` is raised: something in it may write, call an unknown function, or reach a file or another server. One doubt
  decides.
- `broken` is set: no database would run it as read here. The caller decides what that means, because the same text may
  have another reading in another dialect (`gateway.plugin.sql.statement`).
- `marks` collects harmless facts for which an operator may require approval: lock, assignment, sensitive_read.

The state is small:
- `_state` is what the last token left behind. OPEN: an operand is expected. OPERAND: one is complete. ALIASED: it has
  its alias, too. An operand after ALIASED is `broken`: in `SELECT 1 one two`, `two` fits nowhere.
- `_frames` is one entry for each open parenthesis: `clause` shows whether a name is a table (after FROM), and `queried`
  whether a query has begun in it. A frame is `call` where the parenthesis belongs to a function.

For each kind of token:

1. *Word.* In this order: the part of a name behind a dot; a connecting word (it ends operands and sets the clause); a
   writing word (doubt, except as a function such as TRUNCATE(1.5, 0)); INTO (doubt); otherwise a name.
2. *Name.* With a parenthesis behind it, it is a call, unless it lists columns or sizes (`_lists_names`). In FROM it is
   a table: files, linked servers and sensitive tables are checked. Behind a dot it may be a function of PostgreSQL.
3. *Operand* of another kind: string, number, parameter. A quoted text in the place of a table may open a file.
4. *Operator and punctuation* change the state. A semicolon is a second statement.

Only calls by a plain name on the allow-list pass. A quoted name before a parenthesis is never on it, nor is a qualified
one outside `pg_catalog`: both may be functions of a user.

Dangers.
- Each exception ("a parenthesis here is not a call") can hide a call in a dialect that reads it otherwise. An exception
  must look at the whole construct, as `_lists_names` does with WITH.
- `_is` compares words, punctuation and operators, but no quoted names: `"from"` is a name.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import IntEnum

from gateway.plugin.sql.calls import is_known_call
from gateway.plugin.sql.lexer import Token
from gateway.plugin.sql.words import (
    ACTING,
    CONNECTING,
    EXPLAINED,
    FIELDS,
    FUNCTIONS,
    LISTING,
    LOCK_HINTS,
    ONE_WORD,
    SENSITIVE,
    SEVERAL_WORDS,
    TYPES,
    UNFINISHED,
    WRITING,
)

MAX_DEPTH = 64
_SHOWN_CHARS = 40
_QUERY_WORDS = frozenset({"select", "values", "table"})
_BEFORE_TABLE = frozenset({"from", "join", ",", "(", "only", "lateral", "apply", "table"})
_IN_WRITE = EXPLAINED | {"set", "into", "do", "nothing", "conflict", "duplicate", "update", "returning", "ignore"}
#: Commas inside these are not commas of a list of tables.
_CLAUSES = frozenset({"where", "group", "having", "order", "limit", "offset", "window", "qualify", "union", "for"})
_END, _SPELLED = Token("punct", ""), ("word", "punct", "op")


class QueryDoubt(Exception):  # noqa: N818 - a doubt is not an error
    """Why a statement is not known to be harmless."""

    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(rule, reason)
        self.rule = rule
        self.reason = reason


class _State(IntEnum):
    """The state that the last token left: nothing complete, an operand, an operand with its alias."""

    OPEN = 0
    OPERAND = 1
    ALIASED = 2


@dataclass(slots=True)
class _Frame:
    """One level of parentheses. `clause` is the clause we are in; `opener` what stood before the parenthesis."""

    bracket: str
    clause: str
    opener: str
    queried: bool = False


class QueryWalk:
    """The walk over `tokens`; `run` raises Doubt, or leaves the `marks` of what it saw and what is `broken`.

    `connecting` are words to be read as connecting besides CONNECTING. `write`: the statement is one that writes, but
    it is only planned.
    """

    def __init__(self, tokens: Sequence[Token], *, connecting: Collection[str] = (), write: bool = False) -> None:
        self._tokens = tokens
        self._count = len(tokens)
        self._connecting = connecting
        self._write = write
        self._frames = [_Frame("", "", "")]
        self._state = _State.OPEN
        self._index = 0
        self.marks: set[str] = set()
        self.broken: str | None = None

    def run(self) -> None:
        for index, token in enumerate(self._tokens):
            self._index = index
            match token.kind:
                case "word":
                    self._read_word(token.text)
                case "name":
                    self._read_quoted_name(token.text)
                case "string":
                    self._read_string()
                case "number":
                    self._read_operand(after_operand=False)
                case "param":
                    self._read_parameter(token.text)
                case "op":
                    self._read_operator(token.text)
                case "punct":
                    self._read_punctuation(token.text)
                case _:
                    raise QueryDoubt("unclear_text", f"The statement has {token.text}.")
        last = self._tokens[-1] if self._tokens else _END
        if len(self._frames) > 1:
            self._mark_broken("an open parenthesis")
        elif _is_unfinished(last):
            self._mark_broken("no end")

    @property
    def complete(self) -> bool:
        """Return whether there was a query at all."""
        return self._frames[0].queried

    def _peek(self, offset: int) -> Token:
        index = self._index + offset
        return self._tokens[index] if 0 <= index < self._count else _END

    def _is(self, offset: int, *words: str) -> bool:
        index = self._index + offset
        token = self._tokens[index] if 0 <= index < self._count else _END
        return token[1] in words and token[0] in _SPELLED

    def _mark_broken(self, what: str) -> None:
        self.broken = self.broken or what

    # Operands.

    def _read_operand(self, *, after_operand: bool) -> None:
        """Read an operand. After another one it is its alias, where it can be one."""
        if self._state == _State.OPEN:
            # TOP 10 name: the number belongs to TOP.
            self._state = _State.OPEN if self._is(-1, "top") else _State.OPERAND
        elif self._state == _State.OPERAND and after_operand:
            self._state = _State.ALIASED
        else:
            self._mark_broken("words that do not make a query")

    def _read_string(self) -> None:
        if self._frames[-1].clause == "from" and self._is_before_table():
            raise QueryDoubt("file_as_table", "It reads from a quoted text, which some databases open as a file.")
        previous = self._peek(-1).kind
        if self._state == _State.OPERAND and previous in ("word", "name", "string"):
            return  # DATE '2024-01-01', N'x', 'a' 'b'
        self._read_operand(after_operand=previous == "punct")

    def _read_parameter(self, text: str) -> None:
        if self._is(1, "("):
            raise QueryDoubt(
                "function", f"{_format_excerpt(text)} is called and is not on the list of harmless functions."
            )
        sliced = text.startswith(":") and self._frames[-1].bracket == "["
        if self._state != _State.OPEN and (sliced or text.startswith("?")):
            # The slice in list[1:2], and PostgreSQL's operator in data ? 'key'.
            self._state = _State.OPERAND if sliced else _State.OPEN
            return
        if self._is(1, "=") and self._is(-1, "select", ",") and self._frames[-1].clause == "select":
            self.marks.add("assignment")
        self._read_operand(after_operand=False)

    def _read_quoted_name(self, text: str) -> None:
        if self._is(-1, "&") and self._is(-2, "u"):
            raise QueryDoubt("unclear_text", "A quoted name has escapes in it.")
        if self._frames[-1].clause == "from" and self._is_before_table() and not text.isidentifier():
            self._check_path(text)
        self._read_name(text, quoted=True)

    def _check_path(self, text: str) -> None:
        if any(char in text for char in "/\\:*") or text.lower().endswith((".csv", ".json", ".parquet", ".txt", ".db")):
            raise QueryDoubt("file_as_table", f"{_format_excerpt(text)} may be opened as a file.")

    def _is_before_table(self) -> bool:
        distinct = self._is(-1, "from") and self._is(-2, "distinct") and self._is(-3, "is", "not")
        return not distinct and self._is(-1, ".", *_BEFORE_TABLE)

    def _read_name(self, text: str, *, quoted: bool) -> None:
        """Read a name of any kind, which is a call where a parenthesis follows."""
        qualified = self._is(-1, ".")
        opens = self._is(1, "(")
        lists = opens and self._lists_names(qualified=qualified)
        if opens and not lists:
            self._call(text, quoted=quoted, qualified=qualified)
        elif qualified and not self._is(1, "."):
            self._read_attribute(text.lower())
        if self._frames[-1].clause == "from" and not opens:
            self._read_table(text.lower(), qualified=qualified)
        if not qualified:
            self._read_operand(after_operand=not opens or lists or text in TYPES)

    def _read_table(self, text: str, *, qualified: bool) -> None:
        whole = f"{self._peek(-2).text.lower()}.{text}" if qualified else text
        if text in LISTING or (text.startswith("pragma_") and text not in FUNCTIONS):
            raise QueryDoubt("file_as_table", f"{_format_excerpt(text)} is no table: reading it does something.")
        if whole in SENSITIVE or (qualified and text in SENSITIVE):
            self.marks.add("sensitive_read")
        dots, offset, more = 0, 0, qualified
        while more and dots < 3:
            offset -= 1
            dots += self._is(offset, ".")
            more = self._is(offset, ".") or self._is(offset - 1, ".")
        if dots == 3:  # srv.db.dbo.t, and srv.db..t
            raise QueryDoubt(
                "linked_server", f"A name of four parts ending in {_format_excerpt(text)} may be on another server."
            )

    def _read_attribute(self, text: str) -> None:
        """`x.name`, which PostgreSQL takes for a call of `name` where x has no such column."""
        if text == "nextval":
            raise QueryDoubt("function", "NEXTVAL advances a sequence.")
        if text in FUNCTIONS or (self._frames[-1].clause == "from" and self._frames[-1].queried):
            return
        owner = self._peek(-2)
        value = owner.text in (")", "]") if owner.kind == "punct" else owner.kind == "param" and owner.text[0] != "@"
        if ACTING.match(text) or (value and text not in FIELDS):
            raise QueryDoubt(
                "function", f"{_format_excerpt(text)} may be a function, which is not on the list of harmless ones."
            )

    # Calls.

    def _call(self, text: str, *, quoted: bool, qualified: bool) -> None:
        known = not quoted and is_known_call(text, self._peek(2), self._peek(3))
        in_catalogue = self._peek(-2).text.lower() == "pg_catalog" and not self._is(-3, ".")
        if not known or (qualified and not in_catalogue):
            raise QueryDoubt(
                "function", f"{_format_excerpt(text)} is called and is not on the list of harmless functions."
            )

    def _lists_names(self, *, qualified: bool) -> bool:
        """Return whether the parenthesis behind this name holds names of columns or sizes of a type, not arguments."""
        if self._is(-1, "as") or self._is(-1, "::") or (self._is(2, "+") and self._is(3, ")")):
            return True  # CAST(a AS x(5)), a::x(5), Oracle's outer join a.id(+)
        if self._write and self._is(-3 if qualified else -1, "into"):
            return True
        after_with = self._is(-1, "with", "recursive") or (self._is(-1, ",") and self._frames[-1].clause == "with")
        after_subquery = self._is(-1, ")") and self._frames[-1].clause == "from"
        if not (after_with or after_subquery):
            return False
        offset = 2
        while self._peek(offset).kind in ("word", "name") or self._is(offset, ","):
            offset += 1
        if not self._is(offset, ")"):
            return False
        if after_subquery:
            return True
        opening = offset + 2
        while self._is(opening, "not", "materialized"):
            opening += 1
        return (
            self._is(offset + 1, "as") and self._is(opening, "(") and self._is(opening + 1, "(", "with", *_QUERY_WORDS)
        )

    # Words.

    def _read_word(self, text: str) -> None:
        if self._is(-1, "."):
            self._read_name(text, quoted=False)
        elif text in CONNECTING or text in self._connecting or self._connects_here(text):
            if self._is(1, "(") and text in FUNCTIONS and self._state != _State.OPEN and text in ("left", "right"):
                self._mark_broken("words that do not make a query")
            self._connect(text)
        elif self._write and text in _IN_WRITE and not (text in WRITING and self._state != _State.OPEN):
            self._state = _State.OPEN
        elif text in WRITING and not self._is_text_function(text):
            self._read_writing_word(text)
        elif text == "into":
            raise QueryDoubt("into", "INTO writes the result to a table, a file or a variable.")
        elif text in ("asc", "desc"):
            self._state = _State.ALIASED
        elif text == "end":
            self._state = _State.OPERAND
        elif text == "system" and self._is(-1, "tablesample"):
            self._state = _State.OPEN
        else:
            self._read_alias_or_verb(text)
            self._read_name(text, quoted=False)

    def _connects_here(self, text: str) -> bool:
        """Words that are operators or parts of a clause in one place only."""
        match text:
            case "glob":  # SQLite's operator; a function of that name lists files
                return self._state != _State.OPEN
            case "keep":  # Oracle: max(x) KEEP (DENSE_RANK LAST ORDER BY y)
                return self._is(1, "(") and self._is(2, "dense_rank")
            case "set":  # CAST(a AS char CHARACTER SET utf8mb4); no statement begins inside a call
                return self._frames[-1].bracket == "call" and self._is(-1, "character")
        return False

    def _is_text_function(self, text: str) -> bool:
        """TRUNCATE(1.5, 0), and INSERT('abc', 1, 1, 'x') where an operand belongs."""
        frame = self._frames[-1]
        here = text != "insert" or (self._state == _State.OPEN and (frame.queried or frame.bracket == "call"))
        return self._is(1, "(") and text in FUNCTIONS and here

    def _read_writing_word(self, text: str) -> None:
        if text == "update" and (self._is(-1, "for") or (self._is(-1, "key") and self._is(-2, "no"))):
            self.marks.add("lock")
            self._state = _State.OPEN
            return
        raise QueryDoubt("statement", f"{text.upper()} is not a reading statement.")

    def _read_alias_or_verb(self, text: str) -> None:
        if (text == "lock" and self._is(1, "in")) or (text in LOCK_HINTS and self._frames[-1].opener == "with"):
            self.marks.add("lock")
        if self._state == _State.OPEN:
            return
        following = self._peek(1)
        followed = following.kind in ("word", "name", "number", "string", "param", "error")
        if text in ONE_WORD or (text in SEVERAL_WORDS and followed and following.text not in CONNECTING):
            raise QueryDoubt("statement", f"{text.upper()} may begin a second statement.")

    def _connect(self, text: str) -> None:
        frame = self._frames[-1]
        self._state = _State.OPEN
        if text == "next" and self._is(1, "value"):
            raise QueryDoubt("function", "NEXT VALUE advances a sequence.")
        if text == "for" and (self._is(1, "share") or (self._is(1, "key") and self._is(2, "share"))):
            self.marks.add("lock")
        if text in _QUERY_WORDS:
            self._begin_query(frame, text)
        elif text == "from":
            # In EXTRACT(YEAR FROM d) it begins no list of tables, nor in IS DISTINCT FROM.
            distinct = self._is(-1, "distinct") and self._is(-2, "is", "not")
            if not distinct and (frame.queried or frame.bracket != "call"):
                frame.clause = "from"
        elif text in ("join", "apply"):
            frame.clause = "from"
        elif text in ("on", "using") and frame.clause == "from":
            frame.clause = "on"
        elif text in _CLAUSES:
            frame.clause = text
        elif text in ("intersect", "except", "minus") and not self._is(-1, "*"):
            frame.clause = "union"
        elif text in ("with", "recursive") and not frame.queried:
            frame.clause = "with"

    def _begin_query(self, frame: _Frame, text: str) -> None:
        follows = frame.clause in ("", "with", "union") or not frame.queried
        if not follows and not self._write and text == "select":
            self._mark_broken("a second SELECT")
        frame.clause = "from" if text == "table" else text
        frame.queried = True

    # Operators and punctuation.

    def _read_operator(self, text: str) -> None:
        if text == ":=":
            self.marks.add("assignment")
        elif text == "@" and self._frames[-1].clause == "from":
            raise QueryDoubt("linked_server", "A table behind an @ is on another server.")
        self._state = _State.OPEN

    def _read_punctuation(self, text: str) -> None:
        if text in "([":
            self._open(text)
        elif text in ")]":
            self._close(text)
        elif text == ",":
            frame = self._frames[-1]
            frame.clause = "from" if frame.clause == "on" else frame.clause
            self._state = _State.OPEN
        elif text == ".":
            if self._peek(-1).kind in ("number", "string", "op") or self._is(-1, "(", ",", "["):
                self._mark_broken("a dot that belongs to no name")
            self._state = _State(max(self._state, _State.OPERAND))
        else:
            raise QueryDoubt("stacked", "There is more than one statement.")

    def _open(self, bracket: str) -> None:
        if len(self._frames) > MAX_DEPTH:
            raise QueryDoubt("too_deep", f"Parentheses are nested more than {MAX_DEPTH} deep.")
        previous = self._peek(-1)
        named = previous.kind == "name" or (
            previous.kind == "word" and previous.text not in CONNECTING and previous.text not in self._connecting
        )
        if self._state != _State.OPEN and not named and bracket == "(":
            self._mark_broken("a parenthesis in an odd place")
        called = bracket == "(" and named and self._state != _State.OPEN
        clause = "" if called else self._frames[-1].clause
        opener = previous.text if previous.kind in ("word", "name") else ""
        if opener == "on" and not self._is(-2, "distinct"):
            opener = ""
        self._frames.append(_Frame("call" if called else bracket, clause, opener))
        self._state = _State.OPEN

    def _close(self, bracket: str) -> None:
        frame = self._frames[-1]
        if len(self._frames) == 1 or (frame.bracket == "[") != (bracket == "]"):
            self._mark_broken("a closing parenthesis too many")
            return
        self._frames.pop()
        if bracket == ")" and _is_unfinished(self._peek(-1)) and not self._is(-2, "("):  # id(+)
            self._mark_broken("no end before a parenthesis")
        outer = self._frames[-1]
        if frame.queried and frame.bracket == "(" and outer.bracket in ("", "(") and not outer.clause:
            outer.queried = True  # ((SELECT 1))
        # TOP (5) name and DISTINCT ON (a) name: what follows is not an alias.
        self._state = _State.OPEN if frame.opener in ("top", "on") else _State.OPERAND


def _is_unfinished(token: Token) -> bool:
    word = token.kind == "word" and token.text in UNFINISHED
    return word or (token.kind == "op" and token.text != "*") or token == ("punct", ",")


def _format_excerpt(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "...")
