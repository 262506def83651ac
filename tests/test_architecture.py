"""The rules of the house, checked: layers, sizes, purity (docs/architecture.md)."""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parent.parent
#: What `gateway plugin new` writes is an operator's, and tested as that (tests/cli/test_plugin_new.py).
WRITTEN = "gateway/cli/templates/"
FILES = sorted(
    path
    for path in (*ROOT.glob("gateway/**/*.py"), *ROOT.glob("plugins/**/*.py"))
    if not str(path.relative_to(ROOT)).startswith(WRITTEN)
)

#: Each room may import itself and the rooms below it. What stands in one line: no one of another.
ROOMS = (
    ("__main__",),
    ("cli",),
    ("testing",),
    ("server",),
    ("console", "mcp_server"),
    ("api",),
    ("context", "agent"),
    ("model", "approvals"),
    ("runs",),
    ("mcp",),
    ("tools", "lanes"),
    ("workflows", "registry", "auth"),
    ("config",),
    ("dialects", "upstream", "usage"),
    ("http", "limits"),
    ("text",),
    ("telemetry", "plugins"),
    ("contracts", "sandbox", "jsontext", "net", "aio", "features", "demo"),
)
#: The rooms of a feature's files, by their roles: `console.py` and `console_charts.py` count as files of `console`.
ROLES = {
    "section": "config",
    "checks": "config",
    "observer": "lanes",
    "hook": "model",
    "pages": "api",
    "openapi": "api",
    "console": "console",
    "service": "server",
    "routes": "server",
    "command": "cli",
}
#: Most arrows from one room to another that it imports, and how many of them a failure lists.
ARROWS, ARROWS_LISTED = 190, 20
#: What a plugin may import of ours, besides what stands in its own folder.
FOR_PLUGINS = {"plugin", "sandbox", "aio"}
#: Largest room, as a part of `gateway/`, and most files of a folder.
ROOM_SHARE, FOLDER_FILES = 0.10, 24
MAY_IMPORT_WEB = {"api", "console", "context", "demo", "lanes", "mcp_server", "server"}

