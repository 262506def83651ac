"""The parts that stay in a prompt of limited size: in which order tools give way, and that they are never cut."""

from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.contracts.tools import ToolSpec
from gateway.plugins.stages.prompt_enhancer.selection import (
    QUESTION_CHARS,
    Selection,
    extract_words,
    select,
    write_tool_texts,
    write_whole_text,
)
from gateway.plugins.stages.prompt_enhancer.tool_prompt import count_utf8_bytes


def spec(name: str, description: str = "Does it.", category: str = "general", priority: int = 0) -> ToolSpec:
    return ToolSpec(name=name, description=description, parameters={}, category=category, priority=priority)


def names_in(text: str) -> list[str | None]:
    return [name.text for name in ElementTree.fromstring(f"<all>{text}</all>").iter("name")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Read_file, readFile!", {"read", "file"}),
        ("Files FILE bus", {"file", "bus"}),
        ("天气预报", {"天气", "气预", "预报"}),
        ("用web搜", {"用", "web", "搜"}),
        ("Ｆｉｌｅ", {"file"}),
        ("файл", {"файл"}),
        ("<>{}; _", set()),
        ("", set()),
    ],
)
def test_extract_words_normalises_case_width_and_plurals(text: str, words: set[str]) -> None:
    """Without case, width and plural; pairs of characters where no spaces stand between words."""
    assert extract_words(text) == words


def test_extract_words_ignores_text_beyond_the_length_limit() -> None:
    """What is beyond tells nothing, and costs nothing."""
    assert extract_words(" " * QUESTION_CHARS + "beyond") == frozenset()


def test_selection_with_enough_room_keeps_all_tools_whole() -> None:
    """All whole, in groups."""
    tools = write_tool_texts([spec("a"), spec("b", category="x"), spec("c")])
    assert select(tools, question="", room_bytes=10_000) == Selection(write_whole_text(tools), (), ())
    assert names_in(write_whole_text(tools)) == ["a", "c", "b"]


def test_descriptions_are_shortened_before_a_tool_is_left_out() -> None:
    """From the least relevant on, only as many as needed."""
    tools = write_tool_texts([spec(name, f"About {name}. " + "word " * 200) for name in ("apple", "pear", "plum")])
    whole = count_utf8_bytes(write_whole_text(tools))
    found = select(tools, question="a pear, please", room_bytes=whole - 100)
    assert (found.shortened, found.omitted) == (("plum",), ())
    found = select(tools, question="a pear, please", room_bytes=whole - 1500)
    assert (found.shortened, found.omitted) == (("apple", "plum"), ())
    assert names_in(found.text) == ["apple", "pear", "plum"]


def test_the_least_relevant_tools_are_left_out_whole() -> None:
    """Those that remain keep the order in which they were offered; nothing is left for no room."""
    tools = write_tool_texts([spec(name, f"About {name}.") for name in ("apple", "pear", "plum", "fig")])
    one = count_utf8_bytes(write_whole_text(tools[:1]))
    found = select(tools, question="plums?", room_bytes=one)
    assert (names_in(found.text), found.omitted) == (["plum"], ("apple", "pear", "fig"))
    assert select(tools, question="", room_bytes=-5) == Selection("", (), ("apple", "pear", "plum", "fig"))


def test_priority_comes_before_relevance() -> None:
    """It is the operator's word."""
    tools = write_tool_texts([spec("apple", priority=-1), spec("pear"), spec("plum", priority=3)])
    room = count_utf8_bytes(write_whole_text(tools[:1])) + 10
    assert names_in(select(tools, question="apple pear", room_bytes=room).text) == ["plum"]


def test_selection_ignores_words_shared_by_most_tools() -> None:
    """`the file` fits all of them; what counts is what only some have."""
    tools = write_tool_texts(
        [spec(f"file_{word}", "For the file.") for word in ("reader", "writer", "mover", "finder")]
    )
    room = count_utf8_bytes(write_whole_text(tools[:1]))
    assert names_in(select(tools, question="the file for the mover", room_bytes=room).text) == ["file_mover"]


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.text(max_size=12), st.text(max_size=200), st.sampled_from(["a", "b", "<c>"]), st.integers(-2, 2)),
        max_size=8,
    ),
    st.text(max_size=40),
    st.floats(-0.1, 1.1),
)
def test_selected_tool_text_never_exceeds_the_available_bytes(
    rows: list[tuple[str, str, str, int]], question: str, share: float
) -> None:
    """Whole elements, each tool either there or named as left out, in the bytes that there are."""
    tools = write_tool_texts(
        [spec(f"{i}{name}", about, kind, rank) for i, (name, about, kind, rank) in enumerate(rows)]
    )
    room = int(count_utf8_bytes(write_whole_text(tools)) * share)
    found = select(tools, question=question, room_bytes=room)
    assert count_utf8_bytes(found.text) <= max(room, 0)
    assert len(names_in(found.text)) + len(found.omitted) == len(tools)
    assert not set(found.shortened) & set(found.omitted)
