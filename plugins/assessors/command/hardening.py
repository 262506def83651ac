"""The hardened profile: commands that are harmless to the machine, but not to a secret, or that may never end."""

import re

from gateway.plugin.paths import (
    count_spelled_characters,
    find_concern,
    find_folder_concern,
    find_glob_concern,
    find_place_concern,
    remove_dot_segments,
)
from gateway.plugin.shell.classifier import ClassifiedCommand
from gateway.plugin.shell.command_grammars import find_paths, is_narrow
from gateway.plugin.shell.git import prints_contents
from gateway.plugin.shell.objection import Objection
from gateway.plugin.shell.options import split_options
from gateway.plugin.shell.words import Word

from .git_output import names_files, operands_are_near, prints_objects, prints_patches, shows_settings
from .searches import judge_search

#: More numbers than a person wants to read.
_MOST_NUMBERS = 1_000_000
#: As many steps up may end at the root.
_FAR_UP = 3
#: Folders with secrets somewhere below them; homes go by the tilde.
_WIDE_PLACES = frozenset({"/etc", "/home", "/users", "/var", "/run", "/sys", "/proc", "/mnt", "/media"})
_GLOB = re.compile(r"[*?\[{]")
_VARIABLE = re.compile(r"\$[{(]?[A-Za-z_]|\$\(")
#: Where a command may be, as far as its `cd`s show; no typed command has more.
_MOST_FOLDERS = 8
#: Each path is looked at in each of these folders: no typed command has more characters.
_MOST_SPELLED = 1 << 15
#: Values that are globs for names, also in quotes.
_GLOBS = split_options("--include -g --glob --iglob")
#: With one of these a diff of folders prints files as a whole.
_WHOLE = split_options("-N --new-file --unidirectional-new-file -y --side-by-side -D -U -C --unified --context")
_HOME = re.compile(r"\$(?:HOME|\{HOME\})(?=/|\Z)")
_HERE = re.compile(r"\$(?:PWD|\{PWD\})(?=/|\Z)")


def check_hardened(readings: tuple[ClassifiedCommand, ...], *, looping: bool, folder: str = "") -> None:
    """Raise Objection for a command that needs a person.

    `looping`: the commands may run several times, or not at all. `folder`: where they begin, "" for the work folder.
    """
    why = find_folder_concern(folder)
    if why is not None:
        raise Objection("sensitive_path", f"The command would begin in {folder!r}: {why}.")
    spelled = 0
    folders = [folder]  # a `cd` may fail, or move the part of a pipe alone: it adds places and takes none away
    for reading in readings:
        if reading.name == "cd":
            if looping:
                raise Objection("sensitive_path", "The command changes its folder in a loop or a branch.")
            moved = [_resolve_cd(place, reading.use.operands) for place in folders]
            folders = list(dict.fromkeys((*folders, *moved)))
            if len(folders) > _MOST_FOLDERS:
                raise Objection("sensitive_path", "The command changes its folder too often.")
        for place in folders:
            spelled += sum(_count_spelled_chars(reading, _join_path(place, word.text)) for word in reading.step.words)
            if spelled > _MOST_SPELLED:
                raise Objection("sensitive_path", "The command names more paths than can be looked at.")
            _check_command(reading, place)


