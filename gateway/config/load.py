"""The loader of the configuration: defaults, below the file, below the environment, below the flags.

It reports all problems at once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import ValidationError

from gateway.config.checks import check, drop_foreign_keys
from gateway.config.demo import add_demo_tools
from gateway.config.document import Document
from gateway.config.feature_checks import collect_checks
from gateway.config.file_access import find_loose_access
from gateway.config.messages import advise, explain
from gateway.config.path_exposure_check import check_places
from gateway.config.problems import ConfigError, Problem
from gateway.config.reading.overrides import apply_flags, apply_variables
from gateway.config.reading.secret_files import read_companions
from gateway.config.reading.yaml_reader import MAX_FILE_BYTES, YamlSource, parse, read_text
from gateway.config.schema.context import DEFAULT_CHAINS, DEFAULT_PROMPTS
from gateway.config.schema.settings import Settings

#: The message about a file that holds no value.
EMPTY = "the file is empty: every key has its default; write {} if that is meant"


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A configuration that can be used. Relative paths of the file begin at `folder`.

    `file` is None if there was none. `text` is the content of the file, including secrets that are written into it.
    `empty`: the file had no value at all.
    """

    settings: Settings
    warnings: tuple[str, ...]
    file: Path | None
    folder: Path
    text: str | None = field(default=None, repr=False)
    empty: bool = False


def load(
    path: Path | None,
    *,
    environ: Mapping[str, str],
    flags: Mapping[str, object],
    checks: Sequence[Callable[[Document], None]] = (),
) -> LoadedConfig:
    """Load the configuration from `path` (None: no file), variables and flags.

    `flags` may have listen, port, workers and upstream. None stands for a flag that was not given. `checks` are further
    checks that need more than the configuration alone, such as the plugins. They run last.

    Raises: ConfigError with every problem found.
    """
    folder = _get_folder(path)
    text = None if path is None else _read_config(path)
    document = _read_draft(path, text, environ=environ, folder=folder)
    empty = not document.tree and path is not None
    if path is not None and (loose := find_loose_access(path)) is not None:
        document.warn((), loose)
    _add_defaults(document)
    apply_variables(document, environ, root=Settings)
    apply_flags(document, flags)
    add_demo_tools(document)
    drop_foreign_keys(document)
    read_companions(document)
    settings: Settings | None = None
    try:
        settings = Settings.model_validate(document.tree, context={"folder": folder})
    except ValidationError as error:
        explain(document, error, root=Settings)
    check(document)
    check_places(document)
    for further in checks:
        further(document)
    document.raise_problems()
    assert settings is not None
    for feature in collect_checks():
        if feature.check_settings is not None:
            feature.check_settings(document, settings)
    return LoadedConfig(
        settings=settings, warnings=document.list_warnings(), file=path, folder=folder, text=text, empty=empty
    )


def _get_folder(path: Path | None) -> Path:
    try:
        return (path.parent if path else Path()).absolute()
    except OSError:
        raise ConfigError((Problem("configuration", "", "the current folder is gone: start in another one"),)) from None


def _read_config(path: Path) -> str:
    try:
        return read_text(path, limit_bytes=MAX_FILE_BYTES)
    except ValueError as error:
        raise ConfigError((Problem(str(path), "", str(error)),)) from None


def _read_draft(path: Path | None, text: str | None, *, environ: Mapping[str, str], folder: Path) -> Document:
    """Read the file into a draft. A file that cannot be read to its end is reported alone: the rest is uncertain."""
    if path is None or text is None:
        return Document(YamlSource(tree={}), file="configuration", folder=folder)
    source = parse(text, environ=environ)
    source.faults = [
        replace(fault, message=advise(fault.message, fault.path, root=Settings)) for fault in source.faults
    ]
    document = Document(source, file=str(path), folder=folder, path=path)
    if source.complete and source.tree is None:
        document.tree = {}
        document.warn((), EMPTY)
    elif source.complete and not isinstance(source.tree, dict):
        document.complain((), "expected a section (lines of key: value)")
    if not isinstance(document.tree, dict):
        document.raise_problems()
    return document


def _add_defaults(document: Document) -> None:
    """Add the chain and the prompt that exist undeclared, so that variables can change parts of them."""
    for key, default in (("chains", DEFAULT_CHAINS), ("prompts", DEFAULT_PROMPTS)):
        declared = document.get(key)
        if isinstance(document.tree, dict) and (declared is None or isinstance(declared, dict)):
            document.tree = {**document.tree, key: {**default, **(declared or {})}}
