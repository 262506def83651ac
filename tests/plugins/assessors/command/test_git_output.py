"""git under the hardened profile: no settings with passwords, and no history as a whole."""

import pytest

from gateway.plugins.assessors.command import CommandAssessor


def decisions(command: str) -> tuple[str, str]:
    return (
        CommandAssessor("standard").assess({"command": command}).decision,
        CommandAssessor("hardened").assess({"command": command}).decision,
    )


@pytest.mark.parametrize(
    "command",
    [
        *("git remote -v", "git config --list", "git config -l", "git config --get remote.origin.url"),
        *("git config --get-regexp remote.o", "git config url.a.insteadOf", "git config http.extraHeader"),
        *(
            "git log -p",
            "git log -U3",
            "git log --patch -5",
            "git log -p -- .",
            "git log -p -- src",
            "git whatchanged -p",
        ),
        *("git show 4b825dc642cb", "git diff 4b825dc642cb HEAD", "git diff main --stat -p", "git stash show -p"),
        *("git stash list -p", "git diff-tree -p HEAD", "git show HEAD~99", "git log -p -- '*.py'", "git show v1.0"),
        *(
            "git cat-file -p 3f2a91c",
            "git show HEAD:.git/config",
            "git -C sub log -p",
            "git log --full-diff -p a.py",
            "git diff main -- a.py .",
            "git show feature.x",
            "git show a.py",
            "git log --check",
            "git diff release.candidate",
            "git diff main a.py .env",
            "git cat-file blob 3f2a91c",
            "git cat-file -p HEAD-g3f2a91c",
            "git show -s 3f2a91c",
            "git show --stat v1.0-5-g3f2a91c",
            "git show --name-only '3f2a91c^{}'",
            "git show 3f2a91c a.py",
            "git diff 3f2a91c -- a.py",
            "git config --get-regexp 'branch.|url|.merge'",
        ),
    ],
)
def test_git_output_of_settings_or_history_requires_approval_when_hardened(command: str) -> None:
    """A URL of a remote may hold a password, and an old commit a file of secrets that is gone."""
    assert decisions(command) == ("auto", "confirm")


@pytest.mark.parametrize(
    "command",
    [
        *(
            "git diff main -- a.py b.md",
            "git show HEAD:./a.py",
            "git remote",
            "git config user.email",
            "git config --get core.autocrlf",
            "git config branch.main.merge",
        ),
        *("git diff", "git diff HEAD~3", "git diff --cached", "git diff main --stat", "git diff main -- src/app.py"),
        *("git show", "git show HEAD~1", "git show v1.0 --stat", "git show v1.0:src/a.py", "git show -s v1.0"),
        *(
            "git log",
            "git log --stat",
            "git log -p src/a.py",
            "git log --follow -p -- docs/install.md",
            "git stash show",
        ),
        *("git diff --stat 3f2a91c", "git cat-file commit 3f2a91c", "git log -1 --stat 3f2a91c"),
        *("git stash list", "git cat-file -t 3f2a91c", "git cat-file -p HEAD", "git diff-tree --name-only -r HEAD"),
    ],
)
def test_git_commands_with_limited_output_run_under_hardened(command: str) -> None:
    """Of the last commits, or of files that the command names."""
    assert decisions(command) == ("auto", "auto")
