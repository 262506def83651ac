"""The tokens of a turn are those of all its model calls."""

from gateway.dialects.usage import TurnUsage

BODY = {"messages": [{"role": "user", "content": "hello"}]}


def test_usage_is_summed_over_the_calls() -> None:
    """As the models say it."""
    usage = TurnUsage()
    for prompt, completion in ((10, 2), (15, 3)):
        usage.begin_call(BODY)
        usage.said("abc")
        usage.read({"choices": []})
        usage.read({"usage": {"prompt_tokens": prompt, "completion_tokens": completion}})
    assert usage.build_chunk() == {
        "choices": [],
        "usage": {"prompt_tokens": 25, "completion_tokens": 5, "total_tokens": 30},
    }


def test_missing_usage_is_estimated_and_marked() -> None:
    """UTF-8 bytes / 4, rounded up; odd numbers count as none, and so does a prompt of no tokens."""
    usage = TurnUsage()
    usage.begin_call(BODY)
    usage.said("中文ab")
    usage.begin_call(BODY)
    usage.read({"usage": {"prompt_tokens": "many", "completion_tokens": -1}})
    usage.begin_call(BODY)
    usage.said("abcd" * 3)
    usage.read({"usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}})
    usage.begin_call(BODY)
    usage.said("abcd" * 3)
    usage.read({"usage": {"prompt_tokens": 0, "completion_tokens": 9}})
    chunk = usage.build_chunk()
    assert chunk["context"] == {"usage_estimated": True}
    assert chunk["usage"]["completion_tokens"] == 2 + 3 + 9
    assert chunk["usage"]["prompt_tokens"] == 4 * -(-len(b'[{"role":"user","content":"hello"}]') // 4)


def test_usage_details_are_summed_by_name() -> None:
    """Numbers are added, other words replaced; what is no number is none, and nothing is as deep as it wants."""
    usage = TurnUsage()
    for cached, tier in ((3, "default"), (4, "flex")):
        usage.begin_call(BODY)
        huge, deep = 1 << 63, {"a": {"b": {"c": {"d": 1}}}}
        details = {"cached_tokens": cached, "is_hit": True, "none": None, "list": [1]}
        usage.read(
            {"usage": {"prompt_tokens": 1, "prompt_tokens_details": details, "tier": tier, "deep": deep, "huge": huge}}
        )
    restored = TurnUsage()
    restored.restore(usage.take_snapshot())
    for one in (usage, restored):
        told = one.build_chunk()["usage"]
        assert told["prompt_tokens_details"] == {"cached_tokens": 7, "is_hit": True}
        assert "huge" not in told  # the sum could not be written
        assert (told["tier"], told["deep"]) == ("flex", {"a": {}})


def test_snapshot_without_usage_details_is_restored() -> None:
    """It knows no details."""
    usage = TurnUsage()
    usage.restore({"prompt": 3, "completion": 4, "estimated": False})
    assert usage.build_chunk()["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


def test_reported_usage_covers_only_the_current_call() -> None:
    """Its model and its tokens; nothing is estimated, and nothing is left from the call before."""
    usage = TurnUsage()
    usage.begin_call(BODY)
    usage.read({"model": "m-1", "choices": []})
    usage.read({"model": "m-2", "usage": {"prompt_tokens": 10, "completion_tokens": None}})
    assert usage.get_reported_usage() == ("m-1", 10, None)
    usage.begin_call(BODY)
    assert usage.get_reported_usage() == (None, None, None)
