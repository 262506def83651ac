"""A refusal is heard, a question or another sentence is not taken for one."""

import pytest

from gateway.text.negation import is_refused


@pytest.mark.parametrize(
    "before",
    [
        "don't ",
        "please do not ",
        "never ",
        "you must never ever ",
        "i don't want you to ",
        "without ",
        "instead of ",
        "do not use or ",
        "before you ",
        "no need to ",
        "不要",
        "请不要再",
        "别",
        "不",
        "无需",
        "没有必要",
        "禁止",
        "禁",
        "不想让你",
        "请勿",
        "不要自动",
        "不要使用或",
    ],
)
def test_negation_before_the_verb_counts_as_refusal(before: str) -> None:
    """In both languages, with what people put between."""
    assert is_refused(before + "use", len(before))


@pytest.mark.parametrize(
    "before",
    [
        "",
        "please ",
        "why don't you ",
        "why not ",
        "can't you ",
        "don't forget to ",
        "not only ",
        "no, ",
        "don't worry, ",
        "i don't know, ",
        "能不能",
        "要不要",
        "可不可以",
        "用不",
        "要不",
        "何不",
        "不妨",
        "不得不",
        "特别",
        "分别",
        "别忘了",
        "不行，",
        "我不知道几点",
    ],
)
def test_questions_and_other_sentences_do_not_count_as_refusal(before: str) -> None:
    """Suggestions are requests, and a comma ends what is refused."""
    assert not is_refused(before + "use", len(before))
