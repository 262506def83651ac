"""The behaviour that all sections share."""

import pytest
from pydantic import ValidationError

from gateway.config.schema.http import LimitsSettings
from gateway.config.schema.section import (
    PluginUse,
    Section,
    find_child_type,
    find_type,
    is_collection,
    is_section,
    strip,
)
from gateway.config.schema.settings import Settings
from gateway.config.schema.tools import PluginTool
from gateway.config.schema.upstreams import UpstreamSettings
from gateway.config.values.secret import MaskedText


def test_settings_sections_are_frozen_and_refuse_unknown_keys() -> None:
    """Nothing changes a configuration after it was read; an unknown key is a finding."""
    limits = LimitsSettings.model_validate({})
    with pytest.raises(ValidationError):
        limits.headers = 1  # type: ignore[misc]
    with pytest.raises(ValidationError, match="extra_forbidden"):
        LimitsSettings.model_validate({"hedaers": 1})


def test_an_empty_section_or_list_has_its_defaults() -> None:
    """`limits:` with every line below it commented out is no mistake; an empty single value is one."""
    settings = Settings.model_validate({"limits": None, "upstreams": None, "keys": None, "prompts": None, "mcp": None})
    assert settings == Settings.model_validate({})
    with pytest.raises(ValidationError):
        Settings.model_validate({"workers": None})


def test_findings_do_not_hold_the_input() -> None:
    """A printed ValidationError has no secret in it."""
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate({"upstreams": [{"name": "a", "base_url": "canary://", "api_key": "can ary"}]})
    assert "canary" not in str(caught.value) and "can ary" not in str(caught.value)


def test_plugin_configuration_is_kept_unchanged_and_masked() -> None:
    """Free-form content is neither read nor changed; what a variable brought in is masked when it is printed."""
    use = PluginUse.model_validate({"use": "x", "with": {"a": [1, {"b": None}], "c": MaskedText("canary")}})
    assert use.with_ == {"a": [1, {"b": None}], "c": "canary"}
    assert "canary" not in use.model_dump_json() + repr(use)
    assert PluginUse.model_validate({"use": "x"}).with_ == {}


def test_find_type_resolves_setting_types_along_a_path() -> None:
    """Sections, lists, names of users; None where nothing is known."""
    assert strip(find_type(Settings, ("upstreams", 0))) is UpstreamSettings
    assert is_collection(find_type(Settings, ("upstreams", 0, "models")))
    assert not is_collection(find_type(Settings, ("upstreams", 0, "api_key")))
    assert strip(find_type(Settings, ("tools", "mine"))) is PluginTool
    assert find_type(Settings, ("chains", "x", 0, "with", "k")) is object
    assert find_type(Settings, ("chains", "x", 0, "with", "k", "deeper")) is None
    assert find_type(Settings, ("nope", "x")) is None
    assert find_type(Settings, ()) is Settings
    assert find_child_type(LimitsSettings, "with_") is None
    assert is_section(Section) and not is_section(int) and not is_section(None)
