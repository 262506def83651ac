"""YAML text as a tree with places."""

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.reading.yaml_reader import (
    BROKEN,
    MAX_ALIASES,
    MAX_DEPTH,
    MAX_FILE_BYTES,
    MAX_VALUES,
    Mark,
    YamlSource,
    parse,
    read_text,
)


def read(text: str) -> YamlSource:
    return parse(text, environ={"X": "12", "NULL": "null", "Y": "a: [b]"})


def fault(text: str) -> tuple[int, int, str]:
    """The only fault of a text."""
    (only,) = read(text).faults
    return only.mark.line, only.mark.column, only.message


def test_yaml_is_read_as_plain_data_in_every_style() -> None:
    """Sections, lists, text, numbers, true, false and nothing, in every style."""
    source = read('a: 1\nb: [x, 2.5, true, ~]\nc: {d: "1", e: \'no\'}\nf: |\n  two\n  lines\n"on": >\n  folded\n')
    assert source.tree == {
        "a": 1,
        "b": ["x", 2.5, True, None],
        "c": {"d": "1", "e": "no"},
        "f": "two\nlines\n",
        "on": "folded\n",
    }
    assert source.complete and not source.faults


def test_yaml_keys_and_values_have_line_and_column() -> None:
    """Keys and values by line and column, counted in characters from 1."""
    source = read("# ü\nlisten: a:1\nupstreams:\n  - name: ü\n    base_url: b\n  - {name: ö, base_url: c}\n")
    assert source.keys[("upstreams", 0, "base_url")] == Mark(5, 5)
    assert source.values[("upstreams", 0, "base_url")] == Mark(5, 15)
    assert source.values[("upstreams", 1, "base_url")] == Mark(6, 25)
    assert source.values[("listen",)] == Mark(2, 9)


@pytest.mark.parametrize("text", ["", "\n", "# only a comment", "---\n", "---\n...\n", "\ufeff"[1:]])
def test_empty_yaml_file_yields_no_tree_and_no_faults(text: str) -> None:
    """No document, or an empty one, is nothing; that is no fault."""
    source = read(text)
    assert source.tree is None and source.complete and not source.faults


def test_a_duplicate_key_is_named_with_both_places() -> None:
    """The first stays; what stands at the second is still read."""
    assert fault("a: 1\nb: 2\na: {c: [3]}\n") == (3, 1, "this key is already at 1:1: keep one of the two")
    assert fault("x: {a: 1, a: 2}")[0:2] == (1, 11)
    assert len(read("a: 1\na: 2\na: 3\n").faults) == 2
    assert read("a: 1\na: 2\n").tree == {"a": 1}


@pytest.mark.parametrize(
    "text",
    [
        "a: !!python/object/apply:os.system [echo]",
        "a: !!python/name:os.system",
        "a: !!str 1",
        "a: !mine {}",
        "!!map {}",
        "a: !!set {b}",
    ],
)
def test_tags_are_refused(text: str) -> None:
    """Whatever they would build; the tree stays plain data."""
    assert "tags such as" in fault(text)[2]


def test_merge_keys_are_refused() -> None:
    """What a section holds stands in it."""
    source = read("base: &b {x: 1}\nc:\n  <<: *b\n  y: 2\n")
    assert [(f.mark, f.message) for f in source.faults] == [
        (Mark(3, 3), "merge keys (<<) are not used here: write the keys out")
    ]
    assert source.tree == {"base": {"x": 1}, "c": {"y": 2}}
    assert read('c: {"<<": 1}').faults == []


def test_yaml_alias_expands_to_its_anchor_with_its_own_place() -> None:
    """Its place is its own."""
    source = read("a: &x {b: [1]}\nc: *x\n")
    assert source.tree == {"a": {"b": [1]}, "c": {"b": [1]}}
    assert source.values[("c",)] == Mark(2, 4)
    assert ("c", "b") not in source.values


def test_an_alias_without_or_inside_its_anchor_is_refused() -> None:
    """A tree never contains itself."""
    assert fault("a: *nope")[2] == "the alias *nope has no anchor &nope above it"
    assert fault("a: &x [*x]")[2] == "the alias *x stands inside of what it names"
    assert fault("&x a: &y {b: *y}")[2] == "the alias *y stands inside of what it names"


def test_billion_laughs_are_counted_not_expanded() -> None:
    """Ten levels of ten aliases stop at the cap, in no time."""
    text = "l0: &l0 [x, x, x, x, x, x, x, x, x, x]\n"
    for level in range(1, 10):
        text += f"l{level}: &l{level} [{', '.join([f'*l{level - 1}'] * 10)}]\n"
    started = time.process_time()
    assert f"more than {MAX_VALUES} values" in fault(text)[2]
    assert time.process_time() - started < 1


def test_the_number_of_aliases_is_limited() -> None:
    """Few are enough for anything a person writes."""
    assert not read("a: &x 1\nb: [" + "*x, " * MAX_ALIASES + "]").faults
    assert f"more than {MAX_ALIASES} aliases" in fault("a: &x 1\nb: [" + "*x, " * (MAX_ALIASES + 1) + "]")[2]


