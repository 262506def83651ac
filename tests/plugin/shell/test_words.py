"""The certain parts of a word, whatever is expanded."""

from gateway.plugin.shell.words import ANY_WORD, WordBuilder


def test_word_builder_counts_the_fixed_prefix_and_tail() -> None:
    """In front, and behind unless a bracket is open or closed there."""
    draft = WordBuilder()
    draft.add("ab")
    draft.expand("*")
    draft.add(".py")
    word = draft.build_word()
    assert (word.text, word.fixed, word.tail, word.splits, word.wild) == ("ab*.py", 2, 3, True, False)
    draft = WordBuilder()
    draft.expand("[")
    draft.add("-.]delete")
    assert draft.build_word().tail == 0


def test_word_may_be_option_depends_on_its_beginning() -> None:
    """An unquoted variable may be one wherever it stands."""
    assert ANY_WORD.may_be_option
    draft = WordBuilder()
    draft.add("a")
    draft.expand("$HOME", wild=True)
    assert draft.build_word().may_be_option
    draft = WordBuilder()
    draft.add("a")
    draft.expand("$HOME", splits=False)
    assert not draft.build_word().may_be_option
    assert draft.build_word().without_prefix(1).may_be_option
