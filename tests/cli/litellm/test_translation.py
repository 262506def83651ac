"""A LiteLLM configuration, translated: upstreams, aliases, fallbacks, retries, keys, and notes on the rest."""

import hashlib
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.cli.litellm.translation import Translation, translate_config

DOCUMENTED: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("documented.yaml").read_text())


@pytest.fixture(scope="module")
def told() -> Translation:
    return translate_config(DOCUMENTED, {})


def of(**config: Any) -> Translation:
    models = [{"model_name": "m", "litellm_params": {"model": "openai/m"}}]
    return translate_config({"model_list": models, **config}, {"MASTER": "sk-1"})


def test_litellm_servers_become_upstreams(told: Translation) -> None:
    """One for each server and key; servers with the same model share one."""
    upstreams = {upstream["name"]: upstream for upstream in told.data["upstreams"]}
    assert [*upstreams] == ["azure", "azure-2", "mistral-7b", "openai", "ollama", "groq", "openai-2"]
    assert upstreams["azure"]["base_url"] == "https://eu.openai.example.com/openai/v1"
    assert (upstreams["azure"]["api_key"], upstreams["azure"]["auth_header"]) == ("${AZURE_API_KEY_EU}", "api-key")
    assert upstreams["azure-2"]["base_url"] == "${AZURE_API_BASE_CA}/openai/v1"
    assert upstreams["mistral-7b"]["endpoints"] == [
        {"url": "http://a.example.com:8000/v1", "weight": 2},
        {"url": "http://b.example.com:8000/v1", "concurrent": 8},
    ]
    assert upstreams["mistral-7b"]["queue"] == {"size": 1000, "wait": "60s"}
    assert upstreams["mistral-7b"]["balance"] == "least_loaded"
    assert upstreams["openai"]["api_key"] == "${OPENAI_GPT_4O_MINI_API_KEY}"
    assert upstreams["ollama"]["base_url"] == "http://localhost:11434/v1" and "api_key" not in upstreams["ollama"]
    assert [upstreams[name]["models"] for name in ("groq", "openai-2")] == [["groq/*"], ["*"]]
    assert told.data["passthrough"] == {"by_model": True}
    assert not any("paths" in upstream for upstream in upstreams.values())


def test_router_settings_apply_to_every_upstream(told: Translation) -> None:
    """`router_settings` come before `litellm_settings`."""
    for upstream in told.data["upstreams"]:
        assert upstream["retry"] == {"tries": 3}
        assert upstream["breaker"] == {"failures": 4, "open": "30s", "longest": "300s"}
        assert upstream["timeouts"] == {"first_byte": "60s"}


def test_model_names_and_fallbacks_become_aliases(told: Translation) -> None:
    """A name that is the model's own needs none."""
    gpt = [("gpt-4o-eu", "azure"), ("gpt-4o-ca", "azure-2"), ("gpt-4o-mini", "openai")]
    models = {
        name: [(use["model"], use["upstream"]) for use in alias["use"]] for name, alias in told.data["models"].items()
    }
    llama = [("llama3.1", "ollama")]
    assert models == {"gpt-4o": gpt, "gpt-4": gpt, "llama": llama, "hidden": llama}


def test_overlong_alias_names_are_left_out_and_noted() -> None:
    """Of entries and of `model_group_alias`. One that is the model's own may be as long as it likes."""
    entries = [
        {"model_name": name, "litellm_params": {"model": f"openai/{model}"}}
        for name, model in (("n" * 129, "m"), ("k" * 128, "m"), ("o" * 129, "o" * 129))
    ]
    aliases = {"model_group_alias": {"a" * 129: "k" * 128}}
    told = translate_config({"model_list": entries, "router_settings": aliases}, {})
    assert [*told.data["models"]] == ["k" * 128]
    assert told.data["upstreams"][0]["models"] == ["m", "o" * 129]
    left_out = "...: no alias has more than 128 characters, so this name is left out: give it a shorter one"
    assert [note for note in told.notes if left_out in note] == ["n" * 40 + left_out, "a" * 40 + left_out]


def test_cache_settings_become_a_response_cache_stage(told: Translation) -> None:
    *_, last = told.data["chains"]["assistant"]
    assert last == {"use": "response_cache", "with": {"any_temperature": True, "shared_by": "tenant", "ttl": "600s"}}


@pytest.mark.parametrize(
    "note",
    [
        "model_list[0] (gpt-4o): not translated: rpm",
        "model_list[4] (gpt-4o-mini): its key is in the file, and is not copied: export it as OPENAI_GPT",
        "model_list[6] (claude): the API of bedrock is not that of OpenAI: keep LiteLLM in front of it",
        "model_list[9].",
        "groq/*: write the models of its server under models",
        "router_settings.routing_strategy: usage-based-routing-v2 becomes least_loaded",
        "fallbacks of gpt-4o: those that are not translated are left out",
        "router_settings.model_group_alias: lost names no model of the file",
        "router_settings.redis_host: there is nothing like it",
        "litellm_settings.success_callback: metrics are at /metrics",
        "general_settings.database_url: virtual keys are not read",
        "environment_variables: export them before the gateway starts",
    ],
)
def test_untranslated_settings_are_noted(note: str, told: Translation) -> None:
    assert [one for one in told.notes if note in one] != []