def _check_command(reading: ClassifiedCommand, folder: str) -> None:
    name, use, listed, step = reading.name, reading.use, reading.listed, reading.step
    if use.options & listed.endless:
        raise Objection("endless", f"{name} would not end by itself.")
    if name in ("env", "printenv"):
        raise Objection("sensitive_path", f"{name} would print the environment.")
    _judge_contents(reading)
    text = 0 if use.options & listed.pattern_options else listed.text
    paths = _list_paths(reading, text)
    _judge_paths(reading, paths, folder)
    walks = bool(listed.walks or use.options & listed.recursive) or _recurses(reading)
    waits = len(use.operands) < listed.reads - listed.text + text and not walks
    if listed.grammar == "xargs":
        waits = not use.values
    if name == "jq":
        waits = waits and not use.options & {"-n", "--null-input"}
    if (waits or any(word.text == "-" for word in use.operands)) and not step.has_input:
        raise Objection("waits_for_input", f"{name} would wait for input.")
    if walks:
        _judge_walk(reading, paths, folder)
    if walks or (listed.grammar == "git" and "grep" in use.options):
        judge_search(reading, everywhere=any(not remove_dot_segments(word.text) for word in paths))
    if name == "seq" and any(_exceeds_number_limit(word.text) for word in use.operands):
        raise Objection("large_output", "seq would print too many numbers.")


def _count_spelled_chars(reading: ClassifiedCommand, path: str) -> int:
    """Return what a look at one word costs: a brace in a program of awk or jq names no files."""
    return len(path) if reading.listed.grammar in ("awk", "jq", "sed") else count_spelled_characters(path)


def _recurses(reading: ClassifiedCommand) -> bool:
    """Return whether a value makes grep walk, as `-r` does; it may be cut short."""
    values = [word for option, word in reading.use.values if option in ("-d", "--directories")]
    return "grep" in reading.name and any(word.expands or word.text.startswith("r") for word in values)


def _judge_contents(reading: ClassifiedCommand) -> None:
    """Raise Objection for what prints the contents of files that it does not name, or settings."""
    name, use, listed = reading.name, reading.use, reading.listed
    if use.runs and not all(_prints_names(words) for words in use.runs):
        raise Objection("sensitive_path", f"{name} would read files whose names the call does not show.")
    if name == "diff" and use.options & listed.recursive and use.options & _WHOLE:
        raise Objection("sensitive_path", "diff would print what is in whole folders.")
    texts = [word.text for word in use.operands]
    if (name == "unzip" and texts[:1] == ["-p"]) or (listed.grammar == "line" and "freeze" in texts):
        raise Objection("sensitive_path", f"{name} would print what may hold secrets.")
    if listed.grammar != "git":
        return
    if shows_settings(use):
        raise Objection("sensitive_path", "git would print settings, such as URLs with passwords in them.")
    if prints_objects(use):
        raise Objection("sensitive_path", "git would print a file by its hash: the call does not show which one.")
    if prints_patches(use) and not (operands_are_near(use) or names_files(use)):
        raise Objection("sensitive_path", "git would print the changes of the whole repository: name files.")


def _list_paths(reading: ClassifiedCommand, text: int) -> tuple[Word, ...]:
    """Return all words that may name a file: operands and the values of options that are not patterns."""
    use, listed = reading.use, reading.listed
    if listed.grammar == "find":
        return find_paths(use)
    if listed.grammar == "git":
        values = [word for option, word in use.values if option not in ("-S", "-G", "--grep", "--author")]
        searched = "grep" in use.options and not use.options & split_options("-e")
        return tuple(_strip_revision(word) for word in (*use.operands[searched:], *values))
    values = [word for option, word in use.values if option not in listed.patterns]
    operands = [
        word.without_prefix(1) if reading.name == "strings" and word.text[:1] == "@" else word
        for word in use.operands[text:]
    ]
    return (*operands, *values)


def _strip_revision(word: Word) -> Word:
    """Return the path in `HEAD:path`, which git prints as it would a file."""
    return word.without_prefix(word.text.rfind(":") + 1)


def _prints_names(words: tuple[Word, ...]) -> bool:
    name = words[0].text.rpartition("/")[2]
    return name in ("echo", "basename", "dirname", "ls", "stat", "du", "realpath", "readlink", "wc")


