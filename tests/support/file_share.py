"""The files that one of pytest-xdist's processes collects and runs, where `--dist each` has each run what it collected.

To collect all tests takes as long as to run a tenth of them: each file is imported by one process only.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

#: What takes longest (`--durations`), the longest first: dealt out before all others, so that no process gets most.
LONG: Final = (
    "mcp/transport/test_stdio.py",
    "crash/test_campaign.py",
    "cli/test_plugin_new.py",
    "sandbox/test_memory.py",
    "plugins/stores/sqlite/test_sqlite.py",
    "sandbox/test_launcher.py",
    "mcp_server/test_workflow_tools.py",
    "e2e/test_mcp_faults.py",
    "e2e/test_mcp_hostile.py",
    "mcp/test_server_supervisor.py",
    "server/test_supervisor.py",
    "plugins/tools/execute_command/test_harmless_git.py",
    "mcp_server/test_tool_calls.py",
    "sandbox/test_read_only.py",
    "mcp/transport/test_messages.py",
    "sandbox/test_confinement.py",
    "cli/test_assess.py",
    "faults/test_data.py",
    "plugins/stores/sqlite/test_sqlite_journal.py",
    "e2e/test_hidden_worlds.py",
    "model_servers/test_rooms.py",
    "mcp_server/test_endpoint.py",
    "agent/output/test_scanner.py",
    "crash/test_disk.py",
)
_TESTS: Final = Path(__file__).parents[1]
_RANKS: Final = {_TESTS / name: rank for rank, name in enumerate(LONG)}


def divide_arguments(arguments: Sequence[str], worker: int, workers: int) -> tuple[list[str], frozenset[Path]]:
    """Return the arguments of one of several processes, and the files that others collect from the same folders."""
    folders = [argument for argument in arguments if Path(argument).is_dir()]
    named = [argument for argument in dict.fromkeys(arguments) if argument not in folders]
    files = {file.absolute() for folder in folders for file in Path(folder).rglob("test_*.py")}
    ordered = sorted(files, key=lambda file: (_RANKS.get(file, len(LONG)), file))
    others = frozenset(file for place, file in enumerate(ordered) if place % workers != worker)
    return [*folders, *named[worker::workers]], others
