"""Searches through whole folders: under the hardened profile only what finds a few lines runs by itself.

A pattern finds few lines where each of its alternatives holds some letters that must be there. What stays: a line that
holds a secret beside these letters is printed.
"""

import re

from gateway.plugin.shell.classifier import ClassifiedCommand
from gateway.plugin.shell.objection import Objection
from gateway.plugin.shell.options import split_options
from gateway.plugin.shell.words import Word

#: With one of these a search prints names or counts, not lines.
_NAMES = split_options(  # but for a `--json` behind it
    "-l -L -c -q --files-with-matches --files-without-match --count --count-matches --quiet --silent --files"
)
#: With one of these it prints lines that do not match, or files as a whole.
_WHOLE = split_options(
    "-v --invert-match --passthru -z --null-data -U --multiline --multiline-dotall -f --file -W --function-context"
    " --not"
)
_CONTEXT = split_options("-A -B -C --after-context --before-context --context")
_MOST_CONTEXT = 99
_FAR = re.compile("-[0-9]{3,}")
#: What people search secrets with.
_CREDENTIAL = re.compile(
    r"secret|passw|passphrase|(?<![a-z])pwd|credential|token|bearer|authoriz|private.{0,3}key|api.{0,3}key"
    r"|(?<![a-z])keys?(?![a-z])|akia|ghp_|begin.{0,20}(?:rsa|private|openssh)|(?<![a-z])sk-",
    re.IGNORECASE,
)
#: With one of these ripgrep also looks into what it leaves out by itself.
_HIDDEN = split_options("-. --hidden -u -uu -uuu --unrestricted --no-ignore --no-ignore-vcs --files")
_ALTERNATIVES = re.compile(r"[|\n]")
#: A class ends where every dialect ends it: at the first `]` that does not begin it, and in which nothing is nested.
_CLASS = r"\[\^?+\]?+(?:\[:[a-z]+:\]|\\[^]\n]|[^][\\\n])*+\]"
#: Classes, and escapes with all that belongs to them, but for the ones that are operators to some dialect.
_ONE_CHARACTER = re.compile(
    rf"{_CLASS}|\\[A-Za-z]\{{[^}}\\]*+\}}|\\x[0-9A-Fa-f]{{0,2}}|\\[0-9]{{1,3}}|\\c.|\\[^(){{}}|?*+\n]"
)
_OPERATOR = re.compile(r"\\([(){}|?*+])")
#: What makes a pattern too hard to read: a group that may be absent, one of Perl's that are not groups, and a class
#: that dialects end in different places.
_HARD = re.compile(r"\)\+*+[*?{]|\(\?[^:]|\(\*(?:[A-Z:]|[a-z_]+:)|[][]")
#: To a group, which may be empty.
_REFERENCE = re.compile(r"\\[gk]")
_MANY = re.compile(r"\++")
#: What may be absent, whatever is repeated then.
_ABSENT = re.compile(r".(?:\+?(?:[*?]|\{[^}]*\}?))+")
_UNCERTAIN = re.compile(r"[.*?+{}]")
_MARK = "\0"
_CERTAIN = re.compile(r"(?=.{0,2}\w)[^\0]{3}|[^\x00-\x7f]")
_NO_WIDTH = re.compile("[()^$]")


def judge_search(reading: ClassifiedCommand, *, everywhere: bool) -> None:
    """Raise Objection for a search that prints much of what is in its files, or what people keep secrets under.

    `everywhere`: it begins in the work folder itself, in which files with secrets usually are.
    """
    name, use, listed = reading.name, reading.use, reading.listed
    searches = bool(listed.pattern_options) or (listed.grammar == "git" and "grep" in use.options)
    if not searches or (use.options & _NAMES and "--json" not in use.options):
        return
    if use.options & _WHOLE:
        raise Objection("sensitive_path", f"{name} would print more of its files than what matches.")
    if any(_FAR.fullmatch(word.text) for word in reading.step.words):
        raise Objection("sensitive_path", f"{name} would print more of its files than what matches.")
    for option, word in use.values:
        if option in _CONTEXT and not (word.text.isdecimal() and int(word.text[:9]) <= _MOST_CONTEXT):
            raise Objection("sensitive_path", f"{name} would print more of its files than what matches.")
    seeks = bool(use.options & _HIDDEN) if name == "rg" else everywhere and listed.grammar != "git"
    for pattern in _list_patterns(reading):
        if pattern.expands or not is_narrow(pattern.text):
            raise Objection("sensitive_path", f"{name} would print much of what is in its files.")
        if seeks and _CREDENTIAL.search(pattern.text):
            raise Objection("sensitive_path", f"{name} would look for secrets.")


def is_narrow(pattern: str) -> bool:
    """Return whether each alternative of a pattern holds three characters that a line must have."""
    if _REFERENCE.search(pattern):
        return False
    plain = _OPERATOR.sub(r"\1", _ONE_CHARACTER.sub(_MARK, pattern))
    if _HARD.search(plain):
        return False
    alternatives = _ALTERNATIVES.split(_MANY.sub("+", plain).replace("(?:", "("))
    sure = (_UNCERTAIN.sub(_MARK, _ABSENT.sub(_MARK, each)) for each in alternatives)
    return all(_CERTAIN.search(_NO_WIDTH.sub("", each)) for each in sure)


def _list_patterns(reading: ClassifiedCommand) -> tuple[Word, ...]:
    use, listed = reading.use, reading.listed
    written = tuple(word for option, word in use.values if option in ("-e", "--regexp"))
    return written or (() if use.options & listed.pattern_options else use.operands[:1])