#: Imports inside a function, each with the reason it carries in the code.
LAZY = {
    ("gateway/approvals/view.py", "gateway.approvals.approval_struct"),
    ("gateway/__main__.py", "gateway.cli.main"),
    ("gateway/cli/doctor/command.py", "gateway.cli.doctor.examination"),
    ("gateway/cli/doctor/limit_sharing.py", "gateway.limits.valkey_quota"),
    ("gateway/model/apis/responses/api.py", "gateway.model.apis.responses.answer"),
    ("gateway/features/usage/observer_batch.py", "gateway.features.usage.observer_decoder"),
    ("gateway/usage/decompression.py", "gateway.usage.codings"),
    ("gateway/server/app.py", "gateway.demo.app"),
    ("gateway/features/tracing/service.py", "gateway.telemetry.tracing.export"),
    ("gateway/features/limits/service_sharing.py", "gateway.limits.valkey_quota"),
    ("gateway/server/console.py", "gateway.approvals.link_desk"),
    ("gateway/server/console.py", "gateway.approvals.links"),
    ("gateway/server/console.py", "gateway.console.assembly"),
    ("gateway/server/console.py", "gateway.console.middleware"),
    ("gateway/server/webhook_service.py", "gateway.approvals.links"),
    ("gateway/server/pages/page_registry.py", "gateway.server.pages.api"),
    ("gateway/server/pages/page_registry.py", "gateway.server.pages.mcp_clients"),
    ("gateway/server/resumption.py", "gateway.api.responses.response_store"),
    ("gateway/cli/commands.py", "gateway.config.load"),
    ("gateway/cli/commands.py", "gateway.config.messages"),
    ("gateway/cli/commands.py", "gateway.config.problems"),
    ("gateway/cli/commands.py", "gateway.registry.check"),
    ("gateway/cli/commands.py", "gateway.server.lanes.passthrough"),
    ("gateway/cli/commands.py", "gateway.workflows.folder"),
    ("gateway/cli/main.py", "asyncio"),
    ("gateway/cli/main.py", "gateway.approvals.escaping"),
    ("gateway/cli/main.py", "gateway.config"),
    ("gateway/cli/main.py", "gateway.cli.api_probe"),
    ("gateway/cli/main.py", "gateway.cli.assess"),
    ("gateway/cli/main.py", "gateway.cli.completion"),
    ("gateway/cli/main.py", "gateway.cli.check_config"),
    ("gateway/cli/main.py", "gateway.cli.replicas"),
    ("gateway/cli/main.py", "gateway.server.offline_gate"),
    ("gateway/cli/main.py", "gateway.server.dry_start"),
    ("gateway/cli/main.py", "gateway.cli.scan"),
    ("gateway/cli/main.py", "gateway.testing.selftest"),
    ("gateway/cli/operator/mcp.py", "gateway.cli.operator.mcp_bridge"),
    ("gateway/cli/main.py", "gateway.server.serve"),
    ("gateway/cli/main.py", "gateway.server.sockets"),
    ("gateway/workflows/folder.py", "jsonschema_rs"),
    ("gateway/mcp/server_supervisor.py", "gateway.mcp.connection"),
    ("gateway/mcp_server/lazy_endpoint.py", "gateway.mcp_server.assembly"),
    ("gateway/mcp_server/auth/bearers.py", "gateway.mcp_server.auth.tokens"),
    ("gateway/testing/contract.py", "gateway.registry.loader"),
    ("gateway/testing/contract.py", "pydantic"),
    ("gateway/testing/host.py", "gateway.registry.stores"),
    ("gateway/tools/schema.py", "jsonschema_rs"),
    ("gateway/tools/schema_check.py", "jsonschema_rs"),
    ("gateway/config/messages.py", "difflib"),
    ("gateway/tools/near_names.py", "difflib"),
    ("gateway/workflows/parameters.py", "jsonschema_rs"),
    ("gateway/mcp/service.py", "gateway.mcp.transport.http"),
    ("gateway/mcp/service.py", "gateway.mcp.transport.stdio"),
}
#: Files that only one file of another room uses, each for its reason; the rooms that compose the others may use any.
COMPOSING = {"__main__", "cli.main", "cli.commands", "server"}
ALONE = {
    "gateway/agent/output/whole_message.py": "beside the scanner of pieces; `gateway scan` reads both",
    "gateway/mcp/prompts_and_resources.py": "what servers write is read in one room, beside the blocks of content",
    "gateway/net/hosts.py": "handed on to plugins by the door",
    "gateway/text/memory_requests.py": "handed on to plugins by the door",
    "gateway/text/keywords.py": "handed on to plugins by the door",
    "gateway/text/ask_before_phrases.py": "what people type, beside the other phrases",
    "gateway/limits/admission.py": "admits by a limiter's rules, beside the limiter",
    "gateway/tools/openai_tools.py": "tools in the API's own format, beside the catalog",
}
FILE_LINES, FUNCTION_LINES, CLASS_FIELDS, CLASS_MRO = 600, 60, 15, 4
#: Classes with more fields, each for its reason.
WIDE = {
    "gateway/contracts/storage/journal.py: Approval": "the row of an approval",
    "gateway/contracts/storage/journal.py: DecisionWrite": "the row of a decision",
    "gateway/contracts/storage/journal.py: StoredRun": "the row of a run",
    "gateway/contracts/storage/journal.py: StoredStep": "the row of a step",
    "gateway/contracts/storage/usage.py: StoredUsage": "the row of a sum",
    "gateway/approvals/approval_struct.py: ApprovalView": "the JSON of an approval",
    "gateway/api/mcp_services.py: ServiceView": "the JSON of a service",
    "gateway/api/views.py: StepView": "the JSON of a step",
    "gateway/auth/key_view.py: KeyView": "the JSON of a key",
    "gateway/config/schema/http.py: LimitsSettings": "a section of the configuration",
    "gateway/config/schema/mcp.py: McpServer": "a section of the configuration",
    "gateway/config/schema/settings.py: Settings": "the configuration",
    "gateway/config/schema/upstreams.py: UpstreamSettings": "a section of the configuration",
    "gateway/mcp/server_facts.py: Config": "the settings of an MCP server, as the configuration has them",
    "gateway/lanes/aiohttp_adapter.py: LocalTransaction": "the state of aiohttp's side and of the connection's side",
    "gateway/lanes/listener.py: Listener": "what all connections of a listener share, read at each request",
    "gateway/lanes/passthrough/request_relay.py: RequestRelay": "slots of the hot path, one read each",
    "gateway/limits/counter.py: Counter": "the arrays of a window, one read each",
    "gateway/plugin/shell/options.py: CommandSpec": "the row of a table of commands, which names what a command has",
}
#: Classes of more parts, each for its reason.
COMBINED = {
    "gateway.plugins.stores.postgresql.store.PostgresqlStore": "one pool, its methods by subject, as SqliteStore",
    "gateway.plugins.stores.sqlite.SqliteStore": "one connection, its methods by subject; no part overrides another",
}


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def module_of(path: Path) -> str:
    module = name(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return f"gateway.{module}" if module.startswith("plugins") else module


MODULES = {module_of(path): path for path in FILES}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree(path)))


