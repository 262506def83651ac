"""Names find what they mean, and are written so that models may say them."""

import pytest

from gateway.plugins.stages.intent.names import NamedService, NameMeaning, build_name_index

SERVICES = (
    NamedService("git", ("提交记录", "", "Git"), ("git_log", "log")),
    NamedService("my_map", ("git",), ("log",)),
)


@pytest.mark.parametrize(
    ("word", "named"),
    [
        ("git_log", (NameMeaning(0, "git_log"),)),
        ("git-log", (NameMeaning(0, "git_log"),)),
        ("git log", (NameMeaning(0, "git_log", weak=True),)),
        ("git.log", (NameMeaning(0, "log"),)),
        ("my_map__log", (NameMeaning(1, "log"),)),
        ("log", (NameMeaning(0, "log"), NameMeaning(1, "log"))),
        ("my-map", (NameMeaning(1),)),
        ("提交记录", (NameMeaning(0, weak=True),)),
    ],
)
def test_every_spelling_of_a_service_name_is_indexed(word: str, named: tuple[NameMeaning, ...]) -> None:
    """With `_`, `-` or a blank, alone or behind its service; a keyword only with "tool" or "service" behind it."""
    assert build_name_index(SERVICES).called[word] == named


def test_keywords_keep_their_order_and_spelling() -> None:
    """The first service that has one comes first; empty ones are ignored."""
    assert build_name_index(SERVICES).keywords == {"提交记录": ((0, "提交记录"),), "git": ((0, "Git"), (1, "git"))}


def test_name_index_is_built_once_for_equal_services() -> None:
    """The index is the same for every caller and every tuple."""
    assert build_name_index(tuple(NamedService(s.name, s.keywords, s.tools) for s in SERVICES)) is build_name_index(
        SERVICES
    )
