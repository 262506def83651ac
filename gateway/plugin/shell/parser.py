"""The reader of the plain subset of sh that the gate can judge.

The subset: words, quotes, lists, `for`, `if`, discarded output, globs, short substitutions, here-documents.

Rule 1: no shell (dash, bash, busybox) runs a command or opens a file that `parse` does not return; where they differ,
the text is not plain.
Rule 2: what runs code while words are expanded is not plain: arithmetic, unknown variables, back-ticks. The commands of
a plain `$(...)` are steps like the others, in front of the step that takes their output.
Rule 3: a variable has no value here. It may be empty or hold anything, and without quotes it is any words or none.
Rule 4: one pass from left to right; every pattern is possessive, so hostile text costs no more than its length.

Theory of operation. `parse` does not decide what is harmless. It returns every command of a text as words, or raises
Objection; `gateway.plugin.shell.classifier` then compares each command with the tables. So an error here is a command
that runs without a verdict. All that is not in `_PIECE` is therefore refused, not skipped.

1. *Pieces.* `_PIECE` matches one piece at a time: a gap, an operator, a redirection, a quoted or a plain part of a
   word. Where nothing matches, `_NOT_PLAIN` names the reason (a substitution, a subshell, a background job).
2. *Words.* `WordBuilder` collects parts until a gap or an operator. It notes whether the word expands (`expand`),
   begins with a tilde, or had quotes (`bare`): a quoted `"if"` is not a reserved word.
3. *Steps.* An operator or a line end closes a step, that is, one simple command with its inputs. `piped`: it reads from
   the step before. `Constructs` takes reserved words away from the front of a step, and may leave none.
4. *Redirections* wait in `_target` for their word. Output may go to /dev/null or another descriptor only. Inputs are
   returned with the step, and its reader judges them. A construct as a whole has none.
5. *A substitution* holds no parenthesis, backslash, comment or line end, so each shell ends it at the same place. A
   separate reader reads it, and its output is any words.
6. *A here-document* begins behind the next line end and ends at the line that is its mark. In between is text alone.
7. `end` closes the last step, and refuses open constructs and a missing command.

`Script.extras` notes what is plain but rare in commands that a person types (a continuation, a comment, an input file,
a second line, a construct). Stricter profiles refuse them. `Script.argv` is set where no shell is needed at all.

Dangers, each with its own check:
- *Shells differ.* `~+` and `~1`, `{a..b}`, `{name}>` and digits before `>` mean other things to bash than to dash: not
  plain.
- *Words that vanish.* An unquoted variable may be empty, so the word behind it becomes the command. Words that expand
  are marked, and no reader accepts one in the place of a command's name.
- *Reserved words behind a redirection* are commands to some shells: refused.
- *Invisible characters* hide what a person approves: refused before anything else.
- *Here-documents.* `<<-` and expansions in the text are read differently; a line end in a quote or behind a backslash
  hides where the text begins: not plain.
- *Cost.* Characters, pieces, words and expansions are bounded.
"""

import re
from dataclasses import dataclass, field
from typing import NoReturn

from gateway.plugin.paths import find_unseen
from gateway.plugin.shell.control_flow import Constructs
from gateway.plugin.shell.objection import Objection
from gateway.plugin.shell.words import Word, WordBuilder

#: A command for a person's eyes is far below these; they bound what one assessment costs.
MOST_CHARACTERS, MOST_PIECES, MOST_WORDS, MOST_EXPANSIONS = 4096, 1024, 256, 16

#: Variables that hold no secret, set or not.
VARIABLES = frozenset({"HOME", "PWD", "SHELL", "PATH", "USER", "LANG"})

#: What only a shell has.
BUILTINS = frozenset({"cd", "command", "type"})

# `$` before one of these is itself; before anything else it expands or depends on the shell (`$'`, `$[`, `$"`).
_PLAIN_DOLLAR = r"\$(?=[ \t\n|)/.,:;%+=~^&<>\]}]|\Z)"
_VARIABLE = r"\$(?:(?P<{0}>[A-Za-z_][A-Za-z0-9_]*+)|\{{(?P<{0}_braced>[A-Za-z_][A-Za-z0-9_]*+)\}})"

