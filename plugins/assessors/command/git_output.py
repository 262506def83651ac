"""The output of git under the hardened profile: changes of a whole repository, and settings that hold passwords."""

import re
from typing import Final

from gateway.plugin.shell.options import CommandUse, split_options

_PATCH: Final = split_options(
    "-p -u -c -U -L -W --patch --cc --unified --patch-with-stat --word-diff --color-words --binary --check"
)
_SUMMARIES: Final = split_options(
    "-s --no-patch --stat --numstat --shortstat --name-only --name-status --summary --raw --compact-summary --dirstat"
    " --cumulative --quiet"
)
#: A name with an ending that no branch has.
_FILE: Final = re.compile(
    r"[^:*?\[]*[^/.:*?\[]\.(?:py|pyi|js|mjs|cjs|ts|tsx|jsx|c|h|cc|cpp|hpp|cs|go|rs|java|kt|rb|php|swift|scala|md|rst|txt|toml"
    r"|ya?ml|json|html?|css|scss|vue|sh|sql|xml|cfg|ini|lock|csv|tf|gradle|ipynb|proto|lua|ex|exs|erl|hs|pl|r|jl|dart)",
    re.IGNORECASE,
)
_COMMITTED_FILE: Final = re.compile(r"[^:]+:[^:]*[^:/]")
#: The last commits; a hash may be the empty tree, from which everything is a change.
_NEAR: Final = re.compile(r"(?:HEAD|@)(?:[~^][0-9]?)*")
#: An object by its hash, which may be a file's: alone, behind a description of it, or with the requested part of it.
_HASH: Final = re.compile(r"(?:.*-g)?[0-9a-f]{4,64}(?:[\^~@{].*)?", re.IGNORECASE)
#: Kinds of objects of which git prints no file.
_NO_FILES: Final = frozenset({"commit", "tag", "tree"})
#: Sections and keys of settings without secrets.
_PLAIN_KEY: Final = re.compile(
    r"(?:user\.(?:name|email)|init\.\w+|pull\.\w+|push\.\w+|merge\.\w+|rebase\.\w+|commit\.\w+|fetch\.\w+"
    r"|core\.(?:autocrlf|bare|editor|eol|filemode|ignorecase|pager|worktree|symlinks)|branch\.[\w./-]+\.(?:merge|remote))",
    re.IGNORECASE,
)


def prints_patches(use: CommandUse) -> bool:
    """Return whether this use of git prints the changed lines of files, and not only their names and counts."""
    if use.options & {"log", "stash"}:
        return bool(use.options & _PATCH)
    return bool(use.options & {"show", "diff", "whatchanged", "diff-tree"}) and (
        bool(use.options & _PATCH) or not use.options & _SUMMARIES
    )


def prints_objects(use: CommandUse) -> bool:
    """Return whether it may print a file by its hash, which `git ls-tree` prints.

    `show` does so whatever its options are, and beside files that it names; `diff` compares such a file with others.
    """
    if "cat-file" in use.options:
        kind = "" if "-p" in use.options or not use.operands else use.operands[0].text
        if use.options & split_options("-e -t -s") or kind in _NO_FILES:
            return False
        named = use.operands[1:] if kind else use.operands
        return not all(":" in word.text or _NEAR.fullmatch(word.text) for word in named)
    shows = "show" in use.options or ("diff" in use.options and prints_patches(use))
    return shows and any(word.expands or _HASH.fullmatch(word.text) for word in use.operands)


def operands_are_near(use: CommandUse) -> bool:
    """Return whether it shows the last commits, or compares with them: a few changes."""
    return bool(use.options & {"diff", "show"}) and all(_NEAR.fullmatch(word.text) for word in use.operands)


def names_files(use: CommandUse) -> bool:
    """Return whether a command that prints changes prints the changes of files that it names.

    In front of the files may stand one commit. `show` takes a word alone for a commit, whatever it looks like.
    """
    texts = [word.text for word in use.operands]
    if "--full-diff" in use.options or not texts or any(word.expands for word in use.operands):
        return False
    if "show" in use.options and len(texts) == 1:
        return bool(_COMMITTED_FILE.fullmatch(texts[0]))
    paths = texts[1:] if len(texts) > 1 and not _FILE.fullmatch(texts[0]) else texts
    return all(_FILE.fullmatch(text) and ".." not in text for text in paths)


def shows_settings(use: CommandUse) -> bool:
    """Return whether this use of git prints settings that may hold a password, such as the URL of a remote."""
    if "remote" in use.options:
        return bool(use.options & {"-v", "--verbose"})
    return "config" in use.options and not (use.operands and _PLAIN_KEY.fullmatch(use.operands[0].text))
