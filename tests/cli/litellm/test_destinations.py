"""Where the requests of an entry go: to the server that LiteLLM would ask, or the entry is left out."""

from typing import Any

import pytest

from gateway.cli.litellm.destinations import Surroundings, find_address, find_provider, find_variable


def destination(surroundings: Surroundings | None = None, **params: Any) -> tuple[str | None, str, list[str]]:
    """Return the address of an entry, its name for the model, and the notes."""
    notes: list[str] = []
    around = surroundings or Surroundings()
    found = find_provider(params, around, "entry", notes.append)
    if found is None:
        return None, "", notes
    return find_address(params, found[0], around, "entry", notes.append), found[1], notes


@pytest.mark.parametrize(
    ("model", "address"),
    [
        ("gpt-4.1-mini", "https://api.openai.com/v1"),
        ("ft:gpt-4o:acme::1", "https://api.openai.com/v1"),
        ("o3", "https://api.openai.com/v1"),
        ("o4-mini", "https://api.openai.com/v1"),
        ("text-embedding-3-small", "https://api.openai.com/v1"),
        ("*", "https://api.openai.com/v1"),
        ("claude-3-5-haiku-20241022", "https://api.anthropic.com/v1"),
        ("mistral/mistral-small", "https://api.mistral.ai/v1"),
    ],
)
def test_known_model_name_resolves_to_its_provider_address(model: str, address: str) -> None:
    assert destination(model=model)[0] == address


@pytest.mark.parametrize(
    ("model", "note"),
    [
        ("gemini-2.5-pro", "the API of vertex_ai is not that of OpenAI"),
        ("command-r-08-2024", "the API of cohere is not that of OpenAI"),
        ("us.anthropic.claude-v2", "the API of bedrock is not that of OpenAI"),
        ("gpt-oss-120b", "gpt-oss-120b does not name its provider"),
        ("my-model", "my-model does not name its provider"),
        ("osprey", "osprey does not name its provider"),
        ("newprovider/model", "newprovider/model does not name its provider"),
        ("meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B does not name its provider"),
    ],
)
def test_unknown_model_name_is_never_sent_to_openai(model: str, note: str) -> None:
    """LiteLLM asks another company for it, or refuses it."""
    address, _, notes = destination(model=model)
    assert address is None and note in notes[0]


@pytest.mark.parametrize(
    ("surroundings", "params", "address"),
    [
        (Surroundings(variables={"OPENAI_API_BASE": "http://mine/v1"}), {"model": "gpt-4o"}, "http://mine/v1"),
        (Surroundings(environ={"OPENAI_BASE_URL": "http://mine/v1"}), {"model": "gpt-4o"}, "${OPENAI_BASE_URL}"),
        (Surroundings(environ={"OLLAMA_API_BASE": "http://o"}), {"model": "ollama/q"}, "${OLLAMA_API_BASE}/v1"),
        (Surroundings(variables={"GROQ_API_BASE": "os.environ/G"}), {"model": "groq/q"}, "${G}"),
        (Surroundings(api_base="http://all/v1"), {"model": "openai/q"}, "http://all/v1"),
        (Surroundings(api_base="http://all/v1"), {"model": "some/model"}, "http://all/v1"),
        (Surroundings(api_base="http://all/v1"), {"model": "openai/q", "api_base": "http://one/v1"}, "http://one/v1"),
    ],
)
def test_address_from_settings_or_environment_is_used(
    surroundings: Surroundings, params: dict[str, Any], address: str
) -> None:
    assert destination(surroundings, **params)[0] == address


@pytest.mark.parametrize(
    ("surroundings", "params"),
    [
        (Surroundings(environ={"LITELLM_PROXY_API_BASE": "http://p"}), {"use_litellm_proxy": True}),
        (Surroundings(environ={"LITELLM_PROXY_API_BASE": "http://p"}, by_proxy=True), {}),
    ],
)
def test_proxied_model_keeps_the_proxy_address(surroundings: Surroundings, params: dict[str, Any]) -> None:
    """Whatever provider its model names."""
    address, model, _ = destination(surroundings, model="openai/gpt-4o", **params)
    assert (address, model) == ("${LITELLM_PROXY_API_BASE}", "openai/gpt-4o")
    assert destination(model="gpt-4o", use_litellm_proxy=True)[2] == ["entry: litellm_proxy needs an api_base"]


def test_find_variable_accepts_only_environment_references() -> None:
    assert find_variable("os.environ/A_KEY") == "A_KEY"
    assert find_variable("os.environ/no name") is None and find_variable("A_KEY") is None
