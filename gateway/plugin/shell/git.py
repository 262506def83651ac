"""The commands of git that only read, each with all options it may have (git 2.39), and the way to run them.

A repository's own configuration and attributes are an attacker's: they name programs (fsmonitor, pagers, hooks,
external diffs, textconv, filters, signature checkers, remote helpers). What is harmless is git run by GIT_FUNCTION in
GIT_ENVIRONMENT, which switch all of them off, and the writing of the index (decision 0016).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from gateway.plugin.shell.objection import Objection
from gateway.plugin.shell.options import CommandSpec, CommandUse, read_use, split_options
from gateway.plugin.shell.words import Word

_GLOBAL: Final = frozenset({"--no-pager", "-P"})
_FOLDER: Final = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./-]*")
#: A format or an ordering that has a signature checked, by a program that the configuration names.
_SIGNED: Final = re.compile(r"%[-+ ]?G|signature")


def _list_names(text: str) -> frozenset[str]:
    """Return the long options in a text. No option of git is common to all commands."""
    return split_options(text)


_COMMITS = CommandSpec(
    short="giFEP",
    valued="n",
    long=_list_names(
        "oneline all branches tags remotes graph decorate no-decorate first-parent merges no-merges reverse follow"
        " full-history simplify-merges date-order author-date-order topo-order abbrev-commit no-abbrev-commit"
        " relative-date walk-reflogs boundary left-right cherry-pick cherry-mark left-only right-only no-color color"
        " source full-diff regexp-ignore-case extended-regexp fixed-strings perl-regexp all-match invert-grep"
        " no-walk mailmap no-mailmap no-notes parents children pretty"
    ),
    long_valued=_list_names(
        "max-count skip since after until before author committer grep format date min-parents max-parents glob"
        " exclude decorate-refs decorate-refs-exclude"
    ),
    numeric=True,
)
_PATCHES = CommandSpec(
    short="pusRabwzW",
    valued="SGU",
    attached="MCB",
    long=_list_names(
        "patch no-patch raw stat numstat shortstat name-only name-status summary patch-with-stat compact-summary"
        " minimal patience histogram no-renames find-renames find-copies full-index abbrev binary cached staged"
        " merge-base ignore-space-change ignore-all-space ignore-blank-lines ignore-space-at-eol ignore-cr-at-eol"
        " function-context exit-code quiet text no-color color color-words word-diff no-prefix check cc no-ext-diff"
        " no-textconv pickaxe-all pickaxe-regex relative dirstat cumulative"
    ),
    long_valued=_list_names(
        "unified stat-width stat-count stat-name-width diff-filter diff-algorithm inter-hunk-context word-diff-regex"
        " src-prefix dst-prefix"
    ),
    numeric=True,
)


def _merge_options(first: CommandSpec, second: CommandSpec, *, valued: str = "") -> CommandSpec:
    return replace(
        first,
        short=first.short + second.short,
        valued=first.valued + second.valued + valued,
        attached=first.attached + second.attached,
        long=first.long | second.long,
        long_valued=first.long_valued | second.long_valued,
    )


_LOG = _merge_options(replace(_COMMITS, short=_COMMITS.short + "m"), _PATCHES, valued="L")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Command:
    """`operands` where only these options make operands harmless; `reads`: it prints what is in files."""

    listed: CommandSpec
    listing: frozenset[str] = frozenset()
    reads: bool = False


_LIST = split_options("--list")
_REFS = "sort points-at format"
_COMMANDS: Final[Mapping[str, _Command]] = MappingProxyType(
    {
        "status": _Command(
            listed=CommandSpec(
                short="sbz",
                long=_list_names(
                    "short branch show-stash porcelain long no-renames ahead-behind no-ahead-behind column"
                    " untracked-files"
                ),
                attached="u",
            )
        ),
        "log": _Command(listed=_LOG, reads=True),
        "show": _Command(listed=_LOG, reads=True),
        "whatchanged": _Command(listed=_LOG, reads=True),
        "diff-tree": _Command(
            listed=replace(
                _PATCHES,
                short=_PATCHES.short + "rtmcv",
                long=_PATCHES.long | _list_names("root no-commit-id pretty always"),
            ),
            reads=True,
        ),
        "diff": _Command(listed=_PATCHES, reads=True),
        "blame": _Command(
            listed=CommandSpec(
                short="lswebftpnc",
                valued="L",
                attached="CM",
                long=_list_names(
                    "porcelain line-porcelain show-stats show-name show-number show-email root incremental"
                ),
                long_valued=_list_names("since date abbrev ignore-rev"),
            ),
            reads=True,
        ),
        "branch": _Command(
            listed=CommandSpec(
                short="avri",
                long=_list_names(
                    "all remotes verbose list show-current ignore-case no-color no-column color column no-abbrev"
                ),
                long_valued=_list_names(f"contains no-contains merged no-merged abbrev {_REFS}"),
            ),
            listing=_LIST,
        ),
        "tag": _Command(
            listed=CommandSpec(
                short="li",
                attached="n",
                long=_list_names("list ignore-case no-column"),
                long_valued=_list_names(f"contains no-contains merged no-merged {_REFS}"),
            ),
            listing=split_options("-l --list"),
        ),
        "remote": _Command(listed=CommandSpec(short="v", long=_list_names("verbose"), operands=0)),
        "rev-parse": _Command(
            listed=CommandSpec(
                long=_list_names(
                    "abbrev-ref short verify quiet show-toplevel git-dir is-inside-work-tree show-prefix show-cdup"
                    " symbolic symbolic-full-name all branches tags remotes absolute-git-dir is-bare-repository"
                    " is-shallow-repository git-common-dir show-superproject-working-tree local-env-vars"
                ),
                short="q",
            )
        ),
        "rev-list": _Command(
            listed=replace(_COMMITS, long=_COMMITS.long | {"count", "objects"}),
        ),
        "ls-files": _Command(
            listed=CommandSpec(
                short="cdmosktzuv",
                valued="xX",
                long=_list_names(
                    "cached deleted modified others ignored stage killed unmerged directory no-empty-directory"
                    " exclude-standard error-unmatch full-name deduplicate eol"
                ),
                long_valued=_list_names("exclude abbrev"),
            )
        ),
        "ls-tree": _Command(
            listed=CommandSpec(
                short="drtlz", long=_list_names("long name-only name-status full-name full-tree object-only")
            )
        ),
        "cat-file": _Command(listed=CommandSpec(short="tsep"), reads=True),
        "show-ref": _Command(
            listed=CommandSpec(short="dsq", long=_list_names("heads tags head dereference hash verify quiet"))
        ),
        "for-each-ref": _Command(
            listed=CommandSpec(
                long=_list_names("ignore-case"),
                long_valued=_list_names(f"count contains no-contains merged no-merged {_REFS}"),
            )
        ),
        "merge-base": _Command(
            listed=CommandSpec(short="a", long=_list_names("all octopus independent is-ancestor fork-point"))
        ),
        "describe": _Command(
            listed=CommandSpec(
                long=_list_names("all tags contains long always exact-match first-parent"),
                long_valued=_list_names("abbrev candidates match exclude"),
            )
        ),
        "shortlog": _Command(
            listed=replace(
                _COMMITS, short="nsec", valued="", long=_COMMITS.long | {"numbered", "summary", "email", "committer"}
            )
        ),
        "reflog": _Command(listed=CommandSpec(valued="n", numeric=True, operand=re.compile("show|HEAD"), operands=2)),
        "grep": _Command(
            listed=CommandSpec(
                short="nilcwEFGPvhHIoLqzpW",
                valued="ABCem",
                long=_list_names(
                    "line-number ignore-case files-with-matches name-only count word-regexp extended-regexp"
                    " fixed-strings basic-regexp perl-regexp invert-match cached untracked no-color color heading break"
                    " show-function function-context column only-matching and or not all-match quiet"
                ),
                long_valued=_list_names("after-context before-context context max-depth max-count"),
                numeric=True,
            ),
            reads=True,
        ),
        "count-objects": _Command(listed=CommandSpec(short="vH", operands=0)),
        "stash": _Command(listed=replace(_PATCHES, operand=re.compile(r"list|show|stash@\{[0-9]+\}"), operands=2)),
        "check-ignore": _Command(
            listed=CommandSpec(short="vqn", long=_list_names("verbose quiet non-matching no-index"))
        ),
        "check-attr": _Command(listed=CommandSpec(short="a", long=_list_names("all cached"))),
        "name-rev": _Command(
            listed=CommandSpec(
                long=_list_names("name-only tags always no-undefined"), long_valued=_list_names("refs exclude")
            )
        ),
        "cherry": _Command(listed=CommandSpec(short="v", long=_list_names("verbose abbrev"))),
        "show-branch": _Command(
            listed=CommandSpec(
                short="ar",
                long=_list_names(
                    "all remotes current list no-name sha1-name merge-base independent topo-order date-order sparse"
                    " topics no-color"
                ),
            )
        ),
        "symbolic-ref": _Command(listed=CommandSpec(short="q", long=_list_names("short quiet"), operands=1)),
        "var": _Command(listed=CommandSpec(operand=re.compile("GIT_[A-Z_]+"), operands=1)),
        "worktree": _Command(listed=CommandSpec(operand=re.compile("list"), operands=1)),
        "config": _Command(
            listed=CommandSpec(
                short="lz",
                long=_list_names("list local name-only show-origin show-scope null get get-all get-regexp"),
                operands=1,
            ),
            reads=True,
        ),
        "version": _Command(listed=CommandSpec(operands=0)),
        "--version": _Command(listed=CommandSpec(operands=0)),
    }
)
#: Without one of these as their first word they do something else than list.
_NEEDED: Final = {"stash": ("list", "show"), "worktree": ("list",)}
#: A key; a newer git takes a word without a dot for a subcommand.
_KEY: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]*\..+")


def read_git(words: tuple[Word, ...]) -> CommandUse:
    """Return the command's options, values and operands; its name is the first option. Raises Objection."""
    at = 0
    values: list[tuple[str, Word]] = []
    while at < len(words) and not words[at].expands:
        if words[at].text == "-C" and at + 1 < len(words) and _is_plain_folder(words[at + 1]):
            values.append(("-C", words[at + 1]))
            at += 2
        elif words[at].text in _GLOBAL:
            at += 1
        else:
            break
    name = words[at].text if at < len(words) and not words[at].expands else ""
    command = _COMMANDS.get(name)
    if command is None:
        raise Objection("command", f"git {name!r} is not on the list of harmless commands.")
    for word in words[at + 1 :]:
        if word.text in {f"--{long}" for long in command.listed.long_valued}:
            # Some versions take the next word for its value, some do not.
            raise Objection("option", f"git {name} {word.text} has no value behind an equals sign.")
    use = read_use(f"git {name}", words[at + 1 :], command.listed)
    operands = use.operands
    if command.listing and operands and not use.options & command.listing:
        raise Objection("operand", f"git {name} is known to be harmless with operands only where it lists.")
    first = words[at + 1].text if len(words) > at + 1 else ""
    if name in _NEEDED and first not in _NEEDED[name]:
        raise Objection("operand", f"git {name} is known to be harmless only as `git {name} {_NEEDED[name][0]}`.")
    if name == "config" and not (operands or use.options & split_options("-l --list")):
        raise Objection("operand", "git config is known to be harmless only with a key, or with --list.")
    if name == "config" and operands and (operands[0].expands or not _KEY.fullmatch(operands[0].text)):
        raise Objection("operand", f"git config is known to be harmless only with a key, not {operands[0].text!r}.")
    for option, word in use.values:
        backwards = option == "--sort" and word.text.startswith("-") and not word.text.startswith("--")
        if word.expands or (word.text.startswith("-") and not backwards) or _SIGNED.search(word.text):
            raise Objection("option", f"git {name} {option} is not known to be harmless with {word.text!r}.")
    return CommandUse(use.options | {name}, (*values, *use.values), operands)


