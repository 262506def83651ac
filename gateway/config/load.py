"""Reads the configuration: defaults, below the file, below the environment, below the flags; all problems at once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from gateway.config.checks import check, set_aside_foreign_keys
from gateway.config.document import Draft
from gateway.config.messages import explain
from gateway.config.problems import ConfigError, Problem
from gateway.config.reach import check_places
from gateway.config.reading.overrides import apply_flags, apply_variables
from gateway.config.reading.secret_files import read_companions
from gateway.config.reading.yaml_reader import MAX_FILE_BYTES, Source, parse, read_text
from gateway.config.schema.context import DEFAULT_CHAINS, DEFAULT_PROMPTS
from gateway.config.schema.settings import Settings
from gateway.config.values.value import JsonObject

#: Said of a file that holds no value.
EMPTY = "the file is empty: every key has its default; write {} if that is meant"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration that can be used. Relative paths of the file begin at `folder`; `file` None: there was none.

    `text` is what the file held, secrets that are written into it included; `empty`: that was no value at all.
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
    checks: Sequence[Callable[[Draft], None]] = (),
) -> Loaded:
    """The configuration of `path` (None: no file), variables and flags; ConfigError carries everything wrong with it.

    `flags` may hold listen, port, workers and upstream; None stands for a flag that was not given. `checks` know what
    the configuration alone does not, such as plugins; they run last.
    """
    folder = _folder_of(path)
    text = None if path is None else _text_of(path)
    draft = _read(path, text, environ=environ, folder=folder)
    empty = not draft.tree and path is not None
    _add_defaults(draft)
    apply_variables(draft, environ, root=Settings)
    apply_flags(draft, flags)
    set_aside_foreign_keys(draft)
    read_companions(draft)
    settings: Settings | None = None
    try:
        settings = Settings.model_validate(draft.tree, context={"folder": folder})
    except ValidationError as error:
        explain(draft, error, root=Settings)
    check(draft)
    check_places(draft, file=path)
    for further in checks:
        further(draft)
    draft.raise_problems()
    assert settings is not None
    return Loaded(settings=settings, warnings=draft.warnings(), file=path, folder=folder, text=text, empty=empty)


def _folder_of(path: Path | None) -> Path:
    try:
        return (path.parent if path else Path()).absolute()
    except OSError:
        raise ConfigError((Problem("configuration", "", "the current folder is gone: start in another one"),)) from None


def _text_of(path: Path) -> str:
    try:
        return read_text(path, limit_bytes=MAX_FILE_BYTES)
    except ValueError as error:
        raise ConfigError((Problem(str(path), "", str(error)),)) from None


def _read(path: Path | None, text: str | None, *, environ: Mapping[str, str], folder: Path) -> Draft:
    """The file as a draft. A file that cannot be read to its end says nothing certain, so it is reported alone."""
    if path is None or text is None:
        return Draft(Source(tree={}), file="configuration", folder=folder)
    source = parse(text, environ=environ)
    draft = Draft(source, file=str(path), folder=folder)
    if source.complete and source.tree is None:
        draft.tree = {}
        draft.warn((), EMPTY)
    elif source.complete and not isinstance(source.tree, dict):
        draft.complain((), "expected a section (lines of key: value)")
    if not isinstance(draft.tree, dict):
        draft.raise_problems()
    return draft


def _add_defaults(draft: Draft) -> None:
    """The chain and the prompt that exist undeclared, so that variables can change parts of them."""
    for key, default in (("chains", DEFAULT_CHAINS), ("prompts", DEFAULT_PROMPTS)):
        _add_default(draft, key, default)


def _add_default(draft: Draft, key: str, default: JsonObject) -> None:
    declared = draft.get(key)
    if isinstance(draft.tree, dict) and (declared is None or isinstance(declared, dict)):
        draft.tree = {**draft.tree, key: {**default, **(declared or {})}}
