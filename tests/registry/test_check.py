"""Plugins in the configuration: what is wrong with their names and their `with:` is told with file, line and column."""

import contextlib
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.config import ConfigError, LoadedConfig, load
from gateway.registry.check import check_plugins

FILE = Path("gateway.yaml")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def loaded(text: str, **environ: str) -> LoadedConfig:
    FILE.write_text(text)
    return load(FILE, environ=environ, flags={}, checks=(check_plugins,))


def problems(text: str, **environ: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        loaded(text, **environ)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "chains: {c: [{use: memry}]}",
            "gateway.yaml:1:20 chains.c[0].use: no plugin 'memry' of kind 'stages': expected plugins/stages/memry.py; "
            "did you mean 'memory'?",
        ),
        (
            "tools:\n  htp_request: {}",
            "gateway.yaml:2:3 tools.htp_request: no plugin 'htp_request' of kind 'tools': expected "
            "plugins/tools/htp_request.py; did you mean 'http_request'?",
        ),
        (
            "tools: {shell: {}}",
            "1:9 tools.shell: no plugin 'shell' of kind 'tools': expected plugins/tools/shell.py; "
            "there are demo_note, execute_command, execute_sql, file_operations, http_request",
        ),
        ("tools: {mine: {use: zzz}}", "gateway.yaml:1:21 tools.mine.use: no plugin 'zzz' of kind 'tools'"),
        (
            "risk: {assessors: {execute_sql: {use: sqll}}}",
            "gateway.yaml:1:39 risk.assessors.execute_sql.use: no plugin 'sqll' of kind 'assessors': expected "
            "plugins/assessors/sqll.py; did you mean 'sql'?",
        ),
        (
            "chains: {c: [{use: not_there.stage}]}",
            "chains.c[0].use: no plugin 'not_there.stage' of kind 'stages': expected an installed module",
        ),
        ("chains: {c: [{use: json.decoder}]}", "1:20 chains.c[0].use: json.decoder exports no PLUGIN"),
        (
            "chains: {c: [{use: memory, with: {max_memorys: 1}}]}",
            "1:35 chains.c[0].with.max_memorys: unknown key 'max_memorys'; did you mean 'max_memories'?",
        ),
        (
            "chains: {c: [{use: intent, with: {x: 1}}]}",
            "1:35 chains.c[0].with.x: unknown key 'x'; known here: exclude_keywords, max_described",
        ),
        (
            "chains: {c: [{use: memory, with: {max_recalled: -1}}]}",
            "1:49 chains.c[0].with.max_recalled: input should be greater than or equal to 0",
        ),
        (
            "chains: {c: [{use: agent_loop, with: {timeout: soon}}]}",
            "1:48 chains.c[0].with.timeout: expected a duration such as 500ms",
        ),
        (
            "chains: {c: [{use: intent, with: {exclude_keywords: [a, 1]}}]}",
            "1:57 chains.c[0].with.exclude_keywords[1]: input should be a valid string",
        ),
        (
            "tools: {x: {use: execute_command, with: {limits: {cpu: 1}}}}",
            "1:51 tools.x.with.limits.cpu: unknown key 'cpu'; did you mean 'cpu_s'?",
        ),
        (
            "tools: {x: {use: execute_sql, with: {url: 'sqlite:///./a.db', url_file: b}}}",
            "1:37 tools.x.with: url_file is read at tools.execute_sql only: write url here",
        ),
        (
            "risk: {assessors: {execute_sql: {use: sql, with: {profile: strict}}}}",
            "1:60 risk.assessors.execute_sql.with.profile: input should be 'literal', 'standard' or 'hardened'",
        ),
        ("chains: {c: [{use: prompt_enhancer}]}", "chains.c[0].with.tools: offers tools and no agent_loop below"),
        (
            "chains: {c: [{use: agent_loop}, {use: prompt_enhancer, with: {tools: true}}]}",
            "chains.c[1].with.tools: offers tools and no agent_loop below",
        ),
        (
            "chains: {c: [{use: response_cache}, {use: agent_loop}]}",
            "1:20 chains.c[0].use: 'response_cache' must be the last stage of its chain: move it behind 'agent_loop'",
        ),
        (
            "chains: {c: [{use: prompt_enhancer}, {use: agent_loop, with: {tool_format: native}}]}",
            "1:76 chains.c[1].with.tool_format: the prompt_enhancer above (chains.c[0]) tells the model to call "
            "tools in JSON: write tools: false there, or tool_format: json here",
        ),
    ],
)
def test_plugin_problem_is_reported_at_its_place(text: str, problem: str) -> None:
    """At its place, with the way out."""
    (only,) = problems(text)
    assert problem in only


