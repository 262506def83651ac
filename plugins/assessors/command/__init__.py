"""The assessor of `execute_command`: a plain text of sh in which every command and option is known to be harmless.

`literal` allows the requirement's own list, `standard` the longer everyday list. `hardened` also sends commands to a
person that read secrets, never end, wait for input, or print the whole machine.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from gateway.plugin import Host, Json, Plugin, Verdict
from gateway.plugin.paths import find_unseen
from gateway.plugin.shell.classifier import ClassifiedCommand, read_command
from gateway.plugin.shell.objection import Objection
from gateway.plugin.shell.parser import Script

from .hardening import check_hardened

Profile = Literal["literal", "standard", "hardened"]

#: Longest path Linux takes (PATH_MAX).
_LONGEST_PATH = 4096

#: Arguments besides `command` that do not change what it does.
_BESIDE = {"timeout": (int, float), "background": (bool,), "description": (str,)}


class Config(BaseModel):
    """The options of the assessor of commands."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    profile: Profile = Field(default="standard", description="Which commands are known to be harmless.")


class CommandAssessor:
    """The assessor's verdicts on the arguments of `execute_command`."""

    def __init__(self, profile: Profile) -> None:
        self._literal = profile == "literal"
        self._hardened = profile == "hardened"

    def assess(self, arguments: Json) -> Verdict:
        """Return auto (whitelist) for harmless commands, confirm (default) for everything else."""
        try:
            self._judge_command(arguments)
        except Objection as objection:
            return Verdict("confirm", "default", f"command.{objection.rule}", str(objection))
        return Verdict("auto", "whitelist", "command.reading", "Every command in it only reads or computes.")

    def _judge_command(self, arguments: Json) -> None:
        command = arguments.get("command")
        if not isinstance(command, str):
            raise Objection("shape", "The argument 'command' is not a text.")
        folder = ""
        for name, value in arguments.items():
            if name == "command" or value is None:
                continue
            if name == "cwd":
                folder = _read_folder(value)
                continue
            if name not in _BESIDE or not isinstance(value, _BESIDE[name]):
                raise Objection("shape", f"The argument {name!r} may change what the command does.")
            if self._hardened and name == "background" and value:
                raise Objection("background", "The command would go on in the background.")
        script, readings = read_command(command)
        if self._literal:
            _require_core(script, readings)
        if self._hardened:
            check_hardened(readings, looping="construct" in script.extras, folder=folder)


def _read_folder(value: object) -> str:
    """Return the folder that a call names for its command. The built-in tool has none; a tool that adds one may."""
    if not isinstance(value, str) or len(value) > _LONGEST_PATH or "\n" in value or find_unseen(value):
        raise Objection("shape", "The argument 'cwd' is not a plain path.")
    return value


def _require_core(script: Script, readings: tuple[ClassifiedCommand, ...]) -> None:
    """Raise Objection for everything that is not on the requirement's own list."""
    if script.extras:
        raise Objection("not_plain", f"The command holds {', '.join(sorted(script.extras))}.")
    for reading in readings:
        if not reading.listed.core or reading.use.runs:
            raise Objection("command", f"{reading.name!r} is not on the list of harmless commands.")
        if reading.use.options & reading.listed.extended:
            raise Objection("option", f"{reading.name} is not known to be harmless with these options.")


def build(config: Config, host: Host) -> CommandAssessor:
    """Build the assessor. It needs nothing of the host."""
    del host
    return CommandAssessor(config.profile)


PLUGIN = Plugin(Config, build, judges=("command",))
