"""The rules of the house, checked: layers, sizes, purity (docs/architecture.md)."""

import ast
import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = sorted([*ROOT.glob("gateway/**/*.py"), *ROOT.glob("plugins/**/*.py")])
IDS = [str(path.relative_to(ROOT)) for path in FILES]

#: Each part may import itself and the parts to its right, and the leaves.
LAYERS = (
    "counters",
    "assess",
    "scan",
    "registry",
    "lanes",
    "pipeline",
    "tools",
    "runs",
    "routing",
    "mcp",
    "managed",
    "contracts",
    "store",
    "journal_sqlite",
    "journal",
    "config",
    "upstream",
    "confine",
    "sql",
    "wire",
    "errors",
)
LEAVES = {"caller", "logs", "metrics", "notify"}
#: What a plugin may import of ours.
FOR_PLUGINS = {"contracts", "managed", "store", "journal", "journal_sqlite", "mcp", "confine", "sql", "wire", "errors"}
#: The processes and the composition root, which may import everything below them.
TOP = {
    "__main__",
    "ask_approvals",
    "ask_remembered",
    "ask_runs",
    "ask_services",
    "ask_workflows",
    "audit_log",
    "cli",
    "cli_operator",
    "server",
    "supervisor",
    "worker",
    "sockets",
    "app",
    "assemble",
    "assemble_tools",
    "build",
    "describe",
    "explain",
    "exposition",
    "selftest",
    "handover",
    "healthcheck",
    "notices",
    "offline",
    "pages",
    "plugin_new",
    "remote",
    "terminal",
}
MAY_IMPORT_WEB = ("gateway/lanes/", "gateway/demo/", "gateway/app.py", "gateway/pages.py", "gateway/server.py")

#: Imports inside a function, each with the reason it carries in the code.
LAZY = {
    ("gateway/__main__.py", "gateway.cli"),
    ("gateway/app.py", "gateway.demo.app"),
    ("gateway/cli.py", "gateway.assess"),
    ("gateway/cli.py", "gateway.describe"),
    ("gateway/cli.py", "gateway.explain"),
    ("gateway/cli.py", "gateway.healthcheck"),
    ("gateway/cli.py", "gateway.offline"),
    ("gateway/cli.py", "gateway.plugin_new"),
    ("gateway/cli.py", "gateway.scan"),
    ("gateway/cli.py", "gateway.selftest"),
    ("gateway/cli.py", "gateway.server"),
    ("gateway/cli.py", "gateway.sockets"),
    ("gateway/cli_operator.py", "gateway.ask_approvals"),
    ("gateway/cli_operator.py", "gateway.ask_remembered"),
    ("gateway/cli_operator.py", "gateway.ask_runs"),
    ("gateway/cli_operator.py", "gateway.ask_services"),
    ("gateway/cli_operator.py", "gateway.ask_workflows"),
    ("gateway/cli_operator.py", "gateway.audit_log"),
    ("gateway/cli_operator.py", "gateway.remote"),
    ("gateway/mcp/session.py", "gateway.mcp.link"),
    ("plugins/tools/execute_sql.py", "gateway.sql.postgres"),
    ("plugins/tools/mcp.py", "gateway.mcp.http"),
    ("plugins/tools/mcp.py", "gateway.mcp.stdio"),
}
FILE_LINES, FUNCTION_LINES = 400, 60
#: Prints, as JSON, what the import of each given module printed. A fork is thirty times cheaper than a start.
IMPORT_EACH = """
import importlib, json, os, sys, traceback
import aiohttp.web, orjson, prometheus_client.core, pydantic, uvloop, yaml

printed = {}
for module in sys.argv[1:]:
    reads, writes = os.pipe()
    if os.fork() == 0:
        os.dup2(writes, 1)
        os.dup2(writes, 2)
        try:
            importlib.import_module(module)
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    os.close(writes)
    with open(reads) as said:
        printed[module] = said.read()
    os.wait()
print(json.dumps(printed))
"""


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def module_of(path: Path) -> str:
    return name(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def part(module: str) -> str:
    return module.split(".")[1] if module.startswith("gateway.") else module


def runtime_imports(node: ast.AST) -> list[str]:
    """The modules imported when the code runs: not under TYPE_CHECKING."""
    found: list[str] = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.Import):
            found += [alias.name for alias in child.names]
        elif isinstance(child, ast.ImportFrom) and child.module:
            found.append(child.module)
            found += [f"{child.module}.{alias.name}" for alias in child.names if child.module == "gateway"]
        found += runtime_imports(child)
    return found


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_imports_go_down_the_layers_only(path: Path) -> None:
    """A part imports only what stands below it."""
    if name(path).startswith("plugins/"):
        ours = {m for m in runtime_imports(tree(path)) if m.startswith(("gateway.", "plugins"))}
        assert {part(m) for m in ours} <= FOR_PLUGINS
        return
    own = part("gateway." + name(path).removeprefix("gateway/").removesuffix(".py").replace("/", "."))
    for module in runtime_imports(tree(path)):
        if not module.startswith("gateway.") or own in TOP or own in ("demo", "testing"):
            continue
        if module == "gateway.__version__":
            continue
        other = part(module)
        if other == own or other in LEAVES:
            continue
        assert own not in LEAVES, f"{name(path)}: a leaf imports {module}"
        assert other in LAYERS and LAYERS.index(other) > LAYERS.index(own), f"{name(path)} imports {module}"


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_files_and_functions_are_small(path: Path) -> None:
    """No file over 400 lines, no function over 60."""
    assert len(path.read_text().splitlines()) <= FILE_LINES
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < FUNCTION_LINES, f"{node.name} is too long"


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_no_globals_and_no_hidden_imports(path: Path) -> None:
    """No `global`; an import inside a function is one of the known, reasoned ones; a module says what it owns."""
    module = tree(path)
    assert ast.get_docstring(module), "the module's first line says what it owns"
    for node in ast.walk(module):
        assert not isinstance(node, ast.Global)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for inner in runtime_imports(node):
                assert (name(path), inner) in LAZY, f"{inner} is imported inside {node.name}"


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_aiohttp_web_stays_at_the_border(path: Path) -> None:
    """Only the lanes, the demo model and the composition root know aiohttp's server."""
    if not name(path).startswith(MAY_IMPORT_WEB):
        source = path.read_text()
        assert "aiohttp.web" not in source
        assert "from aiohttp import web" not in source


