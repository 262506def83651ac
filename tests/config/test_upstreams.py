"""Upstreams that get other requests than their operator meant are told of, at check-config and at the start."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from gateway.config import ConfigError, load


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def warnings(text: str) -> Sequence[str]:
    file = Path("gateway.yaml")
    file.write_text(text)
    return load(file, environ={}, flags={}).warnings


A, B = "{name: a, base_url: 'http://a/v1'", "{name: b, base_url: 'http://b/v1'"
NOTHING = "upstreams[1]: gets no request in passthrough: '/v1/' belongs to upstream 'a'"


@pytest.mark.parametrize(
    "end", ["chat/completions", "completions", "embeddings", "responses", "messages", "embeddings/"]
)
def test_a_base_url_of_one_endpoint_is_refused(end: str) -> None:
    """With the one to write; a flag is told the same."""
    with pytest.raises(
        ConfigError, match=r"upstreams\[0\].base_url: this is the URL of one endpoint: write 'http://a/v1'"
    ):
        warnings(f"upstreams: [{{name: a, base_url: 'http://a/v1/{end}'}}]")
    with pytest.raises(ConfigError, match="--upstream: this is the URL of one endpoint: write 'http://a'"):
        load(None, environ={}, flags={"upstream": f"http://a/{end}"})


@pytest.mark.parametrize(
    "url", ["http://a", "http://a/v1/", "https://x.services.ai.azure.com/models", "http://a/messages/v1"]
)
def test_general_base_urls_are_accepted(url: str) -> None:
    """Whatever their path is; some end in `/models`."""
    assert warnings(f"upstreams: [{{name: a, base_url: '{url}'}}]") == ()


@pytest.mark.parametrize(
    ("upstreams", "said"),
    [
        (
            f"{A}, models: [x]}}, {B}, models: [y]}}",
            f"{NOTHING}, whatever the model, which chooses in the context lane only",
        ),
        (f"{A}}}, {B}}}", f"{NOTHING}, which comes first; give it 'paths' of its own"),
        (f"{A}, paths: [/x/v1]}}, {B}, paths: [/x/v1/]}}", "'/x/v1/' belongs to upstream 'a'"),
        (f"{A}}}, {B}, paths: [/v1/, /b/]}}", "does not get all that its paths name: '/v1/' belongs to upstream 'a'"),
        (f"{A}, models: ['gpt-*']}}, {B}, models: [gpt-5], paths: [/b/]}}", "models: 'gpt-5' belongs to upstream 'a'"),
        (f"{A}, models: [m]}}, {B}, models: [m], paths: [/b/]}}", "models: 'm' belongs to upstream 'a', which"),
    ],
)
def test_upstream_shadowed_by_another_warns(upstreams: str, said: str) -> None:
    """By the path in passthrough, by the model in the context lane."""
    (warning,) = warnings(f"upstreams: [{upstreams}]")
    assert said in warning


@pytest.mark.parametrize(("first", "second"), [("m*", "mm"), ("mm", "m*"), ("mm", "mm"), ("m[m]", "*")])
def test_shadowing_warning_names_the_first_matching_upstream(first: str, second: str) -> None:
    """Whether it is a pattern or a name."""
    texts = [
        f"{{name: {name}, base_url: 'http://{name}', models: ['{model}'], paths: [/{name}/]}}"
        for name, model in (("a", first), ("b", second), ("c", "mm"))
    ]
    (*_, warning) = warnings(f"upstreams: [{', '.join(texts)}]")
    assert "models: 'mm' belongs to upstream 'a'" in warning


@pytest.mark.parametrize(
    "upstreams",
    [
        f"{A}}}, {B}, paths: [/b/v1]}}",
        f"{A}, paths: [/v1/embeddings]}}, {B}, models: ['*']}}",
        f"{A}, models: ['gpt-*']}}, {B}, models: ['g*'], paths: [/b/]}}",
    ],
)
def test_upstreams_with_distinct_requests_do_not_warn(upstreams: str) -> None:
    """By paths of their own, a part of the API, and a wider pattern behind a narrower one."""
    assert warnings(f"upstreams: [{upstreams}]") == ()


def test_an_upstream_of_the_context_lane_needs_no_path() -> None:
    """It is named as that."""
    assert warnings(f"upstreams: [{A}}}, {B}}}]\ncontext: {{upstream: b}}") == ()


@pytest.mark.parametrize(
    "key", ["model_list", "litellm_settings", "general_settings", "router_settings", "environment_variables"]
)
def test_litellm_sections_are_reported_with_their_replacements(key: str) -> None:
    """At once, all that the file has of them."""
    with pytest.raises(ConfigError) as said:
        warnings(f"{key}: {{}}\nmodel_list: []\n" if key != "model_list" else "model_list: []")
    assert f"{key}: this is a key of LiteLLM: " in str(said.value) and "docs/from-litellm.md" in str(said.value)
    assert "model_list: this is a key of LiteLLM: write each server once under 'upstreams'" in str(said.value)


TWO = "endpoints: [{url: 'http://a/v1'}, {url: 'http://b/v1'}]"
KEYED = "endpoints: [{url: 'http://a/v1', api_key: k}, {url: 'http://b/v1'}]"


@pytest.mark.parametrize(
    ("upstreams", "said"),
    [
        ("{name: a}", "upstreams[0]: expected 'base_url', or 'endpoints' with a 'url' each"),
        (f"{A}, {TWO}}}", "upstreams[0].endpoints: base_url is given as well: keep one of the two"),
        (
            "{name: a, endpoints: [{url: 'http://a/v1'}, {url: 'http://a/v2'}]}",
            "upstreams[0].endpoints[1]: 'a' stands for the endpoint at gateway.yaml:1:",
        ),
        (f"{{name: a, {KEYED}}}", "upstreams[0].endpoints[1]: has no api_key, and others of its upstream have"),
        (
            "{name: a, endpoints: [{url: 'http://a/v1/embeddings'}]}",
            "endpoints[0].url: this is the URL of one",
        ),
        (f"{A}, fallback: [b]}}", "upstreams[0].fallback[0]: no upstream 'b' is declared"),
        (f"{A}, fallback: [a]}}", "upstreams[0].fallback[0]: an upstream is no fallback of itself"),
        (
            f"{A}, api_key: k, fallback: [b]}}, {B}}}",
            "fallback[0]: one of the two has an api_key",
        ),
        (f"{{name: a, tls: {{verify: false}}, {TWO}}}", "there is no TLS with an http:// URL"),
    ],
)
def test_upstreams_that_cannot_work_are_refused(upstreams: str, said: str) -> None:
    """With the place, and what to write."""
    with pytest.raises(ConfigError) as error:
        warnings(f"upstreams: [{upstreams}]")
    assert said in str(error.value)


@pytest.mark.parametrize(
    "upstreams",
    [
        f"{{name: a, {TWO}}}",
        f"{{name: a, api_key: k, {KEYED}}}",
        "{name: a, endpoints: [{url: 'http://a/v1', name: x}, {url: 'http://a/v1', name: y}]}",
        f"{A}, fallback: [b]}}, {B}}}",
    ],
)
def test_usable_endpoints_and_fallbacks_do_not_warn(upstreams: str) -> None:
    """A fallback needs no paths of its own."""
    assert warnings(f"upstreams: [{upstreams}]") == ()


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("queue: {size: 5}", "upstreams[0].queue: has no effect: no endpoint has a limit (endpoints[].concurrent)"),
        ("hedge: 2s", "upstreams[0].hedge: has no effect: there is no second endpoint"),
    ],
)
def test_rules_that_never_apply_are_warned_of(rule: str, said: str) -> None:
    """They were meant to do something."""
    (warning,) = warnings(f"upstreams: [{A}, {rule}}}]")
    assert said in warning


def test_by_model_upstreams_share_their_paths() -> None:
    """That is what it is for."""
    text = f"passthrough: {{by_model: true}}\nupstreams: [{A}, models: [x]}}, {B}, models: [y]}}]"
    assert warnings(text) == ()


@pytest.mark.parametrize(
    ("settings", "warning"),
    [
        ("quirks: [no_sampling]", "upstreams[0].quirks: 'no_sampling' has no effect with 'api: chat'"),
        ("messages: {max_tokens: 5}", "upstreams[0].messages: has no effect without 'api: messages'"),
        (
            "api: messages, quirks: [no_stream, no_sampling]",
            "upstreams[0].quirks: 'no_stream' has no effect with 'api: messages'",
        ),
        ("api: messages, quirks: [no_sampling, no_system_role], messages: {betas: [context-1m-2025-08-07]}", None),
        ("api: chat", None),
    ],
)
def test_settings_of_another_api_are_warned_of(settings: str, warning: str | None) -> None:
    told = [one.partition(" ")[2] for one in warnings(f"upstreams: [{A}, {settings}}}]")]
    assert told == ([] if warning is None else [warning])


def test_unknown_api_and_malformed_beta_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"upstreams\[0\].api"):
        warnings(f"upstreams: [{A}, api: completions}}]")
    with pytest.raises(ConfigError, match="expected letters, digits"):
        warnings(f"upstreams: [{A}, api: messages, messages: {{betas: ['a, b']}}}}]")
