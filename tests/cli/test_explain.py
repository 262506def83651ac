"""`gateway explain`: a dry run of a running gateway, as text for a person."""

import asyncio

import pytest
from e2e.talking import talking
from gateways import key

from gateway.cli.explain import format_explanation
from gateway.cli.main import main

ANSWER = {
    "chain": "assistant",
    "stages": ["intent", "agent_loop"],
    "intent": {"kind": "memory", "rule": "memory:remember", "span": [0, 8], "tools": []},
    "prompt": "default",
    "messages": [{"role": "system", "content": "One\nTwo"}, {"role": "user", "content": [{"type": "text"}]}],
    "tools": [
        {"name": "a", "category": "x", "requires_approval": True},
        {"name": "b", "category": "y", "requires_approval": False},
    ],
    "model": None,
    "upstream": "up",
}


def test_explanation_reports_a_background_task_without_stages() -> None:
    """Behind the chain that it does not take."""
    lines = list(format_explanation({**ANSWER, "task": "title", "stages": []}, text="Hi"))
    assert lines[:2] == ["chain     assistant: model", "task      title: a program's own request, which no stage sees"]


def test_explanation_is_formatted_for_a_person() -> None:
    """Everything of the answer, the messages last and as they are."""
    assert list(format_explanation(ANSWER, text="Remember this.")) == [
        "chain     assistant: intent > agent_loop > model",
        "intent    memory (memory:remember) at 'Remember'",
        "prompt    default",
        "upstream  up, model as the client names it",
        "tools     a (x, needs approval), b (y)",
        "",
        "--- system",
        "One",
        "Two",
        "",
        "--- user",
        "[{'type': 'text'}]",
    ]


def test_the_models_of_an_alias_are_shown() -> None:
    """In the order in which they are tried; a model that is alone has no line."""
    models = [{"model": "big", "upstream": "up"}, {"model": "small", "upstream": "other"}]
    lines = list(format_explanation({**ANSWER, "model": "fast", "candidates": models}, text="Hi"))
    assert lines[3:5] == ["upstream  up, model fast", "tried     big at up, then small at other"]
    assert "tried" not in "".join(format_explanation({**ANSWER, "candidates": models[:1]}, text="Hi"))


def test_a_workflow_is_shown_with_its_steps() -> None:
    """It has no messages yet: they depend on what its steps find."""
    called = {"name": "report", "parameters": {"title": "Kühe"}, "steps": ["rows", "page"]}
    assert list(format_explanation({"chain": "assistant", "workflow": called, "model": "m"}, text="/report Kühe")) == [
        "workflow  report: rows > page",
        'with      {"title": "Kühe"}',
        "chain     assistant, model m",
    ]


@pytest.mark.parametrize(
    "answer", [{}, {"messages": None, "intent": None, "stages": None, "tools": None, "prompt": None}]
)
def test_explanation_reports_missing_fields_as_absent(answer: dict[str, object]) -> None:
    """Another version may answer less."""
    lines = list(format_explanation(answer, text=""))
    assert lines[1:3] == ["intent    not looked for", "prompt    none"]
    assert lines[-1] == "messages  none: a stage answers by itself"


def test_explanation_names_what_a_model_does_not_get() -> None:
    told = [{"model": "a", "upstream": "x", "not_sent": []}, {"model": "b", "upstream": "y", "not_sent": ["seed", "n"]}]
    lines = [line for line in format_explanation({"candidates": told}, text="") if line.startswith("not sent")]
    assert lines == ["not sent  to b at y, by its api: seed, n"]


async def test_explain_requests_a_dry_run_with_key_prompt_and_chain(capsys: pytest.CaptureFixture[str]) -> None:
    """With the key, the prompt and the chain that were named; what a terminal would obey is not printed."""
    settings = {
        "keys": [key("mine", "context")],
        "prompts": {"pirate": {"text": "Talk like a pirate.\x1b[2J"}},
        "chains": {"short": [{"use": "prompt_enhancer", "with": {"tools": False}}]},
    }
    async with talking(upstream={"api_key": "upstream-key"}, **settings) as world:

        async def asked(key: str | None, *, chain: str = "short") -> tuple[int, str, str]:
            where = world.gateway.base_url
            argv = ["explain", "Ahoy?", "--url", where, "--prompt", "pirate", "--chain", chain]
            with pytest.MonkeyPatch.context() as patched:
                patched.setenv("GATEWAY_API_KEY", key or "")
                code = await asyncio.to_thread(main, argv)
            return code, *capsys.readouterr()

        code, out, err = await asked("mine")
        assert (code, err) == (0, "")
        assert out.startswith("chain     short: prompt_enhancer > model\n")
        assert out.endswith("--- system\nTalk like a pirate.\N{REPLACEMENT CHARACTER}[2J\n\n--- user\nAhoy?\n")
        for wrong, reason in (
            (None, "export GATEWAY_API_KEY="),
            ("bad\nkey", "GATEWAY_API_KEY"),
            ("schlüssel", "GATEWAY_API_KEY"),
        ):
            code, out, err = await asked(wrong)
            assert (code, out) == (1, "") and reason in err and err.count("\n") == 1
            assert wrong is None or wrong not in err
        code, out, err = await asked("mine", chain="nope")
        assert (code, out) == (1, "") and "There is no chain 'nope'" in err