def docstring_lines(path: Path) -> int:
    """Return the number of lines of the module's docstring."""
    first = tree(path).body[0] if ast.get_docstring(tree(path)) is not None else None
    return 0 if first is None else (first.end_lineno or 0) - first.lineno + 1


def part(module: str) -> str:
    """The room of a module; of a file of a feature, the one of its role."""
    if not module.startswith("gateway."):
        return module
    _, room, *below = module.split(".")
    if room == "features" and len(below) == 2:
        return ROLES[below[1].partition("_")[0]]
    return room


def runtime_imports(node: ast.AST, *, of_functions: bool = True) -> list[str]:
    """The modules imported when the code runs: not under TYPE_CHECKING."""
    found: list[str] = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            continue  # an expression imports nothing
        if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and not of_functions:
            continue
        if isinstance(child, ast.Import):
            found += [alias.name for alias in child.names]
        elif isinstance(child, ast.ImportFrom) and not child.level and child.module:
            wholes = [f"{child.module}.{alias.name}" for alias in child.names]
            found += [whole if whole in MODULES or child.module == "gateway" else child.module for whole in wholes]
        found += runtime_imports(child, of_functions=of_functions)
    return found


def wrong_imports(path: Path) -> list[str]:
    """The modules that this file may not import."""
    ours = [m for m in runtime_imports(tree(path)) if m.startswith("gateway.") and m != "gateway.__version__"]
    if name(path).startswith("plugins/"):
        return [m for m in ours if part(m) not in FOR_PLUGINS]
    own = part(module_of(path))
    by_name = [m for m in ours if m.startswith("gateway.plugins.")]
    return by_name + [m for m in ours if not may_import(own, part(m))]


def may_import(own: str, other: str) -> bool:
    """A room imports itself and what stands below it; the door to plugins what it hands on."""
    if other == own:
        return True
    if other == "plugin":
        return False
    return own == "plugin" or floor(own) < floor(other)


def floor(room: str) -> int:
    return next(i for i, rooms in enumerate(ROOMS) if room in rooms)


def test_imports_follow_the_package_layers() -> None:
    """A room imports only what stands below it; a plugin the door, and its own folder."""
    wrong = {name(path): wrong_imports(path) for path in FILES}
    assert {path: modules for path, modules in wrong.items() if modules} == {}


def test_files_and_functions_are_small() -> None:
    """No file over 600 lines beside its module's docstring, no function over 60.

    A theory of operation at the head of a hard file must not be a reason to shorten its code, or to leave it out.
    """
    files = {name(path): len(path.read_text().splitlines()) - docstring_lines(path) for path in FILES}
    assert {path: lines for path, lines in files.items() if lines > FILE_LINES} == {}
    functions = {f"{name(path)}: {node.name}": (node.end_lineno or 0) - node.lineno for path, node in all_functions()}
    assert {function: lines for function, lines in functions.items() if lines >= FUNCTION_LINES} == {}


def test_classes_have_few_fields() -> None:
    """An object with more facts is several, composed: nobody keeps twenty in mind."""
    wide = {f"{name(path)}: {node.name}" for path, node in all_classes() if len(fields_of(node)) > CLASS_FIELDS}
    assert wide == WIDE.keys()


def all_classes() -> Iterator[tuple[Path, ast.ClassDef]]:
    """All classes, but those of folders that are being rewritten."""
    for path in FILES:
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                yield path, node


