"""The output of git under the hardened profile: changes of a whole repository, and settings that hold passwords."""

import re
from typing import Final

from gateway.plugin.shell.options import Use, options

_PATCH: Final = options("-p -u -c -U -L -W --patch --cc --unified --patch-with-stat --word-diff --color-words --binary")
_SUMMARIES: Final = options(
    "-s --no-patch --stat --numstat --shortstat --name-only --name-status --summary --raw --compact-summary --dirstat"
    " --cumulative --quiet"
)
#: The last commits; a hash may be the empty tree, from which everything is a change.
_NEAR: Final = re.compile(r"(?:HEAD|@)(?:[~^][0-9]?)*")
#: Sections and keys of settings without secrets.
_PLAIN_KEY: Final = re.compile(
    r"(?:user\.(?:name|email)|init\.\w+|pull\.\w+|push\.\w+|merge\.\w+|rebase\.\w+|commit\.\w+|fetch\.\w+"
    r"|core\.(?:autocrlf|bare|editor|eol|filemode|ignorecase|pager|worktree|symlinks)|branch\.[^@:]+\.(?:merge|remote))",
    re.IGNORECASE,
)


def prints_patches(use: Use) -> bool:
    """Return whether this use of git prints the changed lines of files, and not only their names and counts."""
    if use.options & {"log", "stash"}:
        return bool(use.options & _PATCH)
    return bool(use.options & {"show", "diff", "whatchanged", "diff-tree"}) and (
        bool(use.options & _PATCH) or not use.options & _SUMMARIES
    )


def operands_are_near(use: Use) -> bool:
    """Return whether it shows the last commits, or compares with them: a few changes."""
    return bool(use.options & {"diff", "show"}) and all(_NEAR.fullmatch(word.text) for word in use.operands)


def shows_settings(use: Use) -> bool:
    """Return whether this use of git prints settings that may hold a password, such as the URL of a remote."""
    if "remote" in use.options:
        return bool(use.options & {"-v", "--verbose"})
    return "config" in use.options and not (use.operands and _PLAIN_KEY.fullmatch(use.operands[0].text))
