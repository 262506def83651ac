"""Limits that could not be counted are refused at the start, and those that do not hold everywhere are told of."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from gateway.config import ConfigError, load
from gateway.contracts.model_names import is_model_match


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def warnings(text: str) -> Sequence[str]:
    file = Path("gateway.yaml")
    file.write_text(text)
    return load(file, environ={}, flags={}).warnings


@pytest.mark.parametrize("figure", ["tokens_per_day: 5", "tokens_per_month: 5", "cost_per_day: 5", "cost_per_month: 5"])
@pytest.mark.parametrize(
    "place", ["limits: {tenants: {a: {%s}}}", "upstreams: [{name: a, base_url: 'http://a/v1', limits: {%s}}]"]
)
def test_a_budget_needs_usage(figure: str, place: str) -> None:
    with pytest.raises(ConfigError, match=r"is counted by usage, .*: set usage\.enabled to true"):
        warnings(place % figure)


def test_a_valkey_server_is_for_limits_that_are_shared() -> None:
    assert not warnings("limits: {valkey: 'valkeys://user:secret@cache:6379/1'}")
    with pytest.raises(
        ConfigError, match=r"limits\.valkey: is where gateways share limits, and limits\.shared is false"
    ):
        warnings("limits: {valkey: 'valkey://cache', shared: false}")
    with pytest.raises(ConfigError, match=r"limits\.valkey: expected a URL such as valkey://HOST:6379/0"):
        warnings("limits: {valkey: 'http://cache'}")


def test_a_valkey_server_needs_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"needs a client of Valkey: pip install 'twolane\[valkey\]'"):
        warnings("limits: {valkey: 'valkey://cache'}")


def test_a_budget_of_costs_needs_prices() -> None:
    with pytest.raises(ConfigError, match=r"limits.models.gpt-\*.cost_per_day: is counted by prices"):
        warnings("usage: {enabled: true}\nlimits: {models: {'gpt-*': {cost_per_day: 5, tokens_per_day: 5}}}")


def test_model_limit_without_by_model_passthrough_warns() -> None:
    text = "limits: {models: {gpt: {concurrent: 5}}}\n"
    said = "limits.models.gpt: does not count what passes through: set passthrough.by_model to true"
    assert [warning for warning in warnings(text) if said in warning]
    assert not [one for one in warnings(text + "passthrough: {by_model: true}") if said in one]


@pytest.mark.parametrize(
    ("glob", "missed"),
    [("fast", "'gpt-mini', 'llama'"), ("FA*", "'gpt-mini', 'llama'"), ("*a*", "'gpt-mini'"), ("*", "")],
)
def test_limit_glob_that_matches_an_alias_warns_of_uncounted_models(glob: str, missed: str) -> None:
    """Its calls count for the models that it stands for."""
    alias = "models: {fast: {use: [{model: gpt-mini}, {model: llama}]}}"
    text = f"{alias}\nlimits: {{models: {{'{glob}': {{concurrent: 5}}}}}}"
    said = [one for one in warnings(text) if "for which the alias 'fast' stands" in one]
    assert len(said) == bool(missed)
    assert all(f"limits.models.{glob}: does not count {missed}, for which" in one for one in said)


@pytest.mark.parametrize(
    ("prices", "warns"), [("{model: 'gpt-*', input: 1}", True), ("{model: '**', input: 0}", False)]
)
@pytest.mark.parametrize("limit", ["cost_per_day", "tokens_per_day"])
def test_cost_limit_with_unpriced_models_warns(prices: str, warns: bool, limit: str) -> None:
    Path("prices.yaml").write_text(f"currency: USD\nprices: [{{model: a, input: 1}}, {prices}]")
    said = warnings(f"usage: {{enabled: true, prices: prices.yaml}}\nlimits: {{tenants: {{a: {{{limit}: 5}}}}}}")
    found = [one for one in said if "counts models without a price at the highest prices" in one]
    assert len(found) == (warns and limit == "cost_per_day")
    assert all(f"limits.tenants.a.{limit}: " in one for one in found)


@pytest.mark.parametrize(
    ("glob", "other"), [("other", "othe[r]"), ("all models", "all model[s]"), ("gpt-* | o*", "gpt-* [|] o*")]
)
def test_shared_usage_name_is_refused_as_a_limit_glob(glob: str, other: str) -> None:
    """The same glob, written in another way, is one."""
    with pytest.raises(ConfigError, match=rf"write it as {re.escape(repr(other))}"):
        warnings(f"limits: {{models: {{'{glob}': {{concurrent: 5}}}}}}")
    warnings(f"limits: {{models: {{'{other}': {{concurrent: 5}}}}}}")
    assert is_model_match(glob.replace("*", "4"), other)