def prints_contents(use: CommandUse) -> bool:
    """Return whether this use of git prints what is in files, of any commit, or the configuration."""
    return any(name in use.options and command.reads for name, command in _COMMANDS.items())


def _is_plain_folder(word: Word) -> bool:
    return not word.expands and not word.tilde and bool(_FOLDER.fullmatch(word.text))


#: Overrides every configuration file; a key that this git does not know is ignored.
_CONFIGURATION: Final = (
    ("core.fsmonitor", "false"),
    ("core.hooksPath", "/dev/null"),
    ("core.pager", "cat"),
    ("core.attributesFile", "/dev/null"),
    ("core.alternateRefsCommand", "false"),
    ("core.sshCommand", "false"),
    ("core.gitProxy", "false"),
    ("core.editor", "false"),
    ("core.askPass", "false"),
    ("core.untrackedCache", "false"),
    ("credential.helper", ""),
    ("diff.autoRefreshIndex", "false"),
    ("diff.external", ""),
    ("diff.submodule", "short"),
    ("diff.ignoreSubmodules", "all"),
    ("log.diffMerges", "separate"),
    ("log.showSignature", "false"),
    ("gpg.program", "false"),
    ("gpg.openpgp.program", "false"),
    ("gpg.x509.program", "false"),
    ("gpg.ssh.program", "false"),
    ("interactive.diffFilter", "false"),
    ("protocol.allow", "never"),
    ("status.submoduleSummary", "false"),
    ("submodule.recurse", "false"),
    ("safe.directory", "*"),  # whose repository it is does not matter where nothing of it runs
)

