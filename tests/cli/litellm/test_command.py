"""`gateway import litellm`: the file that it writes is right, and it never shows or copies a secret."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.cli.litellm.command import import_config
from gateway.cli.main import main
from gateway.config import load

DOCUMENTED = Path(__file__).with_name("documented.yaml")
#: What the file refers to.
ENVIRON = {
    **dict.fromkeys(("AZURE_API_KEY_EU", "AZURE_API_KEY_CA", "GROQ_API_KEY", "OPENAI_API_KEY"), "key"),
    "OPENAI_GPT_4O_MINI_API_KEY": "key",
    "AZURE_API_BASE_CA": "https://ca.openai.example.com",
}


def test_imported_configuration_passes_check_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """check-config takes it once the variables are set. Its notes are in it, and on standard error."""
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    assert main(["import", "litellm", str(DOCUMENTED), "-o", "gateway.yaml"]) == 0
    said = capsys.readouterr()
    assert "wrote gateway.yaml" in said.out and "gateway check-config -c gateway.yaml" in said.out
    notes = [line.removeprefix("note: ") for line in said.err.splitlines()]
    text = Path("gateway.yaml").read_text()
    assert notes and all(f"# - {note}\n" in text for note in notes)
    assert main(["check-config"]) == 0
    assert capsys.readouterr().out.startswith("gateway.yaml: ok\n")
    settings = load(Path("gateway.yaml"), environ=ENVIRON, flags={}).settings
    assert [use.model for use in settings.models["gpt-4"].use] == ["gpt-4o-eu", "gpt-4o-ca", "gpt-4o-mini"]


def test_no_secret_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Nor in the text of the new configuration."""
    assert main(["import", "litellm", str(DOCUMENTED)]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("# Made by `gateway import litellm` of documented.yaml.\n")
    for secret in ("sk-in-the-file", "sk-master-in-the-file", "user:secret"):
        assert secret not in said.out + said.err


def test_import_never_overwrites_an_existing_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = tmp_path / "gateway.yaml"
    there.write_text("workers: 2\n")
    assert main(["import", "litellm", str(DOCUMENTED), "-o", str(there)]) == 1
    assert "is there already: it stays as it is" in capsys.readouterr().err and there.read_text() == "workers: 2\n"
    assert main(["import", "litellm", str(DOCUMENTED), "-o", str(tmp_path / "no" / "such")]) == 1
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"a: [", "is no YAML at line 1, column 5"),
        (b"\xff\xfe\xff", "is no YAML"),
        (b"model_list: []\nmodel_list: []", "has the key model_list twice, again at line 2: keep one"),
        (b"model_list: [2024-13-45]", "is no YAML"),
        (b"listen: 1", "is no configuration of a LiteLLM proxy: it has no list 'model_list'"),
        (b"x" * (1 << 20) + b"y", "has more than 1048576 bytes"),
    ],
)
def test_import_refuses_a_file_of_another_kind(
    content: bytes, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config.yaml"
    file.write_bytes(content)
    assert main(["import", "litellm", str(file)]) == 1
    assert reason in capsys.readouterr().err


def test_import_names_a_missing_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "litellm", "/no/such/config.yaml"]) == 1
    assert "'/no/such/config.yaml' cannot be read: No such file or directory" in capsys.readouterr().err


def test_imported_yaml_contains_no_anchors() -> None:
    """YAML's references would make one part of two."""
    text, _ = import_config(DOCUMENTED, {})
    assert "&id" not in text and "*id" not in text


ODD: list[Any] = [
    [1],
    {"a": {"b": 1}},
    0,
    -5,
    2.5,
    10**30,
    None,
    True,
    float("inf"),
    float("nan"),
    "",
    " ",
    "a\nb: 1",
    "${HOME}",
    "$$",
    "m",
]
FIELDS = [
    *(("litellm_params", name) for name in ("model", "api_base", "api_key", "weight", "max_parallel_requests")),
    ("litellm_params", "custom_llm_provider"),
    *(("router_settings", name) for name in ("routing_strategy", "num_retries", "timeout", "model_group_alias")),
    *(("router_settings", name) for name in ("allowed_fails", "cooldown_time", "fallbacks")),
    *(("litellm_settings", name) for name in ("cache", "cache_params", "request_timeout", "num_retries")),
    ("general_settings", "master_key"),
    *(
        (name, "")
        for name in ("model_name", "router_settings", "litellm_settings", "general_settings", "litellm_params")
    ),
]
ADDRESSES = ["file:///a", "http://a:99999", "http://[a", "https://u:p@h/v1?q", "http://h/${HOME}/v1", "http://h/a b"]
MORE = [
    *((("litellm_params", "api_base"), address) for address in ADDRESSES),
    (("model_name", ""), "context"),
    (("model_name", ""), "a*"),
    (("router_settings", "fallbacks"), [{"context": ["n", "n"]}, {"n": [["n"]]}, 5, {"n": ["other", "other"]}]),
    (("router_settings", "model_group_alias"), {"a\nb": "n", "${HOME}": "n", "c": {"model": ["n"]}}),
    (("litellm_settings", "cache_params"), {"ttl": float("inf")}),
]


@pytest.mark.parametrize(("field", "value"), [*((field, value) for field in FIELDS for value in ODD), *MORE])
def test_imported_configuration_is_always_valid(field: tuple[str, str], value: Any, tmp_path: Path) -> None:
    """A value of another kind is noted, and left out. The keys of the file's own are set."""
    params: dict[str, Any] = {"model": "openai/m", "api_key": "os.environ/K"}
    entry: dict[str, Any] = {"model_name": "n", "litellm_params": params}
    config: dict[str, Any] = {"model_list": [entry, {"model_name": "other", "litellm_params": {"model": "openai/n"}}]}
    config |= {"litellm_settings": {"cache": True}, "router_settings": {}, "general_settings": {}}
    section, name = field
    if name:
        {**config, "litellm_params": params}[section][name] = value
    else:
        (config if section in config else entry)[section] = value
    file, made = tmp_path / "config.yaml", tmp_path / "gateway.yaml"
    file.write_text(yaml.safe_dump(config))
    text, _ = import_config(file, {})
    made.write_text(text)
    settings = load(made, environ=dict.fromkeys(re.findall(r"\$\{(\w+)\}", text), "https://x"), flags={}).settings
    assert "other" in settings.models