def test_the_passthrough_lane_knows_no_plugin_and_no_model() -> None:
    """Importing the passthrough lane loads neither pydantic nor orjson, nor configuration, plugins or the demo."""
    code = "import sys, gateway.lanes.passthrough; print('\\n'.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    modules = set(loaded.split())
    for forbidden in ("pydantic", "orjson", "yaml", "gateway.config", "gateway.demo", "plugins"):
        assert not any(m == forbidden or m.startswith(forbidden + ".") for m in modules), forbidden


def test_the_sdk_of_mcp_is_loaded_late() -> None:
    """A gateway without MCP servers needs neither the SDK nor what that needs, not even to know what a server is."""
    code = "import sys, plugins.tools.mcp, gateway.mcp.session, gateway.mcp.process; print('\\n'.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert not {"mcp", "mcp_types", "anyio", "httpx2"} & set(loaded.split())


def test_the_tests_of_mcp_do_not_hide_the_sdk() -> None:
    """`tests` is on the path: as a package, `tests/mcp` would be what `import mcp` finds."""
    assert not (ROOT / "tests" / "mcp" / "__init__.py").exists()


@pytest.fixture(scope="module")
def imported_alone() -> dict[str, str]:
    """What importing each module printed; every one in a process that has loaded other people's packages only."""
    modules = [module_of(path) for path in FILES if path.name != "__main__.py"]
    command = [sys.executable, "-W", "error", "-c", IMPORT_EACH, *modules]
    done = subprocess.run(command, capture_output=True, cwd=ROOT, check=True)
    printed: dict[str, str] = json.loads(done.stdout)
    return printed


@pytest.mark.parametrize("path", [path for path in FILES if path.name != "__main__.py"], ids=name)
def test_every_module_imports_alone(path: Path, imported_alone: dict[str, str]) -> None:
    """A module can be imported first and alone, and doing so prints nothing."""
    assert imported_alone[module_of(path)] == ""


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_every_module_has_its_test_file(path: Path) -> None:
    """tests/ mirrors the package."""
    if path.name in ("__init__.py", "__main__.py"):
        return
    relative = path.relative_to(ROOT / "gateway") if name(path).startswith("gateway/") else path.relative_to(ROOT)
    assert (ROOT / "tests" / relative.with_name(f"test_{path.name}")).exists()