def fields_of(kind: ast.ClassDef) -> set[str]:
    """The fields that a class declares, its slots, and the attributes that its methods set."""
    declared = [node.target for node in kind.body if isinstance(node, ast.AnnAssign)]
    found = {target.id for target in declared if isinstance(target, ast.Name)}
    for node in kind.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__slots__" for t in node.targets):
            found |= {one.value for one in ast.walk(node.value) if isinstance(one, ast.Constant)}
    for method in kind.body:
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
            found |= {
                node.attr
                for node in ast.walk(method)
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
                if isinstance(node.value, ast.Name) and node.value.id == "self"
            }
    return found


def test_classes_have_shallow_inheritance() -> None:
    """Of our own classes a class has four at most, itself included; protocols do not count."""
    modules = [module for module, path in MODULES.items() if path.name != "__main__.py"]
    code = (
        "import importlib, sys\n"
        "for module in sys.argv[1:]:\n"
        "    for kind in vars(importlib.import_module(module)).values():\n"
        "        if isinstance(kind, type) and kind.__module__ == module:\n"
        "            ours = [k for k in kind.__mro__ if k.__module__.startswith('gateway.')]\n"
        "            print(f'{module}.{kind.__name__}', sum(not getattr(k, '_is_protocol', False) for k in ours))"
    )
    command = [sys.executable, "-c", code, *modules]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.splitlines()
    deep = {kind for kind, _, n in (line.rpartition(" ") for line in lines) if int(n) > CLASS_MRO}
    assert {kind for kind in deep if not kind.startswith("gateway.lanes.passthrough.")} == COMBINED.keys()


def test_packages_and_folders_stay_below_their_size_limit() -> None:
    """A room that grows beyond a tenth of the house is two, and a folder with so many files is a drawer."""
    core = [path for path in FILES if name(path).startswith("gateway/")]
    lines = Counter[str]()
    for path in core:
        lines[part(module_of(path))] += len(path.read_text().splitlines())
    assert {room: n for room, n in lines.items() if n > ROOM_SHARE * lines.total()} == {}
    folders = Counter(str(path.parent.relative_to(ROOT)) for path in FILES)
    assert {folder: n for folder, n in folders.items() if n > FOLDER_FILES} == {}


def test_module_with_a_single_user_is_placed_in_its_package() -> None:
    """Where only one file of another room uses it, it belongs into that room, unless a reason is known."""
    users: dict[str, set[str]] = {}
    for path in FILES:
        for node in nodes(path):
            for module in imported(node) & MODULES.keys():
                users.setdefault(module, set()).add(module_of(path))
    alone = {
        name(MODULES[module])
        for module, (user, *others) in users.items()
        if not others and part(module) not in {part(user), "plugin", "sandbox", "demo", "testing"}
        if part(user) not in COMPOSING and user.removeprefix("gateway.") not in COMPOSING
        if name(MODULES[module]).startswith("gateway/") and MODULES[module].name not in ("__init__.py", "__main__.py")
    }
    assert alone == ALONE.keys()


def imported(node: ast.AST) -> set[str]:
    """The modules that an import names, also for types."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if isinstance(node, ast.ImportFrom) and not node.level and node.module:
        return {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return set()


def test_plugins_do_not_import_each_other() -> None:
    """A file finds those of its own folder, by relative imports."""
    wrong = [
        name(path)
        for path in FILES
        for node in nodes(path)
        if isinstance(node, ast.ImportFrom)
        and node.level > (1 if name(path).startswith("plugins/") and name(path).count("/") > 2 else 0)
    ]
    assert wrong == []


def all_functions() -> Iterator[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for path in FILES:
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield path, node


def test_modules_use_no_global_statement() -> None:
    """No `global` statement."""
    assert [name(path) for path in FILES for node in nodes(path) if isinstance(node, ast.Global)] == []


def test_function_level_imports_are_allow_listed() -> None:
    """An import inside a function is one of the known, reasoned ones."""
    hidden = {(name(path), module) for path, node in all_functions() for module in runtime_imports(node)}
    assert hidden - LAZY == set()


def test_every_module_has_a_docstring() -> None:
    """A module's first line says what it owns."""
    assert [name(path) for path in FILES if not ast.get_docstring(tree(path))] == []


def test_docstrings_name_their_subject() -> None:
    """None begins with a relative clause; ruff (D401) looks after the verbs of functions."""
    riddle = re.compile(r"(?:What|Who|Whoever|Nobody|Which|Those|Whether|How|Where)\b")
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    found = [
        f"{name(path)}: {text}"
        for path in (*FILES, *ROOT.glob("bench/*.py"))
        for node in nodes(path)
        if isinstance(node, kinds) and (text := ast.get_docstring(node)) and riddle.match(text)
    ]
    assert found == []