def test_all_plugin_problems_are_reported_in_file_order() -> None:
    """All problems of all plugins, in the order of the file, beside those of the configuration itself."""
    found = problems(
        "workers: many\n"
        "chains:\n"
        "  a: [{use: memory, with: {max_chars: 0, max_note_chars: few, other: 1}}]\n"
        "  b: [{use: nope}]\n"
    )
    assert [problem.partition(" ")[0] for problem in found] == [
        "gateway.yaml:1:10",
        "gateway.yaml:3:39",
        "gateway.yaml:3:58",
        "gateway.yaml:3:63",
        "gateway.yaml:4:13",
    ]


def test_environment_values_are_not_repeated_in_problems() -> None:
    """A value from the environment may be a secret."""
    name = "GATEWAY__CHAINS__ASSISTANT__3__WITH__MAX_TOOL_CALLS"
    (problem,) = problems("", **{name: "hunter2-secret"})
    assert name in problem and "hunter2" not in problem
    for text in ("chains: {c: [{use: $NAME}]}", "chains: {c: [{use: memory, with: {max_chars: $NAME}}]}"):
        (problem,) = problems(text.replace("$NAME", "${NAME}"), NAME="hunter2-secret")
        assert "hunter2" not in problem


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "chains: {c: [{use: memory}, {use: prompt_enhancer, with: }, {use: agent_loop, with: {timeout: 10s}}]}",
        "chains: {c: [{use: prompt_enhancer, with: {tools: false}}, {use: agent_loop, with: {tool_format: native}}]}",
        "chains: {c: [{use: agent_loop, with: {tool_format: native}}]}",
        "tools: {http_request: {}, other: {use: http_request, requires_approval: true, with: {hosts: [a.example]}}}",
        "risk: {assessors: {execute_sql: {use: sql, with: {profile: hardened}}}}",
    ],
)
def test_valid_plugin_settings_are_accepted_without_warnings(text: str) -> None:
    """Without a word."""
    assert loaded(text).warnings == ()


@pytest.mark.parametrize(
    "text", ["chains: {c: [{use: 'a b'}]}", "tools: {a b: {}}", "chains: {c: [{use: memory, with: 1}]}"]
)
def test_configuration_error_is_not_repeated_by_the_plugin_check(text: str) -> None:
    """What the configuration itself refuses is no plugin's concern."""
    assert len(problems(text)) == 1


