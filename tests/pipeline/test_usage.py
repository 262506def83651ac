"""The tokens of a turn are those of all its model calls."""

from gateway.pipeline.usage import Usage

BODY = {"messages": [{"role": "user", "content": "hello"}]}


def test_usage_is_summed_over_the_calls() -> None:
    """As the models say it."""
    usage = Usage()
    for prompt, completion in ((10, 2), (15, 3)):
        usage.asked(BODY)
        usage.said("abc")
        usage.read({"choices": []})
        usage.read({"usage": {"prompt_tokens": prompt, "completion_tokens": completion}})
    assert usage.chunk() == {
        "choices": [],
        "usage": {"prompt_tokens": 25, "completion_tokens": 5, "total_tokens": 30},
    }


def test_what_a_model_does_not_say_is_estimated_and_marked() -> None:
    """UTF-8 bytes / 4, rounded up; odd numbers count as none."""
    usage = Usage()
    usage.asked(BODY)
    usage.said("中文ab")
    usage.asked(BODY)
    usage.read({"usage": {"prompt_tokens": "many", "completion_tokens": -1}})
    chunk = usage.chunk()
    assert chunk["context"] == {"usage_estimated": True}
    assert chunk["usage"]["completion_tokens"] == 2
    assert chunk["usage"]["prompt_tokens"] == -(-len(b'[{"role":"user","content":"hello"}]') // 4)
