"""Text, flags, counts, names and paths."""

from pathlib import Path

import pytest

from gateway.config.values.scalars import (
    build_count_type,
    parse_count,
    parse_existing_file,
    parse_flag,
    parse_free_text,
    parse_label,
    parse_name,
    parse_path,
    parse_text,
    parse_variable_name,
)
from gateway.config.values.secret import MaskedText


def test_number_in_a_text_setting_is_refused_without_quotes() -> None:
    """A value that YAML reads as something else is refused with the remedy."""
    assert parse_text("abc") == "abc"
    for value, found in ((1, "a number"), (1.5, "a number"), (True, "true or false")):
        with pytest.raises(ValueError, match=f"found {found}: put it in quotes"):
            parse_text(value)
    others: list[tuple[object, str]] = [([], "a list"), ({}, "a section"), (None, "nothing"), (object(), "something")]
    for other, found in others:
        with pytest.raises(ValueError, match=f"found {found}"):
            parse_text(other)
    with pytest.raises(ValueError, match="UTF-8"):
        parse_text("\udcff")


def test_masked_text_stays_masked_only_in_free_text() -> None:
    """A name is shown in messages; free text that came from a variable is not."""
    assert isinstance(parse_free_text(MaskedText("x")), MaskedText)
    assert type(parse_text(MaskedText("x"))) is str
    assert type(parse_name(MaskedText("x"))) is str


def test_flags_are_true_and_false() -> None:
    """In a file only the two words; text from a variable may say it in other usual words."""
    assert parse_flag(True) is True
    assert [parse_flag(word) for word in ("true", "Yes", "on", "1")] == [True] * 4
    assert [parse_flag(word) for word in ("false", "NO", "off", "0")] == [False] * 4
    values: list[object] = [1, 0, None, "maybe", "", [], 1.0]
    for value in values:
        with pytest.raises(ValueError, match="expected true or false"):
            parse_flag(value)


def test_counts_are_whole_numbers_within_limits() -> None:
    """Text from a variable counts; a fraction, a flag or a number without end does not."""
    assert parse_count(3) == parse_count("3") == parse_count(" 3 ") == 3
    values: list[object] = [True, 1.0, "1.5", "", None, "9" * 5000, "٣", []]
    for value in values:
        with pytest.raises(ValueError, match="expected a whole number"):
            parse_count(value)
    leaf = build_count_type(1, 256)
    assert (leaf.parse(1), leaf.parse("256")) == (1, 256)
    for count in (0, 257, -1):
        with pytest.raises(ValueError, match="must be between 1 and 256"):
            leaf.parse(count)


def test_names_and_labels_are_validated() -> None:
    """In a URL, a header, a metric label; labels for people are one line of anything."""
    for name in ("openai", "a", "9", "gpt-4.1_x", "a" * 64):
        assert parse_name(name) == name
    for name in ("", "-a", ".a", "a b", "ä", "a/b", "a" * 65, "a\n"):
        with pytest.raises(ValueError, match="expected 1 to 64"):
            parse_name(name)
    assert parse_label("Büro 3 @ home") == "Büro 3 @ home"
    for label in ("", "  ", "a\nb", "a\x1b[0m", "a" * 129, "a\u2028b"):
        with pytest.raises(ValueError, match="expected 1 to 128"):
            parse_label(label)
    assert parse_variable_name("A_FILE") == "A_FILE"
    for name in ("", "A=B", "A\0"):
        with pytest.raises(ValueError, match="environment variable"):
            parse_variable_name(name)


def test_paths_begin_at_the_folder_of_the_file(tmp_path: Path) -> None:
    """Relative to the given folder, absolute as they are."""
    assert parse_path("a/b", tmp_path) == tmp_path / "a/b"
    assert parse_path("/etc/x", tmp_path) == Path("/etc/x")
    assert parse_path(Path("a"), tmp_path) == tmp_path / "a"
    for value in ("", "a\0b", 5, None):
        with pytest.raises(ValueError, match="expected"):
            parse_path(value, tmp_path)


def test_missing_required_file_is_refused(tmp_path: Path) -> None:
    """A folder is not a file, and a name that the system refuses is a message like any other."""
    (tmp_path / "here").write_text("x")
    assert parse_existing_file("here", tmp_path) == tmp_path / "here"
    for missing in ("nope", ".", "here/x"):
        with pytest.raises(ValueError, match="no such file"):
            parse_existing_file(missing, tmp_path)
    with pytest.raises(ValueError, match="cannot look at"):
        parse_existing_file("n" * 5000, tmp_path)