def test_plugin_import_failures_are_reported_with_their_exception(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its code does: with its place in the configuration instead of a traceback."""
    package = tmp_path / "broken_plugins"
    package.mkdir()
    (package / "syntax.py").write_text("PLUGIN = (\n")
    (package / "raises.py").write_text("raise RuntimeError('no luck')\n")
    (package / "needs.py").write_text("import not_there_at_all\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = problems(
        "chains: {c: [{use: broken_plugins.syntax}, {use: broken_plugins.raises}, {use: broken_plugins.needs}]}"
    )
    assert ["SyntaxError" in found[0], "RuntimeError: no luck" in found[1], "'not_there_at_all'" in found[2]] == [
        True
    ] * 3


# Plugins of the operator's own.


def write(path: str, text: str) -> Path:
    """As a careful operator does."""
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    for place in (file, *list(file.parents)[:-1]):
        place.chmod(0o755)
    return file


OWN = """
from pydantic import BaseModel, ConfigDict
from gateway.plugin import Plugin

class Config(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    size: int = 3

PLUGIN = Plugin(Config, lambda config, host: None)
"""


def test_a_plugin_beside_the_configuration_is_found() -> None:
    """Of any kind, in `plugins/` or where `plugins.folder` says; what it does not take is told at its place."""
    for kind in ("stages", "tools", "assessors"):
        write(f"plugins/{kind}/mine.py", OWN)
        write(f"site/own/{kind}/other.py", OWN)
    used = "chains: {c: [{use: $}]}\ntools: {$: {}}\nrisk: {assessors: {x: {use: $, with: {size: 4}}}}\n"
    assert loaded(used.replace("$", "mine")).warnings == ()
    assert loaded(used.replace("$", "other") + "plugins: {folder: site/own}").warnings == ()
    (only,) = problems("tools: {mine: {with: {sise: 4}}}")
    assert only == "gateway.yaml:1:23 tools.mine.with.sise: unknown key 'sise'; did you mean 'size'?"


def test_only_configured_plugins_are_imported() -> None:
    """A broken plugin that nobody uses is nobody's concern."""
    write("plugins/tools/mine.py", OWN)
    write("plugins/tools/broken.py", "raise RuntimeError('imported')")
    assert loaded("tools: {mine: {}}").warnings == ()
    (only,) = problems("tools: {broken: {}}")
    assert only == (
        f"gateway.yaml:1:9 tools.broken: plugin 'broken' ({Path.cwd()}/plugins/tools/broken.py:1) cannot be imported: "
        "RuntimeError: imported"
    )


def test_plugin_in_a_world_writable_folder_is_refused() -> None:
    """T31: with the file, and with what to do."""
    file = write("plugins/tools/mine.py", OWN)
    file.parent.chmod(0o777)
    (only,) = problems("tools: {mine: {}}")
    assert f"tools.mine: plugin 'mine': '{file.parent.absolute()}' can be written by others" in only
    assert f"chmod go-w {file.parent.absolute()}" in only


def test_plugin_name_conflict_is_reported_once_with_both_files() -> None:
    """Whether the name is used or not; also with the assessors of the built-in tools."""
    write("plugins/tools/http_request.py", OWN)
    write("plugins/assessors/sql.py", OWN)
    for text in ("listen: 127.0.0.1:1", "tools: {mine: {use: http_request}}"):
        one, two = problems(text)
        assert "plugins.folder: " in one and "/plugins/tools/http_request.py' has the name of the gateway's own" in one
        assert "/plugins/assessors/sql.py' has the name of the gateway's own" in two


def test_unchanged_copy_of_a_built_in_plugin_causes_no_conflict() -> None:
    """A gateway that was installed from a checkout runs in it."""
    source = Path(__file__).parents[2] / "plugins/assessors/sql.py"
    write("plugins/assessors/sql.py", source.read_text())
    assert loaded("listen: 127.0.0.1:1").settings.plugins.folder.name == "plugins"


def test_configured_plugin_folder_must_exist() -> None:
    """The default one need not."""
    assert loaded("{}").warnings == ()
    (only,) = problems("plugins: {folder: nope}")
    assert only.startswith("gateway.yaml:1:19 plugins.folder: no such folder: ")
    assert len(problems("plugins: {folder: 5}")) == 1


_KEYS = st.sampled_from(["use", "with", "tools", "assessors", "exclude_keywords", "profile", "limits", "x"])
_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=5)
    | st.sampled_from(["memory", "a..b", ".", "json", "x."]),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(_KEYS, below, max_size=3),
    max_leaves=8,
)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(chains=_VALUES, tools=_VALUES, risk=_VALUES)
def test_plugin_check_raises_only_config_errors(chains: object, tools: object, risk: object) -> None:
    """Whatever stands where plugins are named: a configuration, or a ConfigError."""
    tree = {"chains": {"c": [chains], "d": chains}, "tools": tools, "risk": {"assessors": risk}}
    with contextlib.suppress(ConfigError):
        loaded(yaml.safe_dump(tree, allow_unicode=True))


def test_built_in_tool_refuses_the_use_key() -> None:
    """An unknown key is reported once."""
    (problem,) = problems("tools: {http_request: {use: nope}}")
    assert "1:24 tools.http_request.use: unknown key 'use'" in problem
