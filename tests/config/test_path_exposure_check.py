"""Files and folders that tools are given: there, and nothing of the gateway's own among them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from config.folder import Folder

from gateway.config.path_exposure_check import get_store_file
from gateway.config.values.secret import Secret


@pytest.fixture
def site(folder: Folder) -> Folder:
    """With folders `files` and `work`, a database `data.db`, and folders `plugins` and `secret` beside all."""
    for name in ("files/x", "work/x", "data.db", "plugins/tools/mine.py", "secret/key"):
        folder.write(name, "")
    return folder


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tools:\n  file_operations: {}", "2:20 tools.file_operations.roots: no such folder: '{here}/work': "),
        (
            "tools: {file_operations: {roots: [., no pe]}}",
            "1:38 tools.file_operations.roots[1]: no such folder: '{here}/no pe': create it "
            "(mkdir -p '{here}/no pe'), or name another",
        ),
        ("tools: {file_operations: {roots: []}}", "1:34 tools.file_operations.roots: expected at least one folder"),
        (
            "tools: {execute_command: {cwd: nope}}",
            "1:32 tools.execute_command.cwd: no such folder: '{here}/nope': create",
        ),
        (
            "tools: {execute_command: {cwd: gateway.yaml}}",
            "tools.execute_command.cwd: '{here}/gateway.yaml' is no folder",
        ),
        (
            "tools: {execute_command: {cwd: /usr, readable: [/usr, nope]}}",
            "1:55 tools.execute_command.readable[1]: no such file or folder: '{here}/nope'",
        ),
        (
            "tools: {execute_sql: {url: 'sqlite:///./nope.db'}}",
            "1:28 tools.execute_sql.url: no such file: '{here}/nope.db': create it "
            "(an empty file will do: touch {here}/nope.db), or name another",
        ),
        ("tools: {execute_sql: {}}", "1:22 tools.execute_sql.url: no such file: '{here}/data.db'"),
        ("tools: {execute_sql: {url: 'sqlite:///:memory:'}}", "1:28 tools.execute_sql.url: expected sqlite:///FILE"),
        ("tools: {execute_sql: {url: 'sqlite:////usr'}}", "tools.execute_sql.url: '/usr' is no file"),
    ],
)
def test_missing_tool_path_is_reported_with_a_remedy(folder: Folder, text: str, problem: str) -> None:
    """At its place in the file; a default at the tool that has it."""
    found = folder.problems(text)
    assert any(problem.format(here=folder.path) in line for line in found), found


def test_unreadable_tool_path_is_reported_with_the_system_error(folder: Folder) -> None:
    """As the system says it."""
    (only,) = folder.problems(f"tools: {{file_operations: {{roots: [{'x' * 300}]}}}}")
    assert "cannot look at" in only and "too long" in only


@pytest.mark.parametrize(
    "text",
    [
        "tools: {file_operations: {roots: [files], write: true}}",
        "tools: {file_operations: {write: true}, execute_command: {}, execute_sql: {read_only: false}}",
        "tools: {execute_command: {readable: [files, data.db]}}",
        "tools: {execute_sql: {url: 'postgresql://u@h/d', read_only: false}}",
        "tools: {mine: {use: file_operations, with: {roots: [files], write: true}}}",
        "tools: {file_operations: {roots: [plugins]}}",
        "store: postgresql://u@h/d\ntools: {execute_sql: {read_only: false}}",
    ],
)
def test_tool_path_apart_from_gateway_files_raises_no_warning(site: Folder, text: str) -> None:
    """Without a word."""
    assert site.load(text).warnings == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "tools: {file_operations: {roots: [.], write: true}}",
            "1:35 tools.file_operations.roots[0]: reaches the configuration ('gateway.yaml') and the store of the "
            "gateway ('{here}/gateway.db') and the plugins ('{here}/plugins') and the workflows ('{here}/workflows'), "
            "which a model could then change: give the tool a folder of its own",
        ),
        ("tools: {execute_command: {cwd: .}}", "1:32 tools.execute_command.cwd: reaches the configuration"),
        ("tools: {execute_command: {cwd: plugins/tools}}", "reaches the plugins ('{here}/plugins')"),
        ("tools: {execute_command: {cwd: link}}", "reaches the configuration"),
        (
            "workflows: {folder: files/own}\ntools: {execute_command: {cwd: files}}",
            "cwd: reaches the workflows ('{here}/files/own')",
        ),
        (
            "store: sqlite:///files/g.db\ntools: {execute_command: {cwd: files}}",
            "cwd: reaches the store of the gateway",
        ),
        (
            "plugins: {folder: files/own}\ntools: {execute_command: {cwd: files}}",
            "cwd: reaches the plugins ('{here}/files/own')",
        ),
        (
            "store: sqlite:///data.db\ntools: {execute_sql: {read_only: false}}",
            "2:22 tools.execute_sql.url: is the store of the gateway ('{here}/data.db'), which a model could "
            "then change: give the tool another database",
        ),
        (
            "tools: {mine: {use: execute_command, with: {cwd: .}}}",
            "1:50 tools.mine.with.cwd: reaches the configuration",
        ),
        (
            "upstreams: [{name: a, base_url: 'http://a', api_key_file: secret/key}]\n"
            "tools: {execute_command: {cwd: secret}}",
            "reaches the file of upstreams[0].api_key_file",
        ),
    ],
)
def test_tool_paths_that_expose_gateway_files_to_writes_are_refused(site: Folder, text: str, problem: str) -> None:
    """The configuration, the store, secrets and plugins: each is as much as the gateway itself."""
    (site.path / "link").symlink_to(".")
    site.write("secret/key", "abcdefgh")
    (only,) = site.problems(text)
    assert problem.format(here=site.path) in only


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        (
            "tools: {file_operations: {roots: [.]}}",
            "roots[0]: reaches the configuration ('gateway.yaml') and the store",
        ),
        ("tools: {execute_command: {readable: [gateway.yaml]}}", "readable[0]: reaches the configuration"),
        ("store: sqlite:///data.db\ntools: {execute_sql: {}}", "tools.execute_sql.url: is the store of the gateway"),
    ],
)
def test_tool_paths_that_expose_gateway_files_to_reads_warn(site: Folder, text: str, warning: str) -> None:
    """When the configuration is checked and when the gateway starts."""
    (only,) = site.load(text).warnings
    assert only.startswith("gateway.yaml:") and warning in only
    assert "which a model can then read" in only and "plugins" not in only


@pytest.mark.parametrize(
    "text",
    [
        "tools: {file_operations: {roots: 5}}",
        "tools: {file_operations: {roots: [5], write: maybe}}",
        "tools: {execute_command: 5}",
        "tools: {execute_sql: {url: 5}}",
        'tools: {execute_sql: {url: "sqlite:///a\\0b"}}',
        "tools: {mine: {use: [file_operations]}}",
        "tools: []",
    ],
)
def test_malformed_path_value_is_refused(site: Folder, text: str) -> None:
    """By whoever reads the value."""
    assert site.problems(text)


def test_circular_symlinks_in_tool_paths_are_handled(site: Folder) -> None:
    """Neither an error of their own, nor a hang."""
    (site.path / "b").symlink_to("a")
    (site.path / "a").symlink_to("b")
    assert "tools.file_operations.roots[0]" in site.problem("tools: {file_operations: {roots: [a]}}")
    assert site.load("store: sqlite:///a\ntools: {file_operations: {roots: [files]}}").warnings == ()


@pytest.mark.parametrize(
    ("url", "file"),
    [
        ("sqlite:///x.db", "/here/x.db"),
        (Secret("sqlite:////var/x.db"), "/var/x.db"),
        ("sqlite:///:memory:", None),
        ("sqlite:///", None),
        ("postgresql://h/d", None),
        (5, None),
    ],
)
def test_store_file_resolves_relative_to_the_configuration(url: object, file: str | None) -> None:
    """Beside the configuration, unless it is an absolute path; a server has none."""
    assert get_store_file(url, folder=Path("/here")) == (Path(file) if file else None)


@pytest.mark.parametrize("rest", ["tools: {}", 'upstreams: [{name: up, base_url: "http://localhost:1/v1"}]'])
def test_a_configuration_without_tools_imports_no_plugin(folder: Folder, rest: str) -> None:
    """Reading it takes no longer, however many plugins there are. Only one that names neither has a tool to try."""
    folder.write("gateway.yaml", f"store: sqlite:///x.db\n{rest}\n")
    code = (
        "import sys; from pathlib import Path; from gateway.config import load; load(Path('gateway.yaml'), environ={}"
    )
    code += ", flags={}); print(*(m for m in sys.modules if m.startswith('gateway.plugins.')))"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() == []