def test_aiohttp_web_is_imported_only_at_the_border() -> None:
    """Only the client's side, the demo model and the composition root know aiohttp's server."""
    inside = [path for path in FILES if part(module_of(path)) not in MAY_IMPORT_WEB]
    assert [name(path) for path in inside if re.search(r"aiohttp\.web|from aiohttp import web", path.read_text())] == []


def test_passthrough_lane_imports_no_plugin_and_no_model() -> None:
    """Importing the passthrough lane loads neither pydantic nor orjson, nor configuration, plugins or the demo."""
    code = "import sys, gateway.lanes.passthrough.exchange; print('\\n'.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    modules = set(loaded.split())
    for forbidden in ("pydantic", "orjson", "yaml", "gateway.config", "gateway.demo", "gateway.plugins"):
        assert not any(m == forbidden or m.startswith(forbidden + ".") for m in modules), forbidden


#: The form of chat completions as a client reads it, and files besides its dialect that name it, each for its reason.
OF_CHAT = re.compile(r"chat\.completion(?:\.chunk)?|\[DONE\]|chatcmpl-|chat/completions")
MAY_NAME_CHAT = {
    "gateway/api/openapi/schemas.py": "describes the answer in GET /openapi.json",
    "gateway/api/front_page.py": "shows an example request",
    "gateway/config/upstreams.py": "finds an endpoint at the end of an upstream's base URL",
    "gateway/model/apis/chat/answer.py": "reads a model's stream",
    "gateway/contracts/model_apis.py": "names the path of the model call",
    "gateway/dialects/responses/events.py": "ends a stream with the same word",
    "gateway/dialects/message_identity.py": "finds the ids that model servers give to calls",
    "gateway/lanes/classify.py": "names the endpoint in an error message",
    "gateway/lanes/passthrough/last_event.py": "knows the word that ends a stream",
    "gateway/lanes/passthrough/repetition.py": "knows the paths of upstreams that only compute",
}


def test_only_allowed_files_name_chat_completion_fields() -> None:
    """The core, the loop and the runs name no form of chat completions; a second dialect is new files only."""
    found = {
        name(path)
        for path in FILES
        if not name(path).startswith(("gateway/dialects/chat/", "gateway/demo/", "gateway/testing/"))
        for text in texts_of(tree(path))
        if OF_CHAT.search(text)
    }
    assert found == MAY_NAME_CHAT.keys()


def texts_of(whole: ast.Module) -> Iterator[str]:
    """The constants of a file, text and bytes, without its docstrings."""
    told = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    first = [node.body[0] for node in ast.walk(whole) if isinstance(node, told) and node.body]
    docstrings = {node.value for node in first if isinstance(node, ast.Expr)}
    for node in ast.walk(whole):
        if isinstance(node, ast.Constant) and node not in docstrings and isinstance(node.value, str | bytes):
            yield node.value if isinstance(node.value, str) else node.value.decode("latin-1")


def test_a_dialect_is_imported_by_its_table_only() -> None:
    """The description of the API names the roles of chats. Pages of a stateful dialect import that dialect's package.

    Nothing else imports one.
    """
    users = {
        name(path): found
        for path in FILES
        if not name(path).startswith("gateway/dialects/")
        if (found := {m for m in runtime_imports(tree(path)) if m.startswith("gateway.dialects.") and m.count(".") > 2})
    }
    stored = {user for user in users if user.startswith("gateway/api/responses/")}
    assert all(m.startswith("gateway.dialects.responses.") for user in stored for m in users.pop(user))
    assert users == {"gateway/api/openapi/schemas.py": {"gateway.dialects.chat.body"}}


def test_json_schema_validator_is_loaded_lazily() -> None:
    """A gateway whose models call nothing, and without workflows, goes without the JSON Schema validator."""
    code = "import sys, gateway.server.app, gateway.server.context_lane, gateway.config; print('\\n'.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert "gateway.tools.schema" in loaded.split() and "jsonschema_rs" not in loaded.split()


