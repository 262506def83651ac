"""The entries of LiteLLM's model_list: provider, model, server, key."""

from typing import Any

import pytest

from gateway.cli.litellm.deployments import Deployment, Secrets, build_variable_name, parse_deployments
from gateway.cli.litellm.destinations import Surroundings


def one(surroundings: Surroundings | None = None, **params: Any) -> tuple[Deployment | None, list[str]]:
    notes: list[str] = []
    entries = [{"model_name": "name", "litellm_params": params}]
    found = parse_deployments(entries, surroundings or Surroundings(), Secrets(), notes.append)
    return (found[0] if found else None), notes


GROQ = "https://api.groq.com/openai/v1"


@pytest.mark.parametrize(
    ("params", "found"),
    [
        ({"model": "gpt-4o"}, "openai gpt-4o https://api.openai.com/v1 ${OPENAI_API_KEY}"),
        (
            {"model": "openai/facebook/opt", "api_base": "http://a/v1/"},
            "openai facebook/opt http://a/v1 ${OPENAI_API_KEY}",
        ),
        ({"model": "meta/llama", "api_base": "http://a/v1", "api_key": "none"}, "openai meta/llama http://a/v1 None"),
        ({"model": "m", "custom_llm_provider": "groq"}, f"groq m {GROQ} ${{GROQ_API_KEY}}"),
        ({"model": "groq/m", "custom_llm_provider": "groq"}, f"groq m {GROQ} ${{GROQ_API_KEY}}"),
        ({"model": "ollama/q", "api_base": "http://o:11434"}, "ollama q http://o:11434/v1 None"),
        ({"model": "text-completion-openai/i"}, "openai i https://api.openai.com/v1 ${OPENAI_API_KEY}"),
        ({"model": "ollama_chat/q", "api_base": "http://o:11434/v1"}, "ollama q http://o:11434/v1 None"),
        ({"model": "together_ai/a/b", "api_key": "os.environ/T"}, "together_ai a/b https://api.together.xyz/v1 ${T}"),
        (
            {"model": "azure/d", "api_base": "https://x", "api_key": "k"},
            "azure d https://x/openai/v1 ${AZURE_NAME_API_KEY}",
        ),
    ],
)
def test_model_entry_becomes_a_deployment(params: dict[str, Any], found: str) -> None:
    told, _ = one(**params)
    assert told is not None
    server = told.server
    assert f"{server.provider} {told.model} {server.base_url} {server.key}" == found


@pytest.mark.parametrize(
    ("params", "note"),
    [
        ({"model": "vertex_ai/gemini"}, "the API of vertex_ai is not that of OpenAI"),
        ({"model": "m", "custom_llm_provider": "mine"}, "the API of mine is not that of OpenAI"),
        ({"model": "hosted_vllm/m"}, "hosted_vllm needs an api_base"),
        ({"model": "azure/"}, "it names no model of azure"),
        ({"model": 3}, "model_list[0].litellm_params.model: it is no line of text, so the entry is left out"),
        ({"model": "m\n"}, "model_list[0].litellm_params.model: it is no line of text"),
        ({"model": "m", "mock_response": "hi"}, "it answers by its mock_response and asks no server"),
        ({"model": "m", "litellm_credential_name": "gone"}, "credential_list has no gone, so the entry is left out"),
        ({"model": "m", "api_base": "file:///etc/passwd"}, "its api_base is left out with the entry: expected a URL"),
        (
            {"model": "m", "api_base": ["http://a"]},
            "its api_base is left out with the entry: expected text, found a list",
        ),
        ({"model": "m", "api_base": "http://a/v1\n b"}, "its api_base is left out with the entry: a URL has no spaces"),
    ],
)
def test_untranslatable_model_entries_are_noted(params: dict[str, Any], note: str) -> None:
    found, notes = one(**params)
    assert found is None and note in notes[0]


def test_litellm_secret_becomes_a_reference_to_a_variable() -> None:
    """To a variable of its own, if the file has the secret itself."""
    secrets = Secrets()
    assert secrets.build_reference("os.environ/A_KEY", wanted="X") == ("${A_KEY}", False)
    told = [secrets.build_reference(secret, wanted="X")[0] for secret in ("sk-1", "sk-2", "sk-1")]
    assert told == ["${X}", "${X_2}", "${X}"]
    assert secrets.build_reference("os.environ/no name", wanted="Y") == ("${Y}", True)
    assert secrets.build_reference("EMPTY", wanted="X") == secrets.build_reference(None, wanted="X") == (None, False)
    assert build_variable_name("azure", "gpt-4.1 mini", "api_key") == "AZURE_GPT_4_1_MINI_API_KEY"


def test_a_credential_in_an_address_is_not_copied() -> None:
    found, notes = one(model="m", api_base="https://user:SECRET@h.example.com/v1?api_key=SECRET#SECRET")
    assert found is not None and found.server.base_url == "https://h.example.com/v1"
    assert "its api_base has a user, a password or a query" in notes[0] and "SECRET" not in "".join(notes)


@pytest.mark.parametrize(
    ("params", "note"),
    [
        ({"api_key": ["sk-1"]}, "model_list[0] (name): its api_key is no text, and is left out"),
        ({"weight": True}, "model_list[0] (name): its weight is no whole number from 1 to 1000, and is left out"),
        ({"max_parallel_requests": 0}, "model_list[0] (name): its max_parallel_requests is no whole number"),
    ],
)
def test_field_of_the_wrong_type_is_noted(params: dict[str, Any], note: str) -> None:
    found, notes = one(model="gpt-4o", **params)
    assert found is not None and (found.weight, found.concurrent) == (1, None) and notes[0].startswith(note)


def test_invalid_model_list_entries_are_skipped_and_noted() -> None:
    notes: list[str] = []
    entries = [5, {"model_name": "a\nb", "litellm_params": {"model": "m"}}, {"model_name": "a", "litellm_params": []}]
    assert parse_deployments(entries, Surroundings(), Secrets(), notes.append) == []
    assert [note.partition(":")[0] for note in notes] == [
        "model_list[0].model_name",
        "model_list[1].model_name",
        "model_list[2].litellm_params.model",
    ]


def test_named_credential_overrides_entry_parameters() -> None:
    """It comes before the entry's own parameters, as in LiteLLM: no prompt goes to the provider's address."""
    values = {"api_base": "https://cred.example.com/v1", "api_key": "os.environ/CRED"}
    surroundings = Surroundings(credentials={"cred1": values})
    found, notes = one(surroundings, model="openai/gpt-4o-mini", litellm_credential_name="cred1", api_key="sk-own")
    assert found is not None and notes == []
    assert (found.server.base_url, found.server.key) == ("https://cred.example.com/v1", "${CRED}")


def test_model_price_becomes_a_note_for_the_price_file() -> None:
    notes: list[str] = []
    params = {"model": "openai/gpt-4o", "output_cost_per_token": 0.00001}
    entry = {"model_name": "n", "litellm_params": params, "model_info": {"input_cost_per_token": 2.5e-6}}
    parse_deployments([entry], Surroundings(), Secrets(), notes.append)
    assert notes == [
        "model_list[0] (n): write its price into the file of usage.prices: {model: gpt-4o, input: 2.5, output: 10}"
    ]


def test_entry_limits_are_noted_with_their_documentation_page() -> None:
    _, notes = one(model="openai/m", rpm=6, organization="o")
    assert [note.partition(": not translated: ")[2] for note in notes] == [
        "organization, rpm (docs/limits.md has limits of upstreams, models and keys)"
    ]