@pytest.mark.parametrize("master", ["sk-1", "os.environ/MASTER"])
def test_the_master_key_is_hashed(master: str) -> None:
    """So that clients keep the key that they have."""
    data = of(general_settings={"master_key": master}).data
    assert data["listen"] == "0.0.0.0:4000"
    assert [key["sha256"] for key in data["keys"]] == [hashlib.sha256(b"sk-1").hexdigest()]


@pytest.mark.parametrize("general", [{}, {"master_key": "os.environ/UNSET"}])
def test_import_without_a_master_key_listens_on_loopback(general: dict[str, str]) -> None:
    told = of(general_settings=general)
    assert told.data["listen"] == "127.0.0.1:4000" and "keys" not in told.data
    assert any("master_key" in note for note in told.notes)


def test_endpoints_at_one_address_get_distinct_names() -> None:
    """Two keys for one server are two endpoints."""
    entries = [
        {"model_name": "m", "litellm_params": {"model": "openai/m", "api_key": f"os.environ/KEY_{n}"}} for n in (1, 2)
    ]
    (upstream,) = translate_config({"model_list": entries}, {}).data["upstreams"]
    assert [(one["name"], one["api_key"]) for one in upstream["endpoints"]] == [
        ("m-1", "${KEY_1}"),
        ("m-2", "${KEY_2}"),
    ]


@pytest.mark.parametrize("broken", [None, [], {"model_list": 3}, {"router_settings": 3, "litellm_settings": []}])
def test_sections_of_the_wrong_type_are_treated_as_empty(broken: Any) -> None:
    given = broken if isinstance(broken, dict) else {"router_settings": broken}
    assert translate_config(given, {}).data["upstreams"] == []


def test_concurrency_limit_of_one_model_is_not_applied_to_others() -> None:
    """Whichever of the two comes first."""
    entries = [
        {"model_name": "a", "litellm_params": {"model": "openai/a"}},
        {"model_name": "b", "litellm_params": {"model": "openai/b", "max_parallel_requests": 10}},
    ]
    for listed in (entries, entries[::-1]):
        told = translate_config({"model_list": listed}, {})
        assert "concurrent" not in str(told.data) and "queue" not in str(told.data)
        assert [note for note in told.notes if note.startswith("max_parallel_requests of b: left out")]


def test_allowed_ips_become_networks_of_the_key() -> None:
    """Addresses that are none leave the key closed."""
    master = {"master_key": "sk-1"}
    assert of(general_settings={**master, "allowed_ips": ["10.0.0.0/8", "192.0.2.7"]}).data["keys"][0]["networks"] == [
        "10.0.0.0/8",
        "192.0.2.7/32",
    ]
    told = of(general_settings={**master, "allowed_ips": ["here"]})
    assert told.data["keys"][0]["networks"] == ["127.0.0.1/32"]
    assert any("allowed_ips: here is left out" in note for note in told.notes)


def test_global_max_parallel_requests_becomes_the_concurrent_limit() -> None:
    assert of(general_settings={"global_max_parallel_requests": 40}).data["limits"] == {"concurrent": 40}


@pytest.mark.parametrize(
    "config",
    [
        {"guardrails": [{"guardrail_name": "g", "litellm_params": {"guardrail": "presidio", "default_on": True}}]},
        {"litellm_settings": {"guardrails": [{"words": {"callbacks": ["hide_secrets"], "default_on": True}}]}},
    ],
)
def test_default_guardrail_note_comes_first(config: dict[str, Any]) -> None:
    told = of(**config)
    assert told.data["chains"]["assistant"][-1] == {"use": "redact_pii", "with": {"mode": "shadow"}}
    assert told.notes[0].startswith("guardrails: the new gateway redacts and blocks NOTHING yet")


def test_notes_name_the_servers_that_receive_prompts() -> None:
    assert of().notes[-1] == "prompts go to these servers, and to no other: https://api.openai.com/v1"


def test_mcp_servers_are_imported() -> None:
    told = of(mcp_servers={"kb": {"url": "https://kb.example.com/mcp"}})
    assert told.data["mcp"] == {"servers": {"kb": {"url": "https://kb.example.com/mcp"}}}


def test_anthropic_models_speak_messages() -> None:
    """Also under a name that a server of chat completions has, too: each keeps its own upstream."""
    key = {"api_key": "os.environ/KEY"}
    models = [
        {"model_name": "both", "litellm_params": {"model": "anthropic/m", **key}},
        {"model_name": "both", "litellm_params": {"model": "groq/m", **key}},
        {"model_name": "near", "litellm_params": {"model": "anthropic/near", "api_base": "http://near:8000", **key}},
    ]
    told = translate_config({"model_list": models}, {"KEY": "k"})
    apis = {upstream["base_url"]: upstream.get("api") for upstream in told.data["upstreams"]}
    assert apis == {
        "https://api.anthropic.com/v1": "messages",
        "https://api.groq.com/openai/v1": None,
        "http://near:8000/v1": "messages",
    }
    assert any("is asked by Messages in context mode" in note for note in told.notes)
