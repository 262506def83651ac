"""Completion of the command `gateway` for shells: scripts made from its parser, so that they never lag behind it."""

import argparse
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.cli.commands import list_subcommands

_FILE: Final = "FILE"

#: `at` is the command so far, such as /runs/list, or /runs/list=--state behind an option that takes a value.
_BASH: Final = """\
_gateway() {{
    local at= words= i
    for ((i = 1; i < COMP_CWORD; i++)); do
        at="${{at%%=*}}"
        case "$at/${{COMP_WORDS[i]}}" in {paths}) at="$at/${{COMP_WORDS[i]}}" ;; esac
        case "$at=${{COMP_WORDS[i]}}" in {options}) at="$at=${{COMP_WORDS[i]}}" ;; esac
    done
    case "$at" in
{cases}
    esac
    COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _gateway gateway
"""
_ZSH: Final = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"


@dataclass(frozen=True, slots=True)
class _Words:
    """The words that may follow a command, with a line on each; `values`: the values that an option takes."""

    path: Sequence[str]
    words: Mapping[str, str]
    values: Mapping[str, Sequence[str]]


def build_completion(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the script for one of SHELLS."""
    return SHELLS[shell](list(_iterate_command_words(parser)))


def _iterate_command_words(parser: argparse.ArgumentParser, path: tuple[str, ...] = ()) -> Iterator[_Words]:
    words: dict[str, str] = {}
    values: dict[str, Sequence[str]] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            words |= {choice.dest: choice.help or "" for choice in action._choices_actions}
        elif action.option_strings:
            words |= {option: action.help or "" for option in action.option_strings if option.startswith("--")}
            if action.nargs != 0:
                some = [str(choice) for choice in action.choices or (_FILE,)]
                values |= dict.fromkeys(action.option_strings, some)
        else:
            words |= {str(choice): action.help or "" for choice in action.choices or ()}
    yield _Words(path, words, values)
    for name, command in list_subcommands(parser).items():
        yield from _iterate_command_words(command, (*path, name))


def _build_bash_script(commands: Sequence[_Words]) -> str:
    """Return the script for bash; without a candidate, `-o default` offers files."""
    cases = {_format_path(command): command.words for command in commands} | {
        f"{_format_path(command)}={option}": [value for value in values if value != _FILE]
        for command in commands
        for option, values in command.values.items()
    }
    return _BASH.format(
        paths="|".join(_format_path(command) for command in commands if command.path),
        options="|".join(at for at in cases if "=" in at),
        cases="\n".join(f"    '{at}') words='{' '.join(words)}' ;;" for at, words in cases.items()),
    )


def _format_path(command: _Words) -> str:
    return "".join(f"/{word}" for word in command.path)


def _build_zsh_script(commands: Sequence[_Words]) -> str:
    return _ZSH + _build_bash_script(commands)


def _build_fish_script(commands: Sequence[_Words]) -> str:
    lines = ["complete -c gateway -f"]
    for command in commands:
        seen = [f"__fish_seen_subcommand_from {word}" for word in command.path] or ["__fish_use_subcommand"]
        further = [word for word in command.words if not word.startswith("-")]
        if command.path and further:
            seen.append(f"not __fish_seen_subcommand_from {' '.join(further)}")
        condition = shlex.quote("; and ".join(seen))
        for word, text in command.words.items():
            which = (
                f"-l {word[2:]}{_format_value_completion(command.values.get(word))}"
                if word.startswith("--")
                else f"-a {word}"
            )
            lines.append(f"complete -c gateway -n {condition} {which} -d {shlex.quote(text)}")
    return "\n".join(lines) + "\n"


def _format_value_completion(values: Sequence[str] | None) -> str:
    if values is None:
        return ""
    return " -r -F" if _FILE in values else f" -x -a {shlex.quote(' '.join(values))}"


SHELLS: Final[Mapping[str, Callable[[Sequence[_Words]], str]]] = {
    "bash": _build_bash_script,
    "zsh": _build_zsh_script,
    "fish": _build_fish_script,
}
