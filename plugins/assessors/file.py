"""The assessor of `file_operations`: it judges the operation and the spelling of the path.

The tool itself enforces its roots. `literal` and `standard` are the same here. `hardened` also requires approval before
secrets, devices and processes are read.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from gateway.plugin import Host, Json, Plugin, Verdict
from gateway.plugin.paths import find_concern, find_unseen

Profile = Literal["literal", "standard", "hardened"]

#: Longest path Linux takes (PATH_MAX).
_LONGEST_PATH = 4096
_READING = frozenset({"read", "list", "exists"})
_NUMBER = (int, float)
#: Arguments that control how to read, with their types; `content` is ignored by a read and odd on it.
_BESIDE: dict[str, tuple[type, ...]] = {
    "binary": (bool,),
    "content": (str,),
    "depth": _NUMBER,
    "description": (str,),
    "encoding": (str,),
    "end_line": _NUMBER,
    "errors": (str,),
    "hidden": (bool,),
    "include_hidden": (bool,),
    "length": _NUMBER,
    "limit": _NUMBER,
    "lines": _NUMBER,
    "max_bytes": _NUMBER,
    "max_depth": _NUMBER,
    "max_results": _NUMBER,
    "offset": _NUMBER,
    "pattern": (str,),
    "recursive": (bool,),
    "sort": (str,),
    "start_line": _NUMBER,
    "timeout": _NUMBER,
}


class Config(BaseModel):
    """The options of the assessor of file operations."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    profile: Profile = Field(default="standard", description="Which file operations are known to be harmless.")


class FileAssessor:
    """The assessor's verdicts on the arguments of `file_operations`."""

    def __init__(self, profile: Profile) -> None:
        self._hardened = profile == "hardened"

    def assess(self, arguments: Json) -> Verdict:
        """Return auto (whitelist) for read, list and exists, confirm (default) for everything else."""
        operation = arguments.get("operation")
        if not isinstance(operation, str):
            return _build_confirm_verdict("shape", "The argument 'operation' is not a text.")
        if operation not in _READING:
            return _build_confirm_verdict("operation", f"The operation {operation[:80]!r} is not one that only reads.")
        for name, value in arguments.items():
            if name in ("operation", "path") or value is None:
                continue
            if name not in _BESIDE or not isinstance(value, _BESIDE[name]):
                return _build_confirm_verdict("shape", f"The argument {name[:80]!r} may change what {operation} does.")
            if self._hardened and name == "content":
                return _build_confirm_verdict("mixed_intent", f"A {operation} with content may be meant to write.")
        return self._judge_path(operation, arguments.get("path"))

    def _judge_path(self, operation: str, path: object) -> Verdict:
        if path is None or path == "":
            if operation != "list":
                return _build_confirm_verdict("shape", f"A {operation} names no path.")
            path = "."
        if not isinstance(path, str):
            return _build_confirm_verdict("shape", "The argument 'path' is not a text.")
        if len(path) > _LONGEST_PATH:
            return _build_confirm_verdict("path", f"The path has {len(path)} characters, more than {_LONGEST_PATH}.")
        hidden = "U+000A" if "\n" in path else find_unseen(path)
        if hidden is not None:
            return _build_confirm_verdict("path", f"The path holds the invisible character {hidden}.")
        why = find_concern(path) if self._hardened and operation != "exists" else None
        if why is not None:
            return _build_confirm_verdict("sensitive_path", f"The {operation} would touch {path!r}: {why}.")
        return Verdict("auto", "whitelist", "file.reading", f"A {operation} changes nothing.")


def _build_confirm_verdict(rule: str, reason: str) -> Verdict:
    return Verdict("confirm", "default", f"file.{rule}", reason)


def build(config: Config, host: Host) -> FileAssessor:
    """Build the assessor. It needs nothing of the host."""
    del host
    return FileAssessor(config.profile)


PLUGIN = Plugin(Config, build, judges=("operation",))