GIT_ENVIRONMENT: Final[tuple[tuple[str, str], ...]] = (
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_ALLOW_PROTOCOL", "none"),
    ("GIT_PAGER", "cat"),
    ("GIT_CONFIG_COUNT", str(len(_CONFIGURATION))),
    *((f"GIT_CONFIG_KEY_{n}", key) for n, (key, _) in enumerate(_CONFIGURATION)),
    *((f"GIT_CONFIG_VALUE_{n}", value) for n, (_, value) in enumerate(_CONFIGURATION)),
)

#: Filters and diff drivers have names of the repository's choice, so no fixed variable reaches them: each filter of the
#: configuration is emptied by its name, and every command that would run a diff driver gets an option against it.
GIT_FUNCTION: Final = r"""git() (
while :; do
  case $1 in
    --no-pager|-P) shift ;;
    -C) cd -- "$2" || exit 128; shift 2 ;;
    *) break ;;
  esac
done
n=$GIT_CONFIG_COUNT
set -f
IFS='
'
for key in $(command git config --name-only --get-regexp '^filter\.'); do
  case $key in
    *.clean|*.smudge|*.process) value= ;;
    *.required) value=false ;;
    *) continue ;;
  esac
  export "GIT_CONFIG_KEY_$n=$key" "GIT_CONFIG_VALUE_$n=$value"
  n=$((n + 1))
done
export GIT_CONFIG_COUNT=$n
name=$1
shift
case $name in
  log|show|diff|blame|whatchanged|diff-tree) set -- --no-ext-diff --no-textconv "$@" ;;
  stash)
    kind=$1
    shift
    # With an option of ours it would print the changes, and not the names of files, which it prints without any.
    case "$kind$IFS$*" in *"$IFS"-*|list*) ;; *) set -- --stat "$@" ;; esac
    set -- "$kind" --no-ext-diff --no-textconv --ignore-submodules=all "$@" ;;
  status) set -- --ignore-submodules=all "$@" ;;
esac
case $name in
  log|show|diff|whatchanged|diff-tree) set -- --ignore-submodules=all "$@" ;;
esac
exec git "$name" "$@"
)
"""
