"""`gateway plugin new`: a working plugin and its test, to start from."""

import keyword
import os
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, get_args

from gateway.cli import templates
from gateway.cli.commands import CommandError, Commands, add_group, add_reading
from gateway.config import LoadedConfig
from gateway.plugins import list_built_in_plugins
from gateway.registry.user_plugins import get_plugin_file

NewKind = Literal["stages", "tools", "assessors"]

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}\Z")


class PluginNewError(CommandError):
    """Nothing was written; the text states the reason and what to do."""


@dataclass(frozen=True, slots=True)
class Template:
    """Hold two files and the lines of gateway.yaml that use them.

    `NAME` stands for the plugin's name, `FOLDER` for the folder that it is written into.
    """

    plugin: str
    test: str
    use: str


def load_template(kind: NewKind) -> Template:
    """Read the three files of a kind in `gateway/cli/templates/`."""
    folder = resources.files(templates)
    plugin, test, use = (
        folder.joinpath(name).read_text("utf-8") for name in (f"{kind}.py", f"{kind}_test.py", f"{kind}.yaml")
    )
    return Template(plugin, test, use)


def add(commands: Commands) -> None:
    """Add `gateway plugin` and the command below it."""
    group = add_group(commands, "plugin", "write a plugin of your own")
    text = "write a working plugin into the folder of your plugins, and its test beside it"
    p = add_reading(group, "new", _write_configured, text, example="gateway plugin new stages polite")
    p.add_argument("kind", choices=get_args(NewKind), help="kind of the plugin")
    p.add_argument("name", metavar="NAME", help="a Python identifier: the name of the file, and of the plugin")


def _write_configured(loaded: LoadedConfig, *, kind: NewKind, name: str) -> Iterator[str]:
    return write_and_report(kind, name, folder=loaded.settings.plugins.folder)


def write_and_report(kind: NewKind, name: str, *, folder: Path) -> Iterator[str]:
    """Write both files and yield what to do with them. Raises PluginNewError."""
    if folder.is_relative_to(Path.cwd()):
        folder = folder.relative_to(Path.cwd())  # as a person here would write it
    plugin, test = write_plugin(kind, name, folder=folder)
    yield f"wrote {plugin}\nwrote {test}\n\nTry it: {_compose_trial(test)}\nIn gateway.yaml:\n"
    yield render_template(load_template(kind).use, name).rstrip("\n")


def _compose_trial(test: Path) -> str:
    """Return the command that runs a test with the Python of this gateway, in which pytest may have to be installed.

    It leaves out what other tests of the folder set up, as in a checkout: that may need further libraries.
    """
    here, python = Path.cwd(), Path(sys.executable)
    run = shlex.join([str(python.relative_to(here) if python.is_relative_to(here) else python), "-m"])
    alone = " -c /dev/null --noconftest" if any((place / "conftest.py").exists() for place in test.parents) else ""
    installation = f"{run} pip install pytest && " if find_spec("pytest") is None else ""
    return f"{installation}{run} pytest{alone} {shlex.quote(str(test))}"


def write_plugin(kind: NewKind, name: str, *, folder: Path) -> tuple[Path, Path]:
    """Write the plugin into `folder`, its test into `tests` beside it, over nothing that is there.

    Only the owner may write them, under any umask: others would not be imported. Raises PluginNewError.
    """
    _check_name(kind, name)
    template = load_template(kind)
    plugin = get_plugin_file(folder, kind, name)
    test = folder.parent / "tests" / folder.name / kind / f"test_{name}.py"
    try:
        for file in (plugin, test):
            if os.path.lexists(file):
                raise PluginNewError(f"{str(file)!r} is there already: choose another name, or move it away")
        for file, text in ((plugin, template.plugin), (test, template.test)):
            for missing in reversed([place for place in file.parents if not place.exists()]):
                missing.mkdir(mode=0o755)
            with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "w", encoding="utf-8") as opened:
                opened.write(render_template(text, name, folder=folder.name))
    except OSError as error:
        raise PluginNewError(f"cannot write {error.filename!r}: {error.strerror}") from None
    return plugin, test


def render_template(text: str, name: str, *, folder: str = "plugins") -> str:
    """Return the text of a template for the plugin `name` in a folder of that name."""
    return text.replace("NAME", name).replace("FOLDER", folder)


def _check_name(kind: NewKind, name: str) -> None:
    if not _NAME.match(name) or keyword.iskeyword(name):
        raise PluginNewError(
            f"{name!r} cannot be a plugin's name: write up to 40 of a-z, 0-9 and '_', beginning with a letter"
        )
    if name in list_built_in_plugins(kind):
        raise PluginNewError(f"there is a plugin {name!r} of kind {kind!r} already: choose another name")
