"""git that only reads, in a repository whose configuration, attributes and hooks name programs: none of them runs."""

import os
import subprocess
from pathlib import Path

import pytest

from gateway.plugins.assessors.command import CommandAssessor
from tests.plugins.tools.execute_command.test_execute_command import ask, built

#: What git is asked for every day.
COMMANDS = (
    "git status",
    "git status -sb",
    "git status --porcelain",
    "git log --oneline -10",
    "git log -p -2",
    "git log --stat --graph --all",
    "git log -S nine -p",
    "git log -L 1,2:a.txt",
    "git log -m -p",
    "git log --format='%h %an %s' -n 3",
    "git log --pretty=hostile",
    "git diff",
    "git diff HEAD~1 --stat",
    "git diff HEAD~1 HEAD -- a.txt",
    "git diff --cached",
    "git diff --name-only HEAD",
    "git branch -a",
    "git branch -vv",
    "git branch --show-current",
    "git show",
    "git show HEAD:a.txt",
    "git show --stat HEAD",
    "git rev-parse HEAD",
    "git rev-parse --show-toplevel",
    "git blame -L 1,2 a.txt",
    "git blame a.txt",
    "git ls-files | head",
    "git ls-files -m",
    "git ls-files --others --exclude-standard",
    "git stash list",
    "git stash list -p",
    "git stash show",
    "git stash show -p stash@{0}",
    "git whatchanged -p -2",
    "git diff-tree -p HEAD~1 HEAD",
    "git diff-tree --no-commit-id --name-only -r HEAD",
    "git check-ignore -v a.txt || true",
    "git check-attr -a a.txt",
    "git name-rev HEAD",
    "git cherry -v HEAD~1",
    "git show-branch --all",
    "git symbolic-ref --short HEAD",
    "git var GIT_EDITOR",
    "git config core.bare",
    "git branch --sort=-committerdate",
    "git for-each-ref --sort=-committerdate",
    "git diff -U9 HEAD~1",
    "echo $(git ls-files)",
    'echo "$(git status --porcelain)"',
    "git tag -l",
    "git remote -v",
    "git reflog -n 5",
    "git shortlog -sn HEAD",
    "git rev-list --count HEAD",
    "git cat-file -p HEAD",
    "git ls-tree -r HEAD",
    "git describe --always",
    "git grep -n one",
    "git config --get remote.origin.url",
    "git config --list",
    "git count-objects -v",
    "git for-each-ref --count=3",
    "git merge-base HEAD HEAD~1",
    "git --no-pager log -1",
    "git -C sub status",
    "git -C sub diff",
    "cd sub && git diff && git status",
    "git --version",
)


def _git(folder: Path, *words: str) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_GLOBAL": os.devnull}
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *identity, *words], cwd=folder, env=environment, check=True, capture_output=True)


def _hostile(folder: Path, sentinel: Path, *, submodule: bool = True) -> None:
    """A repository with a change to see, in which everything that git can be made to run leaves its name."""
    folder.mkdir(exist_ok=True)
    _git(folder, "init", "-q", "-b", "main")
    for text in ("one\ntwo\n", "one\ntwo\nnine\n"):
        (folder / "a.txt").write_text(text)
        _git(folder, "add", ".")
        _git(folder, "commit", "-q", "-m", text.strip().replace("\n", " "))
    (folder / "a.txt").write_text("stashed\n")
    _git(folder, "stash", "-q")
    if submodule:
        _hostile(folder / "origin", sentinel, submodule=False)
        _git(folder, "submodule", "add", "-q", "./origin", "sub")
        _git(folder, "commit", "-q", "-m", "sub")
        _plant(folder / "sub", folder / ".git" / "modules" / "sub", sentinel)
    _plant(folder, folder / ".git", sentinel)


def _plant(folder: Path, repository: Path, sentinel: Path) -> None:
    def runs(name: str) -> str:
        return f"sh -c 'echo {name} >>{sentinel}; cat; true' x"

    programs = (
        "core.fsmonitor core.pager core.sshCommand core.gitProxy core.editor core.askPass core.alternateRefsCommand"
        " credential.helper diff.external gpg.program gpg.openpgp.program gpg.ssh.program gpg.x509.program"
        " interactive.diffFilter pager.log pager.diff pager.status alias.status alias.log alias.hostile"
        " filter.evil.clean filter.evil.smudge filter.e=v.il.process diff.evil.command diff.evil.textconv"
        " merge.evil.driver trailer.x.command"
    )
    lines = [("filter.evil.required", "true"), ("log.showSignature", "true"), ("log.diffMerges", "remerge")]
    lines += [("pretty.hostile", "%h %G?"), ("submodule.recurse", "true"), ("diff.submodule", "diff")]
    lines += [("core.hooksPath", ""), ("core.untrackedCache", "true"), ("status.submoduleSummary", "true")]
    lines += [("remote.origin.promisor", "true"), ("remote.origin.url", f"ext::{runs('ext')}")]
    lines += [(name, runs(name)) for name in programs.split()]
    for key, value in lines:
        subprocess.run(["git", "config", "-f", str(repository / "config"), key, value], check=True)
    (repository / "info").mkdir(exist_ok=True)
    (repository / "info" / "attributes").write_text("*.txt filter=evil diff=evil merge=evil\n")
    (folder / ".gitattributes").write_text("a.txt filter=e=v.il\n*.txt filter=evil diff=evil\n")
    for hook in ("post-index-change", "post-checkout", "fsmonitor-watchman"):
        path = repository / "hooks" / hook
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\necho hook >>{sentinel}\n")
        path.chmod(0o755)
    # The index no longer knows this file as it is, so git reads it, through its filter.
    (folder / "a.txt").write_text("one\ntwo\nneun\n")


