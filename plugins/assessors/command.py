"""Judges `execute_command`: a plain text of sh in which every command and option is known to change nothing.

`literal` knows the requirement's own list, `standard` the longer everyday list, `hardened` besides asks for what reads
secrets, never ends, waits for input, or prints the whole machine.
"""

import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from gateway.contracts import Host, Json, Plugin, Verdict
from gateway.wire.shell import ABSOLUTE_VARIABLES, Objection, Step, Word, parse
from gateway.wire.shell_commands import COMMANDS
from gateway.wire.shell_grammars import find_paths, is_narrow, read_find, read_lookup, read_sed, read_test
from gateway.wire.shell_options import Listed, Use, read_use
from gateway.wire.shell_paths import concern, glob_concern

Profile = Literal["literal", "standard", "hardened"]

#: Where programs come from that nobody but root can have planted.
_TRUSTED_FOLDERS = ("/bin/", "/usr/bin/")
#: Arguments besides `command` that do not change what it does.
_BESIDE = {"timeout": (int, float), "background": (bool,), "description": (str,)}
#: More numbers than a person wants to read.
_MOST_NUMBERS = 1_000_000
_WHOLE_MACHINE = re.compile(r"/+(?:\./*)*|/+\*")
_NETWORK = re.compile(r"/dev/(?:tcp|udp)(?:/|\Z)")


class Config(BaseModel):
    """What the assessor of commands is set to."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    profile: Profile = Field(default="standard", description="Which commands are known to be harmless.")


class CommandAssessor:
    """Verdicts on the arguments of `execute_command`."""

    def __init__(self, profile: Profile) -> None:
        self._literal = profile == "literal"
        self._hardened = profile == "hardened"

    def assess(self, arguments: Json) -> Verdict:
        """auto (whitelist) for harmless commands, confirm (default) for everything else."""
        try:
            self._judge(arguments)
        except Objection as objection:
            return Verdict("confirm", "default", objection.rule, str(objection))
        return Verdict("auto", "whitelist", "harmless_command", "Every command in it only reads or computes.")

    def _judge(self, arguments: Json) -> None:
        command = arguments.get("command")
        if not isinstance(command, str):
            raise Objection("shape", "The argument 'command' is not a text.")
        for name, value in arguments.items():
            if name == "command" or value is None:
                continue
            if name not in _BESIDE or not isinstance(value, _BESIDE[name]):
                raise Objection("shape", f"The argument {name!r} may change what the command does.")
            if self._hardened and name == "background" and value:
                raise Objection("background", "The command would go on in the background.")
        script = parse(command)
        if self._literal and script.extras:
            raise Objection("not_plain", f"The command holds {', '.join(sorted(script.extras))}.")
        folder = ""  # where `cd` went, as far as it can be told
        for step in script.steps:
            folder = self._judge_step(step, folder=folder)

    def _judge_step(self, step: Step, *, folder: str) -> str:
        """Answers the folder in which the next step runs."""
        name = _name(step.words[0])
        listed = COMMANDS.get(name)
        if listed is None or (self._literal and not listed.core):
            raise Objection("command", f"{step.words[0].text!r} is not on the list of harmless commands.")
        for word in step.inputs:
            if _NETWORK.match(word.text):
                raise Objection("redirection", f"The command opens {word.text!r}.")
        use = _read(name, step.words[1:], listed)
        if self._literal and use.options & listed.extended:
            raise Objection("option", f"{name} is not known to be harmless with these options.")
        if self._hardened:
            _harden(name, step, use, listed, folder=folder)
        return _moved(folder, use) if name == "cd" else folder


def _name(word: Word) -> str:
    """The command's name; "" where its spelling hides something."""
    if word.expands or word.tilde or not word.bare:
        return ""
    for folder in _TRUSTED_FOLDERS:
        if word.text.startswith(folder):
            return word.text.removeprefix(folder)
    return word.text


def _read(name: str, words: tuple[Word, ...], listed: Listed) -> Use:
    match listed.grammar:
        case "text":
            return Use()
        case "find":
            return read_find(words)
        case "test":
            return read_test(name, words)
        case "sed":
            return read_sed(words)
        case "lookup":
            return read_lookup(words)
        case "options":
            return read_use(name, words, listed)


def _harden(name: str, step: Step, use: Use, listed: Listed, *, folder: str) -> None:
    """Objects to what is harmless to the machine but not to a secret, or not to whoever waits for the end."""
    if use.options & listed.endless:
        raise Objection("endless", f"{name} would not end by itself.")
    text = 0 if use.options & listed.pattern_options else listed.text
    paths = find_paths(use) if listed.grammar == "find" else use.operands[text:] + _value_paths(use)
    for word in step.inputs if listed.names else paths + step.inputs:
        why = _concern(word, folder)
        if why is not None:
            raise Objection("sensitive_path", f"{name} would read {word.text!r}: {why}.")
    walks = listed.walks or use.options & listed.recursive
    waits = len(use.operands) < listed.reads - listed.text + text and not walks
    if (waits or any(word.text == "-" for word in use.operands)) and not (step.piped or step.inputs):
        raise Objection("waits_for_input", f"{name} would wait for input.")
    places = [_joined(folder, _spelled_out(word)) for word in paths] or [folder]
    if walks and any(_WHOLE_MACHINE.fullmatch(place) for place in places) and not is_narrow(use):
        raise Objection("large_output", f"{name} would print the whole machine.")
    if name == "seq" and any(_counts_far(word.text) for word in use.operands):
        raise Objection("large_output", "seq would print too many numbers.")


def _concern(word: Word, folder: str) -> str | None:
    """Why the path needs a person, by itself or below the folder that an earlier `cd` went to."""
    spelled = _spelled_out(word)
    judge = glob_concern if word.splits else concern
    return judge(spelled) or judge(_joined(folder, spelled))


def _moved(folder: str, use: Use) -> str:
    """Where `cd` goes from there; what nobody can tell may be the home folder."""
    target = use.operands[0] if use.operands else None
    return "~" if target is None or target.splits or target.text == "-" else _joined(folder, _spelled_out(target))


def _joined(folder: str, path: str) -> str:
    return path if not folder or path.startswith(("/", "~")) else f"{folder}/{path}"


def _value_paths(use: Use) -> tuple[Word, ...]:
    return tuple(word for _, word in use.values if "/" in word.text or word.text.startswith("."))


def _spelled_out(word: Word) -> str:
    """The path with a variable of the short list in front as what it may be: somewhere below the home folder."""
    for variable in ABSOLUTE_VARIABLES:
        for written in (f"${variable}/", f"${{{variable}}}/"):
            if word.expands and word.text.startswith(written):
                return "~/" + word.text.removeprefix(written)
    return word.text


def _counts_far(text: str) -> bool:
    return len(text) > len(str(_MOST_NUMBERS)) or abs(float(text)) > _MOST_NUMBERS


def build(config: Config, host: Host) -> CommandAssessor:
    """The assessor needs nothing of the host."""
    del host
    return CommandAssessor(config.profile)


PLUGIN = Plugin(Config, build)
