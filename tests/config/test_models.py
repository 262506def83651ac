"""Aliases of models that could not work are told of, each at its place."""

from pathlib import Path

import pytest

from gateway.config import ConfigError, load

UPSTREAMS = "upstreams: [{name: a, base_url: 'http://a'}, {name: b, base_url: 'http://b', models: [x], paths: [/b/]}]"


def loaded(tmp_path: Path, models: str, *, context: str = "{}") -> None:
    assert warnings(tmp_path, models, context=context) == []


def warnings(tmp_path: Path, models: str, *, context: str = "{}") -> list[str]:
    file = tmp_path / "gateway.yaml"
    file.write_text(f"{UPSTREAMS}\nmodels: {models}\ncontext: {context}\n")
    return [str(warning) for warning in load(file, environ={}, flags={}).warnings]


@pytest.mark.parametrize(
    "models",
    [
        "{}",
        "{fast: {use: [{model: x}]}}",
        "{fast: {use: [{model: x, upstream: a}, {model: x, upstream: b}, {model: y, upstream: a}]}}",
        "{x: {use: [{model: x}]}, 'org/best model': {use: [{model: x}]}}",
    ],
)
def test_an_alias_names_models_in_their_order(tmp_path: Path, models: str) -> None:
    """The same model at several upstreams; also under its own name."""
    loaded(tmp_path, models, context="{model: fast}")


@pytest.mark.parametrize(
    ("models", "said"),
    [
        ("{fast: {use: []}}", "models.fast.use: expected at least one model"),
        ("{fast: {}}", "models.fast.use: this key is required"),
        ("{fast: {use: [{upstream: a}]}}", r"models.fast.use\[0\].model: this key is required"),
        ("{fast: {use: [{model: x, upstream: c}]}}", r"models.fast.use\[0\].upstream: no upstream 'c' is declared"),
        (
            "{fast: {use: [{model: x}, {model: x}]}}",
            r"models.fast.use\[1\]: 'x' is tried at .*gateway.yaml:2:23 already: name each model once",
        ),
        ("{fast: {use: [{model: x, upstream: a}, {model: x, upstream: a}]}}", r"models.fast.use\[1\]: 'x' is tried at"),
        ("{fast: {use: [x]}}", r"models.fast.use\[0\]: expected"),
        ("{fast: {use: [{model: x, weight: 1}]}}", "weight"),
        ("{'': {use: [{model: x}]}}", "expected 1 to 128 characters in one line"),
    ],
)
def test_an_alias_that_cannot_work_is_refused(tmp_path: Path, models: str, said: str) -> None:
    """With its place."""
    with pytest.raises(ConfigError, match=said):
        loaded(tmp_path, models)


def test_an_alias_behind_an_alias_is_warned_of(tmp_path: Path) -> None:
    """It is not followed: a model of its name is asked for. With its upstream, that is plainly meant."""
    (warning,) = warnings(tmp_path, "{a: {use: [{model: b}]}, b: {use: [{model: x}]}}")
    assert "models.a.use[0].model: 'b' is an alias, too, and is not followed" in warning
    loaded(tmp_path, "{a: {use: [{model: b, upstream: a}]}, b: {use: [{model: x}]}}")
