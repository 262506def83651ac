"""The whole configuration, read."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from config.folder import CONFIG, Folder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from measuring import Effort

from gateway.config import ConfigError, Problem, Settings, load
from gateway.config.document import Document
from gateway.config.reading.yaml_reader import MAX_FILE_BYTES

ROOT = Path(__file__).resolve().parents[2]


def test_without_a_file_everything_has_its_default(folder: Folder) -> None:
    """Relative paths then begin at the current folder."""
    loaded = load(None, environ={}, flags={"listen": None, "port": None, "workers": None, "upstream": None})
    assert (loaded.file, loaded.folder, loaded.warnings) == (None, folder.path, ())
    assert loaded.settings.workflows.folder == folder.path / "workflows"
    assert loaded.settings == folder.load("").settings == folder.load("# nothing\n").settings


def test_relative_paths_begin_at_the_folder_of_the_file(folder: Folder) -> None:
    """Wherever the gateway is started."""
    folder.write("conf/p.md", "x")
    folder.write("conf/a/x", "x")
    path = folder.write("conf/g.yaml", "prompts: {p: {file: p.md}}\ntools: {file_operations: {roots: [a, /usr]}}")
    loaded = load(path.relative_to(folder.path), environ={}, flags={})
    assert loaded.folder == folder.path / "conf"
    assert loaded.settings.prompts["p"].file == folder.path / "conf/p.md"
    assert loaded.settings.tools.file_operations
    assert loaded.settings.tools.file_operations.roots == (folder.path / "conf/a", Path("/usr"))


def test_the_shipped_file_is_the_default() -> None:
    """It loads without any variable, and what stands in it uncommented changes nothing."""
    loaded = load(ROOT / "gateway.yaml", environ={}, flags={})
    assert loaded.warnings == ()
    assert loaded.settings == load(None, environ={}, flags={}).settings.model_copy(
        update={"workflows": loaded.settings.workflows}
    )
    first, *_ = (ROOT / "gateway.yaml").read_text().splitlines()
    assert first == "# yaml-language-server: $schema=./gateway.schema.json"


def test_the_examples_of_the_shipped_file_work(folder: Folder) -> None:
    """Uncommented, they load, beside what is there already."""
    lines = (ROOT / "gateway.yaml").read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("listen"))
    examples = [line[1:] if line.startswith("#  ") else line for line in lines[start:]]
    text = "\n".join(line.removeprefix("# ") if line.startswith(("# chains", "#   ")) else line for line in examples)
    folder.write("prompts/reviewer.md", "x")
    folder.write("data.db", "")
    (folder.path / "work").mkdir()
    loaded = folder.load(text, {"OPENAI_API_KEY": "sk-1", "DOCS_TOKEN": "t"})
    assert [upstream.name for upstream in loaded.settings.upstreams] == ["openai", "local", "claude"]
    assert set(loaded.settings.mcp.servers) == {"time", "docs"} and loaded.settings.tools.execute_command
    assert [key.name for key in loaded.settings.keys] == ["laptop"] and "reviewer" in loaded.settings.prompts


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"\xff\xfea\x00", "gateway.yaml: 'gateway.yaml' is not UTF-8 at byte 0: save it as UTF-8"),
        (b"#" * (MAX_FILE_BYTES + 1), "gateway.yaml: 'gateway.yaml' is larger than 1048576 bytes"),
        (b"a: [1\nb: 2\n", "gateway.yaml:2:2: not valid YAML: "),
        (b"a: 1\n---\nb: 1\n", "gateway.yaml:2:1: a second document begins here: one is read"),
        (b"{a: &x [*x]}: 1", "gateway.yaml:1:1: a key must be plain text"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_problem(folder: Folder, content: bytes, problem: str) -> None:
    """What follows from it would be guessing."""
    assert folder.problem(content).startswith(problem)


def test_a_file_that_is_not_there_is_a_problem(folder: Folder) -> None:
    """A folder in its place as well, and a current folder that is gone."""
    with pytest.raises(ConfigError, match=r"^nope\.yaml: cannot read 'nope\.yaml': No such file or directory$"):
        load(Path("nope.yaml"), environ={}, flags={})
    with pytest.raises(ConfigError, match="Is a directory"):
        load(folder.path, environ={}, flags={})
    gone = folder.path / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    with pytest.raises(ConfigError, match="the current folder is gone"):
        load(None, environ={}, flags={})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("risk: {trust_llm: off}", "to others: write one of always, until_tainted, never"),
        ("metrics: {enabled: on}", "metrics.enabled: unquoted on is a truth value to some YAML readers"),
        ("upstreams: [{name: no, base_url: 'http://a'}]", "upstreams[0].name: unquoted no is a truth value"),
        ("workers: 1e3", "workers: YAML readers disagree about this unquoted number"),
        ("workers: 010", "workers: YAML readers disagree"),
        ("limits: {head_timeout: 1:30}", "limits.head_timeout: YAML readers disagree"),
        ("listen: 8080", 'listen: expected "host:port"'),
        ("store: !!python/object/apply:os.system ['echo']", "store: tags such as !!str or !name are not used here"),
    ],
)
def test_yaml_surprises_are_reported_as_type_errors(folder: Folder, text: str, problem: str) -> None:
    """Nothing is silently another value than its author meant."""
    assert f" {problem}" in folder.problems(text)[0]


def test_every_unset_variable_is_reported_with_its_place(folder: Folder) -> None:
    """In any kind of value, next to the messages of the file itself."""
    problems = folder.problems(
        "workers: ${A}\nlisten: ${B:?set B}\nchains: {c: [{use: x, with: {k: ${C}}}]}\nlogging: {level: '${D}'}\n"
    )
    assert [problem.partition(": ")[0] for problem in problems] == [
        "gateway.yaml:1:10 workers",
        "gateway.yaml:2:9 listen",
        "gateway.yaml:3:33 chains.c[0].with.k",
        "gateway.yaml:4:18 logging.level",
    ]
    assert problems[1].endswith("variable B is not set: set B")


def test_variables_take_the_type_of_their_key(folder: Folder) -> None:
    """Numbers, flags, durations, sizes, choices, null; a secret of digits stays text."""
    text = (
        "workers: ${N}\nmetrics: {enabled: ${NO}}\nlimits: {head: ${SIZE:-64KiB}, drain: ${N}, concurrent: ${NONE}}\n"
        "logging: {level: '${LEVEL}'}\nupstreams: [{name: a, base_url: 'http://${HOST}:80/v1', api_key: ${N}}]\n"
    )
    environ = {"N": "12", "NO": "no", "NONE": "null", "LEVEL": "debug", "HOST": "h"}
    read = folder.load(text, environ).settings
    assert (read.workers, read.metrics.enabled, read.limits.head, read.limits.drain) == (12, False, 65536, 12.0)
    assert (read.limits.concurrent, read.logging.level) == (None, "debug")
    assert read.upstreams[0].base_url == "http://h:80/v1"
    assert read.upstreams[0].api_key and read.upstreams[0].api_key.reveal() == "12"
    assert repr(read.logging.level) == "'debug'"


def test_loaded_settings_never_show_variable_values(folder: Folder) -> None:
    """In free-form places too, where nobody can know that it is a secret."""
    text = (
        "upstreams: [{name: a, base_url: 'http://a', api_key: ${K}}]\nprompts: {default: {text: 'x ${K}'}}\n"
        "mcp: {servers: {m: {command: c, args: ['--token=${K}']}}}\ntools: {t: {with: {a: [{b: '${K}'}]}}}\n"
    )
    loaded = folder.load(text, {"K": "sk-canary", "GATEWAY__TOOLS__T__WITH__C": "sk-canary"})
    assert loaded.settings.tools.plugins["t"].with_ == {"a": [{"b": "sk-canary"}], "c": "sk-canary"}
    assert loaded.settings.mcp.servers["m"].args == ("--token=sk-canary",)
    assert "canary" not in repr(loaded) + str(loaded.settings) + loaded.settings.model_dump_json(by_alias=True)


def test_a_configuration_is_read_under_the_barest_of_environments(folder: Folder) -> None:
    """Locale C, no HOME, optimised bytecode, a read-only folder, standard input closed."""
    folder.write(CONFIG.name, "prompts: {default: {text: 你好}}\nworkers: 0\n")
    folder.path.chmod(0o555)
    code = (
        "from pathlib import Path\nfrom gateway.config import ConfigError, load\n"
        "try: load(Path('gateway.yaml'), environ={}, flags={})\nexcept ConfigError as error: print(error)"
    )
    environ = {"LC_ALL": "C", "PYTHONOPTIMIZE": "2", "PYTHONPATH": str(ROOT), "TZ": "Nowhere/Odd", "PYTHONUTF8": "0"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environ,
        cwd=folder.path,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    folder.path.chmod(0o755)
    assert (done.stdout, done.stderr) == ("gateway.yaml:2:10 workers: must be between 1 and 256\n", "")


def test_a_configuration_of_the_largest_size_is_read_soon(folder: Folder) -> None:
    """A megabyte of whatever is refused or read within seconds (1.5; 24 when each name was compared to all)."""
    effort = Effort()
    upstreams = "\n".join(f"  - {{name: u{i}, base_url: 'http://h{i}/v1', models: [m{i}]}}" for i in range(9000))
    assert len(folder.load(f"upstreams:\n{upstreams}\n").settings.upstreams) == 9000
    assert effort.cpu_s < 10


_KEYS = sorted(Settings.model_fields)
_INNER = [
    "name",
    "base_url",
    "api_key",
    "api_key_file",
    "tls",
    "paths",
    "use",
    "with",
    "text",
    "file",
    "servers",
    "command",
    "listen",
    "headers",
    "scopes",
    "sha256",
    "timeouts",
    "url",
    "notify",
    "webhook",
    "chain",
    "keepalive",
    "execute_sql",
]
_WORDS = st.sampled_from(
    ["a", "", "${X}", "${NOPE}", "$$", "5s", "1KiB", "http://a", "127.0.0.1:1", "*", "/v1/", "assistant", "null", "on"]
)
_LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | _WORDS
_NAMES = st.sampled_from(_INNER) | st.text(max_size=4)
_TREES = st.recursive(
    _LEAVES,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(_NAMES, below, max_size=4),
    max_leaves=12,
)
_FUZZ = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


def _only_config_errors(folder: Folder, text: str, environ: dict[str, str]) -> None:
    """Loads and shows the text, or fails with problems of one line each."""
    folder.path.joinpath(CONFIG).write_bytes(text.encode("utf-8", "surrogatepass"))
    problems: tuple[Problem, ...] = ()
    try:
        load(CONFIG, environ={"X": "x", **environ}, flags={}).settings.model_dump_json()
    except ConfigError as error:
        problems = error.problems or (Problem("", "", ""),)
    assert all(problem.place and problem.message and "\n" not in str(problem) for problem in problems)


@_FUZZ
@given(tree=st.dictionaries(st.sampled_from(_KEYS), _TREES, max_size=5))
def test_loading_any_yaml_tree_raises_only_config_errors(folder: Folder, tree: dict[str, object]) -> None:
    """Any values under the keys that exist: a configuration, or a ConfigError with places and messages of one line."""
    _only_config_errors(folder, yaml.safe_dump(tree, allow_unicode=True), {})


@_FUZZ
@given(text=st.text(max_size=200))
def test_loading_any_text_raises_only_config_errors(folder: Folder, text: str) -> None:
    """Any text at all."""
    _only_config_errors(folder, text, {})


@_FUZZ
@given(
    environ=st.dictionaries(
        st.lists(st.sampled_from([*_KEYS, *_INNER, "0", "1", "x", "", "9999"]), min_size=1, max_size=4).map(
            lambda parts: "GATEWAY__" + "__".join(parts).upper()
        ),
        st.text(max_size=12) | _WORDS | st.sampled_from(["[a]", "{a: 1}", "[", "{a: *x}", "\udcff"]),
        max_size=4,
    )
)
def test_loading_any_variables_raises_only_config_errors(folder: Folder, environ: dict[str, str]) -> None:
    """Any names below `GATEWAY__` with any values."""
    _only_config_errors(
        folder, "upstreams: [{name: a, base_url: 'http://a'}]\nadmin: &a {listen: }\nlimits: *a\n", environ
    )


def test_extra_check_problems_are_merged_in_file_order(folder: Folder) -> None:
    """They see the tree with variables laid over it, and run last; their problems stand in the order of the file."""
    seen: list[object] = []

    def check(document: Document) -> None:
        seen.append(document.get("workers"))
        document.complain(("listen",), "not here")

    folder.write("gateway.yaml", "listen: 127.0.0.1:1\nlimits: many\n")
    with pytest.raises(ConfigError) as caught:
        load(Path("gateway.yaml"), environ={"GATEWAY__WORKERS": "3"}, flags={}, checks=(check, check))
    assert len(seen) == 2 and str(seen[0]) == "3"
    told = [str(problem) for problem in caught.value.problems]
    assert told[0] == "gateway.yaml:1:9 listen: not here" and told[1].startswith("gateway.yaml:2:9 limits: expected")