def test_depth_is_limited_with_aliases_too() -> None:
    """Nesting stops at a depth that nobody can overflow a stack with; aliases do not add up."""
    assert not read("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)).faults
    assert f"deeper than {MAX_DEPTH}" in fault("[" * (MAX_DEPTH + 2) + "]" * (MAX_DEPTH + 2))[2]
    half = MAX_DEPTH // 2
    assert not read(f"a: &a {'[' * half}{']' * half}\nb: {'[' * half}*a{']' * half}").faults
    half += 1
    assert f"deeper than {MAX_DEPTH}" in fault(f"a: &a {'[' * half}{']' * half}\nb: {'[' * half}*a{']' * half}")[2]


@pytest.mark.parametrize("unit", ["[", "{", "- ", "? ", "[a,", "{a: ", "- - ", "&a [", "? - "])
def test_deeply_nested_yaml_is_refused_quickly(unit: str) -> None:
    """A megabyte of openings is refused at once."""
    started = time.process_time()
    source = read(unit * (MAX_FILE_BYTES // len(unit)))
    assert source.faults
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("a: [1\nb: 2", 2, 2, "expected ',' or ']'"),
        ("a:\n\tb: 1", 2, 1, "indent with spaces, not tabs"),
        ("listen: [::1]:80", 1, 10, "needs quotes"),
        ("a: b: c", 1, 5, "mapping values are not allowed"),
        ("a: 1\n---\nb: 2", 2, 1, "a second document"),
        ("a: \x00b", 1, 4, "U+0000 is not allowed"),
        ("a: 1\nb: \x1b[31m", 2, 4, "U+001B"),
        ("{a: 1}: 2", 1, 1, "a key must be plain text"),
        ("a: 'x", 1, 6, "end of stream"),
        ("%YAML 3.0\n---\na", 1, 1, "incompatible"),
    ],
)
def test_invalid_yaml_is_reported_with_line_and_column(text: str, line: int, column: int, message: str) -> None:
    """Line, column and, where one is likely, the remedy; the tree is not complete."""
    found = fault(text)
    assert message in found[2]
    assert found[:2] == (line, column)
    assert not read(text).complete


def test_variable_references_in_yaml_are_expanded_in_place() -> None:
    """Text stays text; an unquoted null is nothing; a faulty one leaves a mark in the tree."""
    source = read('a: ${X}\nb: ${NULL}\nc: "${NULL}"\nd: ${Y}\ne: ${NOPE} and ${NADA}\n${X}: 1\nf: $$\n')
    assert source.tree == {"a": "12", "b": None, "c": "null", "d": "a: [b]", "e": BROKEN, "${X}": 1, "f": "$"}
    assert [(f.mark, f.path) for f in source.faults] == [(Mark(5, 4), ("e",))] * 2
    assert parse("a: ${X} $$", environ=None).tree == {"a": "${X} $$"}


def test_references_need_no_quotes_between_braces() -> None:
    """To YAML their braces, commas and colons would be its own; places stay what they are."""
    source = read("a: {b: ${X}, c: x${NOPE:-d, [e]: #f}y, g: 1}\nh: [${X}, '${X}']\n? ${X}\n: 2\n")
    assert source.tree == {"a": {"b": "12", "c": "xd, [e]: #fy", "g": 1}, "h": ["12", "12"], "${X}": 2}
    assert source.values[("a", "g")] == Mark(1, 43)
    assert read('a: "${NOPE:-\\"q\\"}"').tree == {"a": '"q"'}
    assert parse("a: {b: ${X}}", environ=None).tree == {"a": {"b": "${X}"}}
    assert "U+F0041 is not allowed" in fault("a: \U000f0041")[2]


def test_configuration_file_must_be_small_and_utf_8(tmp_path: Path) -> None:
    """Everything else is a ValueError that names the file and nothing of its content."""
    path = tmp_path / "f"
    path.write_bytes(b"\xef\xbb\xbfa: 1\r\n")
    assert read_text(path, limit_bytes=100) == "a: 1\r\n"
    assert read_text(path, limit_bytes=9) == "a: 1\r\n"
    with pytest.raises(ValueError, match="larger than 8 bytes"):
        read_text(path, limit_bytes=8)
    path.write_bytes(b"ab\xff")
    with pytest.raises(ValueError, match="not UTF-8 at byte 2"):
        read_text(path, limit_bytes=100)
    with pytest.raises(ValueError, match="Is a directory"):
        read_text(tmp_path, limit_bytes=100)
    with pytest.raises(ValueError, match="No such file"):
        read_text(tmp_path / "nope", limit_bytes=100)
    with pytest.raises(ValueError, match="not a path"):
        read_text(Path("a\0b"), limit_bytes=100)
    for device in ("/dev/null", "/dev/zero"):
        with pytest.raises(ValueError, match="it is a device, not a regular file"):
            read_text(Path(device), limit_bytes=100)


_SYNTAX = st.text(st.sampled_from("ab:-?!&*#|>%@`'\"[]{}, \n\t\\$<~0.\u2028ü\x85\r"), max_size=60)


@given(_SYNTAX | st.text(max_size=60))
def test_yaml_reader_never_raises_on_any_text(text: str) -> None:
    """Any text gives a tree or faults; every fault has a place."""
    source = read(text)
    assert source.complete or source.faults
    assert all(f.mark.line >= 1 and f.mark.column >= 1 and f.message for f in source.faults)
