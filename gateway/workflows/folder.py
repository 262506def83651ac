"""The folder of workflows: one YAML file each, read and checked as strictly as the configuration itself.

A workflow calls tools and models in its user's name, so its file counts only where no other user can have written it.
"""

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from gateway.config.demo import is_demo_workflow
from gateway.config.document import Document
from gateway.config.messages import explain, suggest_nearest
from gateway.config.problems import ConfigError, KeyPath, Problem, quote_word
from gateway.config.reading.yaml_reader import parse
from gateway.config.schema.context import WorkflowsSettings
from gateway.config.schema.settings import Settings
from gateway.config.trusted_file import UnsafePluginError, read_trusted_file
from gateway.contracts.templates import Reference, iterate_references
from gateway.workflows.definition import Workflow

MAX_FILE_BYTES = 256 * 1024
MAX_FILES = 500
MAX_STEPS = 50
#: Names that mean something else in the paths of the pages.
RESERVED = frozenset({"categories"})
_SUFFIXES = (".yaml", ".yml")
_KINDS = ("tool", "model", "prompt")


@dataclass(frozen=True, slots=True)
class FoundWorkflows:
    """The workflows of a folder by name, in the order of their names, and warnings for its operator."""

    workflows: Mapping[str, Workflow]
    warnings: tuple[str, ...] = ()


def load_workflows(section: WorkflowsSettings) -> FoundWorkflows:
    """Return the workflows of the folder. Raises ConfigError with every problem in it.

    In the default folder, a file that is not safe to use, or that is another program's, is left out with a warning.
    A checkout that its group may write, or that has such a folder, must not prevent the gateway from starting.
    """
    folder, is_named = section.folder, "folder" in section.model_fields_set
    problems: list[Problem] = []
    warnings: list[str] = []
    files: dict[str, Document] = {}
    workflows: dict[str, Workflow] = {}
    for file in _list_files(folder, problems, is_named=is_named):
        try:
            content = read_trusted_file(file, folder=folder)
        except UnsafePluginError as unsafe:
            if is_named:
                problems.append(Problem("configuration", "workflows.folder", str(unsafe)))
            else:
                warnings.append(str(unsafe))
            continue
        document, workflow = _read_workflow(file, content)
        if not is_named and not (isinstance(document.tree, dict) and "steps" in document.tree):
            warnings.append(f"{file}: left out: it is no workflow (it has no steps)")
            continue
        try:
            document.raise_problems()
        except ConfigError as error:
            problems += error.problems
        if workflow is None:
            continue
        twin = files.setdefault(workflow.name, document)
        if twin is not document:
            place = document.locate(("name",))
            message = f"{twin.locate(('name',))} has this name as well: give one of the two another"
            problems.append(Problem(str(place), "name", message))
        workflows[workflow.name] = workflow
    if problems:
        raise ConfigError(tuple(problems))
    return FoundWorkflows(dict(sorted(workflows.items())), tuple(warnings))


def load_offered_workflows(settings: Settings) -> FoundWorkflows:
    """Return the workflows without first-visit workflows whose tools are off. Raises ConfigError."""
    found = load_workflows(settings.workflows)
    tools = settings.tools.all
    kept = {name: one for name, one in found.workflows.items() if not _is_of_first_visit(one, tools)}
    return FoundWorkflows(kept, found.warnings)


def _is_of_first_visit(workflow: Workflow, tools: Collection[str]) -> bool:
    return is_demo_workflow(workflow.category, workflow.tools, tools=tools)


def _list_files(folder: Path, problems: list[Problem], *, is_named: bool) -> list[Path]:
    """Return the workflow files of a folder in order, and add problems with the folder."""
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.name.endswith(_SUFFIXES))
    except OSError as error:
        if is_named or not isinstance(error, FileNotFoundError):
            message = f"cannot read the folder {str(folder)!r}: {error.strerror}: create it, or name another"
            problems.append(Problem("configuration", "workflows.folder", message))
        return []
    names = [name for name in names if not name.startswith(".")]
    if len(names) > MAX_FILES:
        message = f"{str(folder)!r} has more than {MAX_FILES} files: name a folder of workflows only"
        problems.append(Problem("configuration", "workflows.folder", message))
    return [folder / name for name in names[:MAX_FILES]]


def _read_workflow(file: Path, content: bytes) -> tuple[Document, Workflow | None]:
    """Return the file with its problems, and its workflow; None: it is not a valid one."""
    text, problem = "", None
    if len(content) > MAX_FILE_BYTES:
        problem = f"the file is larger than {MAX_FILE_BYTES} bytes: a workflow is a short text"
    else:
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            problem = f"not UTF-8 at byte {error.start}: save it as UTF-8"
    source = parse(text, environ=None)
    document = Document(source, file=str(file), folder=file.parent)
    if problem is not None:
        document.complain((), problem)
        return document, None
    if not source.complete:
        return document, None
    if not isinstance(document.tree, dict):
        document.complain((), "expected a workflow (lines of key: value, beginning with name:)")
        return document, None
    try:
        workflow = Workflow.model_validate(document.tree)
    except ValidationError as error:
        explain(document, error, root=Workflow)
        workflow = None
    _check_name(document)
    _check_parameters(document)
    _check_steps(document)
    return document, workflow


