"""How a check finds a plugin, and what it says of its `Config`."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict, Field, model_validator

from gateway.contracts.plugin import Plugin
from gateway.testing import ContractError, check_stage
from gateway.testing.contract import check_config, load_subject

from .rule_keepers import PassOn

ROOT = Path(__file__).parents[2]


class Good(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    n: int = Field(default=1, description="Number.")


class Loose(BaseModel):
    model_config = ConfigDict(frozen=True)


class Soft(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Required(Good):
    m: int = Field(description="Number.")


class Silent(Good):
    m: int = 1


class Section(Good):
    inner: Loose = Field(default=Loose(), description="Section.")


class Dropping(Good):
    @model_validator(mode="before")
    @classmethod
    def _drop(cls, given: object) -> object:
        return {}


@pytest.mark.parametrize(
    ("config", "rule", "found"),
    [
        (Loose, "unknown keys are errors", "Loose ignores unknown keys"),
        (Soft, "Config is frozen", "fields of Soft can be set"),
        (Required, "every field has a default", "'m' has none"),
        (Silent, "every field has a description", "'m' has no description"),
        (Section, "unknown keys are errors", "Loose ignores unknown keys"),
        (Dropping, "unknown keys are errors", "'no_such_key' is accepted"),
        (dict, "Config is a pydantic model", "it is <class 'dict'>"),
    ],
)
def test_broken_config_rule_is_reported_with_place_and_fix(config: type, rule: str, found: str) -> None:
    """With the place and the next step."""
    plugin = Plugin(config, lambda config, host: PassOn())
    with pytest.raises(ContractError, match=f"(?s){rule}.*{re.escape(found)}.*To fix it: ") as told:
        check_config("stages", "mine", plugin)
    assert f"{__file__}:" in str(told.value)


def test_contract_check_accepts_a_good_plugin_config() -> None:
    """Without a word."""
    check_config("stages", "mine", Plugin(Good, lambda config, host: PassOn()))


PLUGIN_TEXT = """
from pydantic import BaseModel, ConfigDict
from gateway.plugin import Plugin

class Config(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

async def pass_on(exchange, call_next):
    return await call_next(exchange)

PLUGIN = Plugin(Config, lambda config, host: pass_on)
"""


def test_contract_check_finds_plugins_of_every_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A built-in one, a file or a folder of the operator's, an installed module, a Plugin."""
    (tmp_path / "stages" / "mine").mkdir(parents=True, mode=0o755)
    (tmp_path / "stages" / "mine" / "__init__.py").write_text(PLUGIN_TEXT)
    (tmp_path / "somebodys_plugins").mkdir()
    (tmp_path / "somebodys_plugins" / "polite.py").write_text(PLUGIN_TEXT)
    monkeypatch.syspath_prepend(tmp_path)
    check_stage("intent")
    check_stage("mine", folder=tmp_path)
    check_stage("somebodys_plugins.polite")
    check_stage(Plugin(Good, lambda config, host: PassOn()), {"n": 2})


def test_unusable_plugin_raises_contract_error() -> None:
    """In the words of the registry."""
    with pytest.raises(ContractError, match=r"stages 'intend' cannot be used: no plugin .*'intent'"):
        check_stage("intend")
    with pytest.raises(ContractError, match="stages 'intent' does not take the config of this test"):
        check_stage("intent", {"no_such": 1})


def test_failing_build_raises_contract_error() -> None:
    """For a config that `Config` accepts."""

    def build(config: Good, host: object) -> PassOn:
        raise ValueError("no")

    with pytest.raises(ContractError, match=r"is built with a valid config.*ValueError\('no'\)"):
        load_subject("stages", Plugin(Good, build), {}, None).build(None)  # type: ignore[arg-type]


async def test_contract_check_refuses_a_running_event_loop() -> None:
    """They have one of their own."""
    with pytest.raises(RuntimeError, match="call it in a plain `def`"):
        check_stage("intent")


def test_testing_kit_imports_only_gateway_dependencies() -> None:
    """No pytest, nothing of the developers'; and no configuration before a check needs it."""
    code = "import sys, gateway.testing; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = {module.partition(".")[0] for module in done.stdout.split()}
    dependencies = {"gateway", "orjson", "prometheus_client", "ahocorasick"}
    assert {name for name in loaded if not name.startswith("_")} - sys.stdlib_module_names <= dependencies
    assert "gateway.config" not in done.stdout.split()
