"""What may answer a request: by the name of its model, by an alias, and by what the configuration says for all."""

from collections.abc import Sequence

import pytest

from gateway.contracts.errors import GatewayError
from gateway.model.candidates import Candidates, ModelTable
from gateway.model.upstream_client import ModelUpstream
from gateway.testing.clock import ManualClock
from tests.upstream.groups import group_of, member


def upstream(name: str, *models: str, api_key: bytes | None = None) -> ModelUpstream:
    clock = ManualClock()
    return ModelUpstream(group_of(member("h", clock, api_key=api_key), clock=clock, name=name), models)


UPSTREAMS = (upstream("one", "gpt-*"), upstream("two", "claude-*", api_key=b"k"), upstream("three"))


def found(candidates: Candidates, asked: str = "") -> Sequence[tuple[str, str]]:
    return [(one.get_model_name({"model": asked}), one.upstream.name) for one in candidates.models]


@pytest.mark.parametrize(("model", "name"), [("gpt-5", "one"), ("claude-x", "two"), ("llama", "three")])
def test_model_name_selects_its_upstream(model: str, name: str) -> None:
    """Under its own name, which stays in the body as it is."""
    candidates = ModelTable(UPSTREAMS).get_candidates({"model": model})
    assert (candidates.name, candidates.upstream, candidates.models[0].model) == (model, name, None)
    assert found(candidates, model) == [(model, name)]


def test_alias_resolves_to_its_listed_models_in_order() -> None:
    """In its order; an upstream is named or found. A name in the list is never an alias, not even its own."""
    aliases = {"fast": [("gpt-5", None), ("gpt-5", "three"), ("fast", None), ("other", "two")], "other": [("x", None)]}
    table = ModelTable(UPSTREAMS, aliases=aliases)
    used = [("gpt-5", "one"), ("gpt-5", "three"), ("fast", "three"), ("other", "two")]
    assert found(table.get_candidates({"model": "fast"})) == used
    assert table.get_candidates({"model": "fast"}).name == "fast"
    assert found(table.get_candidates({"model": "FAST"}), "FAST") == [("FAST", "three")]


def test_the_configured_model_may_be_an_alias() -> None:
    """It stands for whatever clients name. The configured upstream serves what names none itself."""
    table = ModelTable(UPSTREAMS, fixed="two", model="fast", aliases={"fast": [("gpt-5", None), ("gpt-5", "one")]})
    for body in ({"model": "llama"}, {}):
        assert found(table.get_candidates(body)) == [("gpt-5", "two"), ("gpt-5", "one")]
    assert found(ModelTable(UPSTREAMS, model="gpt-5").get_candidates({"model": "llama"})) == [("gpt-5", "one")]


def test_candidates_have_a_key_if_any_upstream_has_one() -> None:
    """Then the client's credential may be its key for the gateway."""
    table = ModelTable(UPSTREAMS, aliases={"mixed": [("x", "three"), ("y", "two")], "plain": [("x", "three")]})
    assert [table.get_candidates({"model": name}).has_key for name in ("mixed", "plain", "claude-x")] == [
        True,
        False,
        True,
    ]


def test_alias_without_upstreams_reports_upstream_unavailable() -> None:
    """503, and the name of the section."""
    table = ModelTable((), aliases={"fast": [("x", None)]})
    for model in ("fast", "x"):
        with pytest.raises(GatewayError, match="'upstreams'") as failed:
            table.get_candidates({"model": model})
        assert failed.value.code == "upstream_unavailable"


def test_model_lookups_stay_consistent_for_any_number_of_names() -> None:
    """Also again: what an earlier name meant does not change what a later one means."""
    table = ModelTable(UPSTREAMS)
    names = [f"{kind}-{n}" for n in range(1500) for kind in ("claude", "llama")]
    first = [table.get_candidates({"model": name}).upstream for name in names]
    assert [table.get_candidates({"model": name}).upstream for name in names] == first
    assert set(zip(first, (name.split("-")[0] for name in names), strict=True)) == {
        ("two", "claude"),
        ("three", "llama"),
    }