# No parenthesis, quote mark of the other kind, comment or escape hides the end of one from any shell.
_SUBSTITUTION = r"""\$\((?P<{0}>(?:[^()`\\\#\n'"]++|'[^'()`\\\#\n"]*+'{1})++)\)"""
_IN_QUOTES = r"""|"[^"()`\\\#\n']*+\""""

_PIECE = re.compile(
    rf"""
    (?P<gap>[ \t]++(?:\\\n[ \t]*+)*+)
  | (?P<join>[12]?>&[12](?=[ \t\n;|&]|\Z))
  | (?P<discard>[12]?>>?(?![<>&(|]))
  | (?P<document><<[ \t]*+(?P<quote>['"]?)(?P<mark>[A-Za-z_][A-Za-z0-9_]*+)(?P=quote)(?=[ \t\n|;]|\Z))
  | (?P<input>0?<(?![<>&(]))
  | (?P<operator>&&|\|\||\||;)
  | (?P<newline>\n)
  | (?P<braces>\{{[A-Za-z0-9_]*+\}})
  | (?P<literal>[^\s'"\\|&;<>()$`~\#*?\[{{]++)
  | (?P<single>'[^']*+')
  | (?P<double>"(?:[^"\\]|\\[^\n])*+")
  | (?P<escape>\\[^\n])
  | (?P<substitution>{_SUBSTITUTION.format("inner", _IN_QUOTES)})
  | (?P<variable>{_VARIABLE.format("name")})
  | (?P<dollar>{_PLAIN_DOLLAR})
  | (?P<special>[~\#*?\[{{])
    """,
    re.VERBOSE,
)
#: What expands in the text of a here-document whose mark has no quotes.
_EXPANDED = re.compile(r"[$`\\]")
_IN_DOUBLE = re.compile(
    rf"""
    (?P<text>[^\\$`]++)
  | \\(?P<escaped>[$`"\\])
  | (?P<backslash>\\)
  | {_SUBSTITUTION.format("inner", "")}
  | {_VARIABLE.format("name")}
  | (?P<dollar>{_PLAIN_DOLLAR})
    """,
    re.VERBOSE,
)

_NOT_PLAIN = {
    "`": "a command substitution",
    "$": "an expansion that is not plain",
    "(": "a subshell, function or process substitution",
    ")": "an unmatched parenthesis",
    "&": "a background job",
    ">": "a redirection that is not plain",
    "<": "a here-document or another redirection that is not plain",
    "'": "an unbalanced quote",
    '"': "an unbalanced quote",
    "\\": "an escaped line end within a word",
}


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """One simple command; `piped`: its input comes from the step before. `document`: its input stands in the text."""

    words: tuple[Word, ...]
    inputs: tuple[Word, ...] = ()
    piped: bool = False
    document: bool = False

    @property
    def has_input(self) -> bool:
        """Return whether it reads something else than the input of the whole text."""
        return bool(self.piped or self.inputs or self.document)


@dataclass(frozen=True, slots=True)
class Script:
    """A plain text, read. `extras`: what a person writes rarely (continuation, comment, input, line, construct,
    substitution)."""

    steps: tuple[SimpleCommand, ...]
    redirects: bool = False
    extras: frozenset[str] = frozenset()

    @property
    def argv(self) -> tuple[str, ...] | None:
        """Return what can be executed without a shell; None: it takes one."""
        words = self.steps[0].words
        if len(self.steps) > 1 or self.redirects or "construct" in self.extras or words[0].text in BUILTINS:
            return None
        return None if any(word.expands or word.tilde for word in words) else tuple(word.text for word in words)


def parse(text: str) -> Script:
    """Raise Objection("not_plain", why) for everything outside the subset."""
    if len(text) > MOST_CHARACTERS:
        _raise_objection(f"{len(text)} characters are more than {MOST_CHARACTERS}")
    hidden = find_unseen(text)
    if hidden is not None:
        _raise_objection(f"it holds the invisible character {hidden}")
    return _parse_script(text, variables=frozenset())


def _parse_script(text: str, *, variables: frozenset[str]) -> Script:
    reader = _Reader(variables)
    trimmed = text.strip(" \t\n")
    position = pieces = 0
    while position < len(trimmed):
        match = _PIECE.match(trimmed, position)
        if match is None:
            character = trimmed[position]
            _raise_objection(f"it holds {_NOT_PLAIN.get(character, f'{character!r}, which is not plain')}")
        position = reader.take(match)
        pieces += 1
        if pieces > MOST_PIECES:
            _raise_objection(f"it holds more than {MOST_PIECES} pieces")
    return reader.end()