def test_mcp_sdk_is_loaded_lazily() -> None:
    """A gateway without MCP servers needs neither the SDK nor what that needs, not even to know what a server is."""
    modules = "gateway.mcp.service, gateway.mcp.server_supervisor, gateway.mcp.transport.process"
    code = f"import sys, {modules}; print('\\n'.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert not {"mcp", "mcp_types", "anyio", "httpx2"} & set(loaded.split())


def test_the_tests_of_mcp_do_not_hide_the_sdk() -> None:
    """`tests` is on the path: as a package, `tests/mcp` would be what `import mcp` finds."""
    assert not (ROOT / "tests" / "mcp" / "__init__.py").exists()


def test_module_imports_have_no_cycles() -> None:
    """No import leads back to the module that began it: every module is whole before another uses it."""
    graph = {
        module: MODULES.keys() & runtime_imports(tree(path), of_functions=False) for module, path in MODULES.items()
    }
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the modules


def test_modules_and_packages_have_no_dependency_cycles() -> None:
    """Not over imports for types and in functions either: what two need lies below both."""
    graph = {
        module: MODULES.keys() & {found for node in nodes(path) for found in exactly_imported(node)} - {module}
        for module, path in MODULES.items()
    }
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the modules
    rooms: dict[str, set[str]] = {}
    for room, other in arrows_between_rooms():
        if "plugin" not in (room, other):  # the door hands on parts of others
            rooms.setdefault(room, set()).add(other)
    TopologicalSorter(rooms).prepare()


def test_rooms_have_few_arrows_between_them() -> None:
    """An arrow that is one import wide is the first to go: into contracts/, or to the one who composes both rooms."""
    arrows = arrows_between_rooms()
    narrowest = sorted(arrows.items(), key=lambda arrow: (len(arrow[1]), arrow))[:ARROWS_LISTED]
    listed = [f"{room} -> {other}: {', '.join(sorted(imports))}" for (room, other), imports in narrowest]
    assert len(arrows) <= ARROWS, "\n".join([f"{len(arrows)} arrows, at most {ARROWS}. The narrowest ones:", *listed])


def arrows_between_rooms() -> dict[tuple[str, str], set[str]]:
    """Return the imports behind each pair of a room and another that it imports, also for types and in functions.

    Files of `plugins/` are in no room.
    """
    arrows: dict[tuple[str, str], set[str]] = {}
    for module, path in MODULES.items():
        if name(path).startswith("gateway/"):
            for found in MODULES.keys() & {found for node in nodes(path) for found in exactly_imported(node)}:
                if part(found) not in (part(module), "gateway"):  # which has the version
                    arrows.setdefault((part(module), part(found)), set()).add(f"{module} imports {found}")
    return arrows


def exactly_imported(node: ast.AST) -> set[str]:
    """The modules that an import names, without the package of a module that it names."""
    if isinstance(node, ast.ImportFrom) and not node.level and node.module:
        wholes = {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        return {whole if whole in MODULES else node.module for whole in wholes.values()}
    return imported(node)


def test_imports_print_nothing_and_warn_of_nothing() -> None:
    """One process imports every module."""
    modules = [module for module in MODULES if not module.endswith(".__main__")]
    code = "import importlib, sys\nfor module in sys.argv[1:]: importlib.import_module(module)"
    command = [sys.executable, "-W", "error", "-c", code, *modules]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_module_has_its_test_file() -> None:
    """tests/ mirrors the rooms; what a folder's `__init__` is, `test_FOLDER.py` tests."""
    tested = [path for path in FILES if path.name != "__main__.py" and not is_face(path)]
    assert [name(path) for path in tested if not file_of_tests(path).exists()] == []


def is_face(path: Path) -> bool:
    """A package, or a module, that only names what stands elsewhere."""
    if path.parent == ROOT / "gateway" / "plugin" and path.name in (
        "__init__.py",
        "settings.py",
        "templates.py",
        "text.py",
    ):
        return True
    return (path.name == "__init__.py" and not name(path).startswith("plugins/")) or len(tree(path).body) == 1


def file_of_tests(path: Path) -> Path:
    relative = path.relative_to(ROOT / "gateway") if name(path).startswith("gateway/") else path.relative_to(ROOT)
    stem = relative.parent.name if path.name == "__init__.py" else path.stem
    return ROOT / "tests" / relative.with_name(f"test_{stem}.py")
