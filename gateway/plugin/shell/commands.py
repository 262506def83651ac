"""The commands that may run by themselves, each with all options it may have (GNU coreutils 9, findutils, procps).

What is missing is missing on purpose: options that write (`sort -o`), run programs (`rg --pre`, `file -z`), read names
of files from a file, or set the clock; commands that run any others, or change the shell.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType

from gateway.plugin.shell.options import CommandSpec, build_long_names, split_options
from gateway.plugin.shell.programs import PROGRAMS
from gateway.plugin.shell.text_commands import TEXT_COMMANDS

_NUMBER = re.compile(r"[-+]?[0-9]*\.?[0-9]+")
_NO_ENVIRONMENT = re.compile(r"(?!.*env).*", re.DOTALL | re.IGNORECASE)


_SUM = CommandSpec(
    short="bctwz",
    long=build_long_names("binary check tag text zero ignore-missing quiet status strict warn"),
    open=True,
    names=True,
    reads=1,
)
_GREP = CommandSpec(
    core=True,
    short="EFGPHILNRTUVZabchilnoqrsuvwxyz",
    valued="ABCDdefm",
    long=build_long_names(
        "extended-regexp fixed-strings basic-regexp perl-regexp ignore-case no-ignore-case word-regexp line-regexp"
        " null-data no-messages invert-match byte-offset line-number line-buffered with-filename no-filename"
        " only-matching quiet silent text recursive dereference-recursive files-without-match files-with-matches count"
        " initial-tab null color colour binary"
    ),
    long_valued=frozenset(
        [
            "regexp",
            "file",
            "max-count",
            "label",
            "binary-files",
            "directories",
            "devices",
            "include",
            "exclude",
            "exclude-from",
            "exclude-dir",
            "before-context",
            "after-context",
            "context",
        ]
    ),
    numeric=True,
    open=True,
    recursive=split_options("-r -R --recursive --dereference-recursive"),
    reads=2,
    text=1,
    pattern_options=split_options("-e -f --regexp --file"),
    patterns=split_options("-e --regexp"),
)
_TEXT = CommandSpec(grammar="text", open=True)
_TEST = CommandSpec(grammar="test")
_BASE = CommandSpec(
    short="di", valued="w", long=build_long_names("decode ignore-garbage"), long_valued=split_options("wrap"), reads=1
)

_CORE = {
    "ls": CommandSpec(
        core=True,
        short="aAbBcCdDfFgGhHiIklLmnNopqQrRsStuUvxXZ1",
        valued="ITw",
        long=build_long_names(
            "all almost-all author escape ignore-backups color colour directory dired classify file-type full-time"
            " group-directories-first no-group human-readable si dereference-command-line hyperlink inode kibibytes"
            " dereference dereference-command-line-symlink-to-dir numeric-uid-gid literal hide-control-chars"
            " show-control-chars quote-name reverse recursive size context zero"
        ),
        long_valued=split_options(
            "block-size format hide indicator-style ignore quoting-style sort time time-style tabsize width"
        ),
        open=True,
        names=True,
        recursive=split_options("-R --recursive"),
    ),
    "cat": CommandSpec(
        core=True,
        short="AbeEnstTuv",
        long=build_long_names("show-all number-nonblank show-ends number squeeze-blank show-tabs show-nonprinting"),
        open=True,
        reads=1,
    ),
    "pwd": CommandSpec(core=True, short="LP", long=build_long_names("logical physical"), operands=0),
    "echo": CommandSpec(core=True, grammar="text", open=True),
    "grep": _GREP,
    "egrep": _GREP,
    "fgrep": _GREP,
    "head": CommandSpec(
        core=True,
        short="qvz",
        valued="cn",
        long=build_long_names("quiet silent verbose zero-terminated"),
        long_valued=split_options("bytes lines"),
        numeric=True,
        open=True,
        reads=1,
    ),
    "tail": CommandSpec(
        core=True,
        short="fFqvzr",
        valued="cns",
        long=build_long_names("follow retry quiet silent verbose zero-terminated"),
        long_valued=split_options("bytes lines max-unchanged-stats pid sleep-interval"),
        numeric=True,
        open=True,
        endless=split_options("-f -F --follow --retry"),
        reads=1,
    ),
    "wc": CommandSpec(
        core=True,
        short="clLmw",
        long=build_long_names("bytes chars lines max-line-length words total"),
        open=True,
        names=True,
        reads=1,
    ),
    "find": CommandSpec(core=True, grammar="find", names=True, walks=True),
    "which": CommandSpec(core=True, short="as", long=build_long_names("all"), open=True, text=256),
    "type": CommandSpec(core=True, short="afptP", open=True, text=256),
    "whoami": CommandSpec(core=True, long=build_long_names(""), operands=0),
    "id": CommandSpec(
        core=True,
        short="agGnruzZ",
        long=build_long_names("context group groups name real user zero"),
        open=True,
        text=256,
    ),
    "date": CommandSpec(
        core=True,
        short="uR",
        valued="dr",
        attached="I",
        long=build_long_names("utc universal iso-8601 rfc-email resolution debug"),
        long_valued=split_options("date reference rfc-3339"),
        operand=re.compile(r"\+.*", re.DOTALL),
        operands=1,
        extended=split_options("-d --date"),
        text=1,
    ),
    "uptime": CommandSpec(core=True, short="ps", long=build_long_names("pretty since"), operands=0),
}

_FILES = {
    "basename": CommandSpec(
        short="az",
        valued="s",
        long=build_long_names("multiple zero"),
        long_valued=split_options("suffix"),
        open=True,
        text=256,
    ),
    "dirname": CommandSpec(short="z", long=build_long_names("zero"), open=True, text=256),
    "realpath": CommandSpec(
        short="eEmLPqsz",
        long=build_long_names(
            "canonicalize-existing canonicalize-missing logical physical quiet strip no-symlinks zero"
        ),
        long_valued=split_options("relative-to relative-base"),
        open=True,
        text=256,
    ),
    "readlink": CommandSpec(
        short="efmnqsvz",
        long=build_long_names(
            "canonicalize canonicalize-existing canonicalize-missing no-newline quiet silent verbose zero"
        ),
        open=True,
        text=256,
    ),
    "stat": CommandSpec(
        short="fLt",
        valued="c",
        long=build_long_names("dereference file-system terse cached"),
        long_valued=split_options("format printf"),
        open=True,
        text=256,
    ),
    "file": CommandSpec(
        short="bEhikLlNnrsvSd0",
        valued="eFP",
        long=build_long_names(
            "brief mime mime-type mime-encoding keep-going dereference no-dereference no-pad no-buffer raw extension"
            " apple"
        ),
        long_valued=split_options("exclude separator"),
    ),
    "du": CommandSpec(
        short="0abcDhHklLmsSx",
        valued="Bdt",
        long=build_long_names(
            "null all apparent-size bytes total dereference-args human-readable inodes si summarize separate-dirs"
            " dereference no-dereference count-links one-file-system time"
        ),
        long_valued=split_options("block-size max-depth threshold exclude time-style"),
        open=True,
        names=True,
        walks=True,
    ),
    "df": CommandSpec(
        short="ahHiklPTv",
        valued="Btx",
        long=build_long_names("all human-readable si inodes local no-sync portability print-type total output"),
        long_valued=split_options("block-size type exclude-type"),
        open=True,
        names=True,
    ),
    "tree": CommandSpec(
        odd=True,
        short="adfilxpsughDFqNQrtUcvACSJX",
        valued="LPIHT",
        long=build_long_names(
            "dirsfirst filesfirst noreport prune matchdirs ignore-case gitignore du si inodes device nolinks metafirst"
        ),
        long_valued=split_options("filelimit sort charset timefmt"),
        names=True,
        walks=True,
    ),
    "strings": CommandSpec(
        short="afow",
        valued="entsT",
        long=build_long_names("all print-file-name include-all-whitespace"),
        long_valued=split_options("bytes radix encoding"),
        numeric=True,
        reads=1,
    ),
    "od": CommandSpec(
        short="abcdfilosvx",
        valued="AjNSt",
        attached="w",
        long=build_long_names("output-duplicates traditional"),
        long_valued=split_options("address-radix endian skip-bytes read-bytes strings format"),
        open=True,
        reads=1,
    ),
    "hexdump": CommandSpec(short="bcCdovxX", valued="ns", long=build_long_names(""), reads=1),
    "xxd": CommandSpec(odd=True, short="abCdeEiupr", valued="cglnosR", long=build_long_names(""), operands=1, reads=1),
    "base64": _BASE,
    "base32": _BASE,
    "md5sum": _SUM,
    "sha1sum": _SUM,
    "sha224sum": _SUM,
    "sha256sum": _SUM,
    "sha384sum": _SUM,
    "sha512sum": _SUM,
    "b2sum": _SUM,
    "cksum": CommandSpec(
        short="abcz",
        long=build_long_names("base64 raw tag untagged zero"),
        long_valued=split_options("algorithm length"),
        open=True,
        names=True,
        reads=1,
    ),
    "sum": CommandSpec(short="rs", long=build_long_names("sysv"), open=True, reads=1),
}

_MACHINE = {
    "uname": CommandSpec(
        short="asnrvmpio",
        long=build_long_names(
            "all kernel-name nodename kernel-release kernel-version machine processor hardware-platform"
            " operating-system"
        ),
        operands=0,
    ),
    "hostname": CommandSpec(
        short="aAdfiIs",
        long=build_long_names("alias all-fqdns all-ip-addresses domain fqdn long ip-address short"),
        operands=0,
    ),
    "arch": CommandSpec(long=build_long_names(""), operands=0),
    "nproc": CommandSpec(long=build_long_names("all"), long_valued=split_options("ignore"), operands=0),
    "free": CommandSpec(
        short="bghklmtvw",
        valued="sc",
        long=build_long_names("bytes kilo mega giga tera kibi mebi gibi human si lohi total wide committed"),
        long_valued=split_options("seconds count"),
        operands=0,
        endless=split_options("-s --seconds"),
    ),
    "ps": CommandSpec(
        short="AadefFHjlLMNTwyZ",
        valued="CGgkopqstuUO",
        long=build_long_names("deselect forest headers no-headers no-heading headings info"),
        long_valued=split_options("sort format pid ppid user User group Group cols columns width lines rows tty sid"),
        value=_NO_ENVIRONMENT,
        operand=re.compile("[acfghjlmnrTuvwx]{1,8}|[0-9,]+"),
        text=256,
    ),
    "groups": CommandSpec(long=build_long_names(""), open=True, text=256),
    "users": CommandSpec(long=build_long_names(""), operands=0),
    "w": CommandSpec(
        short="fhiosp", long=build_long_names("no-header from short ip-addr old-style pids"), operands=1, text=1
    ),
    "who": CommandSpec(
        short="abdHlmpqrstTuw",
        long=build_long_names(
            "all boot dead heading login process count runlevel short time mesg message writable users"
        ),
        operands=2,
    ),
    "logname": CommandSpec(long=build_long_names(""), operands=0),
    "tty": CommandSpec(short="s", long=build_long_names("silent quiet"), operands=0),
    "seq": CommandSpec(
        short="w",
        valued="fs",
        long=build_long_names("equal-width"),
        long_valued=split_options("format separator"),
        numeric=True,
        operand=_NUMBER,
        operands=3,
        text=3,
    ),
    "expr": _TEXT,
    "true": _TEXT,
    "false": _TEXT,
    "test": _TEST,
    "[": _TEST,
    "command": CommandSpec(grammar="lookup"),
    "cd": CommandSpec(short="LP", open=True),
}

COMMANDS: Mapping[str, CommandSpec] = MappingProxyType({**_CORE, **TEXT_COMMANDS, **_FILES, **_MACHINE, **PROGRAMS})
