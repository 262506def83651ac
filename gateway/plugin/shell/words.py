"""One word of a command: what of its text is certain, whatever is expanded."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Word:
    """One word after quotes are removed; globs, braces and variables stay as they are written.

    `fixed`: how many leading characters no expansion changes (all of them: nothing is expanded). `tail`: the same at
    the end. `splits`: it may become several words. `wild`: it may become any words or none, whatever stands around it.
    """

    text: str
    fixed: int
    tail: int
    splits: bool = False
    bare: bool = True  # written without quotes and escapes
    tilde: bool = False  # it begins with a home folder, which is an absolute path
    wild: bool = False

    @property
    def expands(self) -> bool:
        return self.fixed < len(self.text)

    @property
    def may_be_option(self) -> bool:
        """Return whether it may become a word that begins with a dash, though it is not written like one."""
        return self.wild or (self.expands and self.fixed == 0)

    def without_prefix(self, start: int) -> "Word":
        """Return the word without its first `start` characters, such as an option's value without the option."""
        return Word(self.text[start:], max(self.fixed - start, 0), self.tail, self.splits, self.bare, wild=self.wild)


#: A word that another program puts in place when it runs: any text at all.
ANY_WORD = Word("{}", 0, 0, splits=True, wild=True)


class WordBuilder:
    """The word under way."""

    def __init__(self) -> None:
        self.text = ""
        self.tilde = self.brace = self.begun = False
        self.bare = True
        self._fixed = -1
        self._tail_from = 0
        self._splits = self._wild = self._bracket = False

    def add(self, text: str, *, bare: bool = True) -> None:
        self.text += text
        self.begun = True
        self.bare = self.bare and bare

    def expand(self, written: str, *, splits: bool = True, wild: bool = False) -> None:
        if self._fixed < 0:
            self._fixed = len(self.text)
        self.add(written)
        self._splits = self._splits or splits
        self._wild = self._wild or wild
        self._bracket = self._bracket or written == "["
        self._tail_from = len(self.text)

    def build_word(self) -> Word:
        if self.text == "[" and self.bare:
            return Word("[", 1, 1)
        size = len(self.text)
        fixed = size if self._fixed < 0 else self._fixed
        # What stands in a bracket is one character, not text.
        tail = 0 if self._bracket else size - self._tail_from
        return Word(self.text, fixed, tail, self._splits, self.bare, self.tilde, self._wild)
