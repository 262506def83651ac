"""Tests of the Chinese texts of workflows, prompts, memories and remembered decisions."""

import re

import pytest

from gateway.console.chinese_library import LIBRARY
from gateway.console.rendering import TEMPLATES, translator

OWN = (
    "workflows.html",
    "workflow.html",
    "prompts.html",
    "prompt.html",
    "prompt_field.html",
    "prompt_enhanced.html",
    "memories.html",
    "memories_owner.html",
    "memories_delete.html",
    "remembered.html",
)


@pytest.mark.parametrize("template", OWN)
def test_each_text_of_the_pages_has_a_translation(template: str) -> None:
    texts = re.findall(r'\bt\("([^"]+)"', TEMPLATES.joinpath(template).read_text())
    assert texts
    assert [text for text in texts if text not in LIBRARY] == []


def test_a_translation_takes_the_same_values() -> None:
    for english, chinese in LIBRARY.items():
        assert sorted(re.findall(r"{\d}", english)) == sorted(re.findall(r"{\d}", chinese)), english


def test_the_console_uses_the_translations() -> None:
    assert translator("zh")("Of the end user {0}", "ann") == "最终用户 ann 的记忆"