# The rules read the tree, so they report problems even when single values are wrong.


def _check_name(document: Document) -> None:
    name = document.get("name")
    if isinstance(name, str) and name in RESERVED:
        document.complain(
            ("name",), f"{quote_word(name)} is a page of its own (/workflows/{name}): choose another name"
        )


def _check_parameters(document: Document) -> None:
    """Report enum values and defaults that do not fit the type, and other contradictions."""
    for path in document.iterate_matches("parameters", "*"):
        if not isinstance(document.get(*path), dict):
            continue
        kind = document.get(*path, "type") or "string"
        enum, default = document.get(*path, "enum"), document.get(*path, "default")
        if enum == []:
            document.complain((*path, "enum"), "expected at least one value")
        for value in document.iterate_matches(*map(str, path), "enum", "*"):
            if not _fits_schema(document.get(*value), {"type": kind}):
                document.complain(value, f"does not fit the type {quote_word(str(kind))}")
        if default is None:
            continue
        if not _fits_schema(default, {"type": kind}):
            document.complain((*path, "default"), f"does not fit the type {quote_word(str(kind))}")
        elif isinstance(enum, list) and enum and not _fits_schema(default, {"enum": enum}):
            document.complain((*path, "default"), "is none of the values of enum")
        if document.get(*path, "required") is True:
            document.complain((*path, "default"), "a parameter that is required needs no default: keep one of the two")


def _fits_schema(value: object, schema: Mapping[str, object]) -> bool:
    """Return whether the value fits; an invalid schema or value counts as fitting: that is reported already."""
    from jsonschema_rs import is_valid  # 2 MB only with workflows

    try:
        return is_valid(dict(schema), value)
    except (ValueError, TypeError):
        return True


def _check_steps(document: Document) -> None:
    """Report missing, too many and equally named steps, and wrong references in them."""
    steps = document.get("steps")
    if steps == []:
        document.complain(("steps",), "expected at least one step")
    elif isinstance(steps, list) and len(steps) > MAX_STEPS:
        document.complain(("steps", MAX_STEPS), f"more than {MAX_STEPS} steps: make two workflows of it")
    parameters = [str(path[-1]) for path in document.iterate_matches("parameters", "*")]
    count = min(len(steps), MAX_STEPS) if isinstance(steps, list) else 0
    names = [document.get("steps", i, "name") for i in range(count)]
    for i, name in enumerate(names):
        path: KeyPath = ("steps", i)
        if isinstance(name, str) and name in names[:i]:
            twin = document.locate(("steps", names.index(name), "name"))
            document.complain((*path, "name"), f"the same name as at {twin}: each is used once")
        if isinstance(document.get(*path), dict):
            _check_step_kind(document, path)
            for place, text in _step_texts(document, path):
                for reference in dict.fromkeys(iterate_references(text)):
                    _check_reference(document, place, reference, parameters=parameters, names=names, number=i)


def _check_step_kind(document: Document, path: KeyPath) -> None:
    """Report a step that is not exactly one of tool, model and prompt."""
    given = [kind for kind in _KINDS if document.get(*path, kind) is not None]
    if not given:
        document.complain(path, "expected tool, model or prompt")
    elif len(given) > 1:
        document.complain((*path, given[1]), f"{' and '.join(given)} are given: keep one of them", key=True)
    elif given != ["tool"] and document.get(*path, "with") is not None:
        document.complain((*path, "with"), f"arguments go with a tool, and this is a {given[0]}: remove it", key=True)
    if document.get(*path, "with", "risk_level") is not None:
        message = "is a model's word, and no model calls this: write risk.rules in the configuration to decide yourself"
        document.complain((*path, "with", "risk_level"), message, key=True)


def _step_texts(document: Document, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    """Yield the texts of a step in which references count."""
    pending: list[KeyPath] = [(*path, "prompt"), (*path, "model"), (*path, "with")]
    while pending:
        place = pending.pop()
        value = document.get(*place)
        if isinstance(value, str):
            yield place, value
        elif isinstance(value, dict | list):
            pending += [*document.iterate_below(place)][::-1]


def _check_reference(
    document: Document, place: KeyPath, reference: Reference, *, parameters: list[str], names: list[object], number: int
) -> None:
    """Report a reference to a parameter that does not exist, or to a step that is not earlier."""
    written = f"{{{{{reference.kind}.{reference.name}}}}}"
    if reference.kind == "params":
        if reference.name not in parameters:
            hint = suggest_nearest(reference.name, parameters) or "; declare it under parameters"
            document.complain(place, f"{written}: there is no parameter of this name{hint}")
        return
    earlier = [name for name in names[:number] if isinstance(name, str)]
    if reference.name in earlier:
        return
    if reference.name in names:
        document.complain(
            place, f"{written}: a step sees the results of those before it, and this one is not: move it up"
        )
    else:
        hint = suggest_nearest(reference.name, earlier) or "; steps before this one: " + (
            ", ".join(map(quote_word, earlier)) or "none"
        )
        document.complain(place, f"{written}: there is no step of this name{hint}")
