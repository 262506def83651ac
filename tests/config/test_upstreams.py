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
def test_other_base_urls_are_not(url: str) -> None:
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
def test_what_another_upstream_gets_is_warned_of(upstreams: str, said: str) -> None:
    """By the path in passthrough, by the model in the context lane."""
    (warning,) = warnings(f"upstreams: [{upstreams}]")
    assert said in warning


@pytest.mark.parametrize(("first", "second"), [("m*", "mm"), ("mm", "m*"), ("mm", "mm"), ("m[m]", "*")])
def test_the_first_of_all_that_fit_is_named(first: str, second: str) -> None:
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
def test_upstreams_that_each_get_their_own_are_not(upstreams: str) -> None:
    """By paths of their own, a part of the API, and a wider pattern behind a narrower one."""
    assert warnings(f"upstreams: [{upstreams}]") == ()


def test_an_upstream_of_the_context_lane_needs_no_path() -> None:
    """It is named as that."""
    assert warnings(f"upstreams: [{A}}}, {B}}}]\ncontext: {{upstream: b}}") == ()


@pytest.mark.parametrize(
    "key", ["model_list", "litellm_settings", "general_settings", "router_settings", "environment_variables"]
)
def test_the_sections_of_litellm_are_answered_with_ours(key: str) -> None:
    """At once, all that the file has of them."""
    with pytest.raises(ConfigError) as said:
        warnings(f"{key}: {{}}\nmodel_list: []\n" if key != "model_list" else "model_list: []")
    assert f"{key}: this is a key of LiteLLM: " in str(said.value) and "docs/from-litellm.md" in str(said.value)
    assert "model_list: this is a key of LiteLLM: write each server once under 'upstreams'" in str(said.value)