def _tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path): (path.lstat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in sorted(folder.rglob("*"))
    }


async def test_harmless_git_commands_run_no_program_of_the_repository(tmp_path: Path) -> None:
    """Each command answers, and the folder, its repository and its submodule are as they were."""
    sentinel, folder = tmp_path / "ran", tmp_path / "work"
    _hostile(folder, sentinel)
    assessor, tool = CommandAssessor("standard"), built(folder)
    sentinel.unlink(missing_ok=True)
    before = _tree(folder)
    for command in COMMANDS:
        verdict = assessor.assess({"command": command})
        assert verdict.decision == "auto", (command, verdict)
        answer = await ask(tool, command)
        assert answer.content.startswith("exit code 0"), (command, answer.content)
        assert not sentinel.exists(), (command, sentinel.read_text())
        assert _tree(folder) == before, command


async def test_git_stash_show_lists_names_and_changes_as_in_plain_git(tmp_path: Path) -> None:
    """By the names of its files, and with the changes where they are asked for."""
    folder = tmp_path / "work"
    _hostile(folder, tmp_path / "ran", submodule=False)
    for command in ("git stash show", "git stash show stash@{0}"):
        names = (await ask(built(folder), command)).content
        assert "a.txt |" in names and "stashed" not in names
    for command in ("git stash show -p", "git stash show stash@{0} -p", "git stash list -p"):
        changes = (await ask(built(folder), command)).content
        assert "+stashed" in changes and "a.txt |" not in changes


async def test_git_commands_with_full_rights_run_the_programs_of_the_repository(tmp_path: Path) -> None:
    """What is not known to be harmless runs as git runs: the traps above are real ones."""
    sentinel, folder = tmp_path / "ran", tmp_path / "work"
    _hostile(folder, sentinel)
    sentinel.unlink(missing_ok=True)
    await ask(built(folder), "git status; : $((1))")
    ran = sentinel.read_text()
    assert "core.fsmonitor" in ran
    assert "filter" in ran


@pytest.mark.parametrize(
    "command",
    [
        "git commit -m x", "git add .", "git checkout .", "git fetch", "git pull", "git push", "git stash",
        "git stash pop",
        "git branch new", "git branch -d x", "git branch --list --no-list -D victim", "git branch -v new",
        "git tag v1",
        "git tag -d v1", "git remote add x y", "git remote update", "git config a.b c", "git config --unset a.b",
        "git config --get a.b --file=x", "git config core.pager x", "git config edit", "git config edit --get",
        "git stash -p show", "git stash show --output=x", "git stash show drop", "git symbolic-ref HEAD refs/heads/x",
        "git symbolic-ref -d HEAD", "git var -l", "git diff-tree --stdin", "git check-attr --stdin -a",
        "git branch --sort=--output=x", "git for-each-ref --format='%(signature)'",
        "git log --output=x", "git log --output x",
        "git diff --output=x", "git diff --ext-diff", "git show --textconv HEAD:x", "git log --show-signature",
        "git log --format=%G?", "git log --format %G?", "git log --since -n --output=x", "git log -n --output=x",
        "git diff -M --output=x", "git diff -U --unified --output=x", "git diff -U --output=x",
        "git diff --no-index a b",
        "git log --remerge-diff", "git diff --submodule=diff", "git status -v", "git status --ignore-submodules=none",
        "git grep --open-files-in-pager=x a", "git grep -Ox a", "git grep --textconv a",
        "git grep --recurse-submodules a",
        "git -c core.pager=x log", "git --exec-path=/tmp log", "git --git-dir=x log", "git --work-tree=x status",
        "git -p log", "git --paginate log", "git -C $HOME status", "git -C - status", "git -C -x status",
        "git hostile", "git difftool", "git bisect log", "git submodule status", "git worktree prune",
        "git reflog expire",
        "git rev-parse --parseopt", "git cat-file --textconv HEAD:a", "git cat-file --batch", "git describe --dirty",
        "git ls-remote .", "git blame --contents=x a", "git archive HEAD", "git bundle create x HEAD", "git gc",
        "git log *", "git log $HOME", "git show [-]-output=x", "git 'log' --out\"put\"=x", "/usr/bin/git log",
        "command git log", "ls | xargs git log", "find . -exec git log {} +", "git", "git ''", "git help log",
        "git for-each-ref --shell", "git log --pretty=%G?", "git tag --format='%(signature)'",
    ],
)  # fmt: skip
def test_git_commands_that_write_or_execute_require_approval(command: str) -> None:
    """Every other command, and every option that would undo what is switched off."""
    assert CommandAssessor("standard").assess({"command": command}).decision == "confirm"


async def test_harmless_git_commands_fetch_no_missing_object(tmp_path: Path) -> None:
    """A partial clone names a remote, and a remote may be a program."""
    sentinel, folder = tmp_path / "ran", tmp_path / "work"
    _hostile(folder, sentinel, submodule=False)
    remote = tmp_path / "remote"
    remote.write_text(f"#!/bin/sh\necho ext >>{sentinel}\n")
    remote.chmod(0o755)
    partial = {
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.url": f"ext::{remote}",
    }
    for key, value in partial.items():
        subprocess.run(["git", "config", "-f", str(folder / ".git" / "config"), key, value], check=True)
    for name in sorted((folder / ".git" / "objects").glob("??/*")):
        name.unlink()
    for command in ("git show HEAD", "git log -p", "git diff HEAD", "git blame a.txt", "git status"):
        await ask(built(folder), command)
        assert not sentinel.exists(), (command, sentinel.read_text())
    await ask(built(folder), "git -c protocol.ext.allow=always show HEAD; : $((1))")
    assert "ext" in sentinel.read_text()
