"""The configuration while it is put together."""

from pathlib import Path

import pytest

from gateway.config.document import Document
from gateway.config.problems import ConfigError, KeyPath, SourceLocation
from gateway.config.reading.yaml_reader import parse

TEXT = "a: &x {b: 1, c: null}\nd: *x\ne: [{n: p}, {n: q}]\nf: ${NOPE}\n"
ENV = SourceLocation("GATEWAY__X")


def document(text: str = TEXT) -> Document:
    source = parse(text, environ={})
    source.faults.clear()
    return Document(source, file="f.yaml", folder=Path("/"))


def messages(of: Document) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        of.raise_problems()
    return [str(problem) for problem in caught.value.problems]


def test_values_are_found_by_path() -> None:
    """A value that is missing, null, or below a single value is None."""
    subject = document()
    assert subject.get("e", 1, "n") == "q"
    for path in (("a", "c"), ("nope",), ("e", 2), ("e", "n"), ("a", "b", "deeper"), ("a", 0)):
        assert subject.get(*path) is None


def test_put_does_not_modify_values_shared_through_an_alias() -> None:
    """The tree of the file is never changed in place; sections and lists on the way are made."""
    subject = document()
    subject.put(("d", "b"), 2, place=ENV)
    subject.put(("e", 2, "n"), "r", place=ENV)
    subject.put(("new", "list", 0), "s", place=ENV)
    assert (subject.get("a", "b"), subject.get("d", "b")) == (1, 2)
    assert (subject.get("e", 2), subject.get("new")) == ({"n": "r"}, {"list": ["s"]})


def test_document_place_falls_back_to_the_nearest_parent() -> None:
    """The file's line and column, until something else is put over it; then that, and all below it."""
    subject = document()
    assert str(subject.locate(("a", "b"))) == "f.yaml:1:11"
    assert str(subject.locate(("a", "b"), key=True)) == "f.yaml:1:8"
    assert str(subject.locate(("d", "b"))) == "f.yaml:2:4"
    assert str(subject.locate(("a", "nope"))) == "f.yaml:1:4"
    subject.put(("a",), {"b": 3}, place=ENV)
    assert subject.locate(("a", "b")) == ENV
    assert str(subject.locate(("z", "y"))) == "f.yaml:1:1"


def test_wildcard_pattern_matches_only_existing_keys() -> None:
    """`*` is any key or index; null is not there."""
    subject = document()
    assert list(subject.iterate_matches("e", "*", "n")) == [("e", 0, "n"), ("e", 1, "n")]
    assert list(subject.iterate_matches("a", "*")) == [("a", "b")]
    assert list(subject.iterate_matches("nope", "*")) == []


def test_dropped_key_leaves_the_document_with_its_places() -> None:
    """With its places; one that is not there is no matter."""
    subject = document()
    subject.drop(("a", "b"))
    for nothing in (("a", "nope"), ("nope", "x"), ("e", "n")):
        subject.drop(nothing)
    assert subject.get("a") == {"c": None} and subject.get("d", "b") == 1
    assert str(subject.locate(("a", "b"))) == "f.yaml:1:4"


def test_problems_come_in_the_order_of_the_file() -> None:
    """Then variables and flags; one that is said twice is said once; a broken value is not complained about again."""
    subject = document()
    subject.put(("v",), {"w": 1}, place=ENV)
    said: list[tuple[KeyPath, str]] = [(("v",), "v"), (("v", "w"), "w"), (("e", 0), "e"), (("a", "b"), "b")]
    for path, message in [*said, said[-1], (("f",), "not again")]:
        subject.complain(path, message)
    subject.complain_about("--flag", "no")
    assert messages(subject) == [
        "f.yaml:1:11 a.b: b",
        "f.yaml:3:5 e[0]: e",
        "GATEWAY__X: v",
        "GATEWAY__X v.w: w",
        "--flag: no",
    ]


def test_without_problems_nothing_is_raised() -> None:
    """Warnings are no problems."""
    subject = document()
    subject.warn(("a", "b"), "ignored")
    subject.raise_problems()
    assert subject.list_warnings() == ("f.yaml:1:8 a.b: ignored",)