def _raise_objection(why: str) -> NoReturn:
    raise Objection("not_plain", f"The command is not plain sh: {why}.")


@dataclass(slots=True)
class _OpenStep:
    """The step that words are added to."""

    words: list[Word] = field(default_factory=list)
    inputs: list[Word] = field(default_factory=list)
    piped: bool = False
    document: bool = False  # it has a here-document
    begun: bool = False
    redirect_first: bool = False  # a redirection stands in front of its words


class _Reader:
    """Collects pieces into words, words into steps."""

    def __init__(self, variables: frozenset[str]) -> None:
        self._variables = VARIABLES | variables
        self._steps: list[SimpleCommand] = []
        self._step = _OpenStep()
        self._draft = WordBuilder()
        self._constructs = Constructs()
        self._target: str | None = None  # the redirection that waits for its target
        self._redirects = False
        self._operator_before: str | None = None
        self._mark: str | None = None  # the line that ends the here-document that begins behind this line
        self._expanding = False  # its text expands
        self._extras: set[str] = set()
        self._counted = self._expansions = 0

    def take(self, match: "re.Match[str]") -> int:
        """Return where the next piece begins."""
        kind, piece = match.lastgroup or "", match.group()
        if self._mark is not None and kind != "newline" and "\n" in piece:
            _raise_objection("a line end hides where its here-document begins")
        if kind == "variable":
            self._read_variable(match)
        elif kind == "substitution":
            self._read_substitution(match["inner"], quoted=False)
        elif kind in ("literal", "dollar", "braces"):
            self._draft.add(piece)
        elif kind == "gap":
            self._end_word()
            if "\n" in piece:
                self._extras.add("continuation")
        elif kind == "newline":
            self._end_line()
            if self._mark is not None:
                return self._skip_document(match.string, match.end())
        elif kind == "single":
            self._draft.add(piece[1:-1], bare=False)
        elif kind == "double":
            self._read_double_quotes(piece[1:-1])
        elif kind == "escape":
            self._draft.add(piece[1], bare=False)
        elif kind == "special":
            return self._read_special(match)
        elif kind == "operator":
            self._read_operator(piece)
        elif kind == "document":
            self._begin_document(match)
        else:
            self._redirect(kind, piece)
        return match.end()

    def end(self) -> Script:
        self._end_word()
        if self._mark is not None:
            _raise_objection("a here-document has no end")
        if self._step.begun or self._operator_before not in (";", "\n"):
            self._end_step()
        self._constructs.end()
        if not self._steps:
            _raise_objection("a command is missing")
        if self._constructs.any:
            self._extras.add("construct")
        return Script(tuple(self._steps), self._redirects, frozenset(self._extras))

    def _read_variable(self, match: "re.Match[str]", *, quoted: bool = False) -> None:
        name = match["name"] or match["name_braced"]
        if name not in self._variables and name not in self._constructs.variables:
            raise Objection("variable", f"The command expands the variable {name!r}.")
        self._expand(match.group(), splits=not quoted, wild=not quoted)

    def _read_substitution(self, inner: str, *, quoted: bool) -> None:
        script = _parse_script(inner, variables=self._variables | self._constructs.variables)
        if "construct" in script.extras or any(step.words[0].text == "cd" for step in script.steps):
            _raise_objection("a substitution that holds more than commands")
        self._extras |= script.extras | {"substitution"}
        self._steps += script.steps
        self._expand(f"$({inner})", splits=not quoted, wild=not quoted)

    def _expand(self, written: str, *, splits: bool = True, wild: bool = False) -> None:
        self._expansions += 1
        if self._expansions > MOST_EXPANSIONS:
            _raise_objection(f"it holds more than {MOST_EXPANSIONS} globs and variables")
        self._draft.expand(written, splits=splits, wild=wild)

    def _read_double_quotes(self, body: str) -> None:
        self._draft.add("", bare=False)
        position = 0
        while position < len(body):
            match = _IN_DOUBLE.match(body, position)
            if match is None:
                _raise_objection(f"it holds {_NOT_PLAIN[body[position]]}")
            if match["name"] or match["name_braced"]:
                self._read_variable(match, quoted=True)
            elif match["inner"]:
                self._read_substitution(match["inner"], quoted=True)
            else:
                self._draft.add(match["escaped"] or match.group(), bare=False)
            position = match.end()

    def _read_special(self, match: "re.Match[str]") -> int:
        piece, draft = match.group(), self._draft
        if piece == "#" and not draft.begun:
            self._extras.add("comment")
            line_end = match.string.find("\n", match.end())
            return len(match.string) if line_end < 0 else line_end
        if piece == "~" and not draft.begun:
            draft.tilde = True
            if match.string.startswith(("+", "-", *"0123456789"), match.end()):
                _raise_objection("a tilde that some shells take for the folder before")
        if piece in "~#":
            draft.add(piece)
        elif piece == "{":
            if draft.brace:
                _raise_objection("a word holds more than one brace")
            draft.brace = True
            self._expand(piece)
        else:
            self._expand(piece)
        return match.end()

    def _read_operator(self, piece: str) -> None:
        self._end_word()
        self._end_step()
        self._step.piped = piece == "|"
        self._operator_before = piece

    def _end_line(self) -> None:
        """End the step if there is one; behind an operator and in front of everything a line end is a gap."""
        self._end_word()
        self._extras.add("line")
        if self._step.begun:
            self._end_step()
            self._step.piped = False
            self._operator_before = "\n"

    def _begin_document(self, match: "re.Match[str]") -> None:
        self._redirect("join", match.group())
        if self._mark is not None or self._step.document:
            _raise_objection("it holds more than one here-document in a line")
        self._mark, self._expanding, self._step.document = match["mark"], not match["quote"], True
        self._extras.add("input")

    def _skip_document(self, text: str, start: int) -> int:
        """Return where the text behind the here-document goes on, which is the line end behind its mark."""
        end = re.compile(rf"^{self._mark}$", re.MULTILINE).search(text, start)
        if end is None:
            _raise_objection("a here-document has no end")
        if self._expanding and _EXPANDED.search(text, start, end.start()):
            _raise_objection("a here-document expands: put its mark in quotes")
        self._mark = None
        return end.end()

    def _redirect(self, kind: str, piece: str) -> None:
        # bash opens a descriptor for `{name}>`, and reads a digit in front as one.
        if self._draft.begun and (piece[0].isdigit() or self._draft.text.isdigit() or "{" in self._draft.text):
            _raise_objection("a descriptor is not plain")
        self._end_word()
        if self._target is not None:
            _raise_objection("a redirection has no target")
        self._step.redirect_first = self._step.redirect_first or not self._step.words
        self._redirects = self._step.begun = True
        if kind != "join":
            self._target = kind

    def _end_word(self) -> None:
        if not self._draft.begun:
            return
        word, brace = self._draft.build_word(), self._draft.brace
        self._draft, self._step.begun = WordBuilder(), True
        self._counted += 1
        if self._counted > MOST_WORDS:
            _raise_objection(f"it holds more than {MOST_WORDS} words")
        if brace and ".." in word.text:
            _raise_objection("a brace counts")
        target, self._target = self._target, None
        if target is None:
            self._step.words.append(word)
        elif word.expands:
            _raise_objection("the target of a redirection is expanded")
        elif target == "input":
            self._step.inputs.append(word)
            if word.text != "/dev/null":
                self._extras.add("input")
        elif word.text != "/dev/null":
            raise Objection("redirection", f"The command writes to {word.text!r}.")

    def _end_step(self) -> None:
        if self._target is not None:
            _raise_objection("a redirection has no target")
        if not self._step.words:
            _raise_objection("a command is missing")
        words = self._constructs.read_command(self._step.words)
        if len(words) < len(self._step.words) and self._step.redirect_first:
            _raise_objection("a redirection stands in front of a reserved word")
        if words:
            self._steps.append(
                SimpleCommand(tuple(words), tuple(self._step.inputs), self._step.piped, self._step.document)
            )
        elif self._step.document or any(word.text != "/dev/null" for word in self._step.inputs):
            raise Objection("redirection", "The command gives an input to a whole construct.")
        self._step = _OpenStep(piped=self._step.piped)
