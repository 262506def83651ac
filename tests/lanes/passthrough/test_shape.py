"""The shape of the lane: no circle of imports, also for types, and no tower of classes."""

import ast
import importlib
import inspect
from graphlib import TopologicalSorter
from pathlib import Path

import gateway.lanes

LANES = Path(gateway.lanes.__file__).parent
FILES = {
    "gateway.lanes." + str(path.relative_to(LANES).with_suffix("")).replace("/", "."): path
    for path in LANES.rglob("*.py")
    if path.name != "__init__.py"
}
#: A class, and those that it stands on, with `object`.
LONGEST_LINE = 4


def imported(path: Path) -> set[str]:
    """The files of the lanes that a file imports: at once, in a function, or for types alone."""
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    named = {name for node in nodes for name in (node.module, *(f"{node.module}.{one.name}" for one in node.names))}
    return {name for name in named if name in FILES}


def test_lane_modules_have_no_import_cycles() -> None:
    TopologicalSorter({name: imported(path) for name, path in FILES.items()}).prepare()


def test_passthrough_classes_have_no_deep_inheritance() -> None:
    """Features are composed; none extends the exchange."""
    modules = [importlib.import_module(name) for name in FILES if name.startswith("gateway.lanes.passthrough.")]
    classes = [
        kind
        for module in modules
        for kind in vars(module).values()
        if inspect.isclass(kind) and kind.__module__ == module.__name__ and not getattr(kind, "_is_protocol", False)
    ]
    assert len(classes) > 30
    assert [kind.__name__ for kind in classes if len(kind.__mro__) > LONGEST_LINE] == []