def _judge_paths(reading: ClassifiedCommand, paths: tuple[Word, ...], folder: str) -> None:
    name, step = reading.name, reading.step
    for word in step.words:
        why = find_folder_concern(_join_path(folder, _expand_home(word))) if word.splits else None
        if why is not None:
            raise Objection("sensitive_path", f"{name} would list {word.text!r}: {why}.")
    for option, word in reading.use.values:
        if option in _GLOBS and not word.text.startswith("!") and find_glob_concern(word.text):
            raise Objection("sensitive_path", f"{name} would look into {word.text!r}: its glob may match secrets.")
    names = reading.name == "cd" or (reading.listed.names and not step.inputs)
    if reading.listed.grammar == "git" and not prints_contents(reading.use):
        names = True
    for word in (*paths, *step.inputs):
        why = _find_listing_concern(word, folder) if names else _find_concern(word, folder)
        if why is not None:
            raise Objection("sensitive_path", f"{name} would read {word.text!r}: {why}.")


def _find_concern(word: Word, folder: str) -> str | None:
    """Return why the path needs a person, by itself or below the folder that an earlier `cd` went to."""
    spelled = _expand_home(word)
    if word.expands and _VARIABLE.search(spelled):
        return "its variable may be anything"
    judge = find_glob_concern if _GLOB.search(spelled) and word.expands else find_concern
    return judge(spelled) or judge(_join_path(folder, spelled))


def _find_listing_concern(word: Word, folder: str) -> str | None:
    """Return why a listing command needs a person: it shows names and facts, for processes also secrets."""
    place = _join_path(folder, _expand_home(word))
    parts = remove_dot_segments(place)
    why = find_folder_concern(place)
    if why is not None:
        return why
    outside = place.startswith(("/", "..")) or "/../" in place
    if outside and parts and (parts[0] == "proc" or (word.splits and re.search(r"[*?\[]", parts[0]))):
        return find_place_concern(place) or ("it lists processes" if len(parts) == 1 else None)
    return None


def _judge_walk(reading: ClassifiedCommand, paths: tuple[Word, ...], folder: str) -> None:
    name, use, listed = reading.name, reading.use, reading.listed
    places = [_join_path(folder, _expand_home(word)) for word in paths] or [folder]
    narrow = listed.grammar == "find" and is_narrow(use)
    if any(_is_root(place) for place in places) and not narrow:
        raise Objection("large_output", f"{name} would print the whole machine.")
    if listed.names:
        return
    if any(_is_wide_folder(place) for place in places):
        raise Objection("sensitive_path", f"{name} would read all files below {places[0]!r}.")
    if any(".git" in remove_dot_segments(place.lower()) for place in places):
        raise Objection("sensitive_path", f"{name} would read the settings and the history of a repository.")


def _is_root(place: str) -> bool:
    parts = remove_dot_segments(place)
    if place.startswith("/"):
        return not parts or parts == ["*"]
    return not parts and place.count("..") >= _FAR_UP


def _is_wide_folder(place: str) -> bool:
    parts = remove_dot_segments(place.lower())
    if place.startswith("~"):
        return len(parts) <= 1
    absolute = place.startswith("/")
    return absolute and ("/" + "/".join(parts) in _WIDE_PLACES or (len(parts) == 2 and parts[0] in ("home", "users")))


def _resolve_cd(folder: str, operands: tuple[Word, ...]) -> str:
    """Return the folder after `cd`. A target that cannot be determined may be the home folder."""
    target = operands[0] if operands else None
    return "~" if target is None or target.splits or target.text == "-" else _join_path(folder, _expand_home(target))


def _join_path(folder: str, path: str) -> str:
    return path if not folder or path.startswith(("/", "~")) else f"{folder}/{path}"


def _expand_home(word: Word) -> str:
    """Return the path with `~` or `.` in front in place of the variables for the home folder and the present one."""
    if not word.expands:
        return word.text
    return _HERE.sub(".", _HOME.sub("~", word.text, count=1), count=1)


def _exceeds_number_limit(text: str) -> bool:
    return len(text) > len(str(_MOST_NUMBERS)) or abs(float(text)) > _MOST_NUMBERS
