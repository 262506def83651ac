"""The longer everyday list's commands for texts, each with all options it may have (see shell_commands)."""

import re
from collections.abc import Mapping
from types import MappingProxyType

from gateway.plugin.shell.options import CommandSpec, build_long_names, split_options

_COMMANDS = {
    "sort": CommandSpec(
        short="bcCdfghiMmnrRsuVz",
        valued="ktS",
        long=build_long_names(
            "ignore-leading-blanks dictionary-order ignore-case general-numeric-sort human-numeric-sort"
            " ignore-nonprinting month-sort numeric-sort random-sort reverse version-sort check merge stable unique"
            " zero-terminated debug"
        ),
        long_valued=split_options("key field-separator sort buffer-size parallel"),
        reads=1,
    ),
    "uniq": CommandSpec(
        short="cdDiuz",
        valued="fsw",
        long=build_long_names("count repeated all-repeated ignore-case unique zero-terminated group"),
        long_valued=split_options("skip-fields skip-chars check-chars"),
        operand=re.compile(r"[^+].*", re.DOTALL),
        operands=1,
        odd=True,  # a second operand is written, and some take an option behind the first for it
        reads=1,
    ),
    "shuf": CommandSpec(
        short="erz",
        valued="ni",
        long=build_long_names("echo repeat zero-terminated"),
        long_valued=split_options("head-count input-range"),
        endless=split_options("-r --repeat"),
        reads=1,
    ),
    "cut": CommandSpec(
        short="nsz",
        valued="bcdf",
        long=build_long_names("complement only-delimited zero-terminated"),
        long_valued=split_options("bytes characters delimiter fields output-delimiter"),
        open=True,
        reads=1,
    ),
    "nl": CommandSpec(
        short="p",
        valued="bdfhilnsvw",
        long=build_long_names("no-renumber"),
        long_valued=split_options(
            "body-numbering section-delimiter footer-numbering header-numbering line-increment join-blank-lines"
            " number-format number-separator starting-line-number number-width"
        ),
        open=True,
        reads=1,
    ),
    "tr": CommandSpec(
        short="cCdst",
        long=build_long_names("complement delete squeeze-repeats truncate-set1"),
        operands=2,
        reads=3,
        text=2,
    ),
    "tac": CommandSpec(
        short="br",
        valued="s",
        long=build_long_names("before regex"),
        long_valued=split_options("separator"),
        open=True,
        reads=1,
    ),
    "rev": CommandSpec(long=build_long_names(""), open=True, reads=1),
    "paste": CommandSpec(
        short="sz",
        valued="d",
        long=build_long_names("serial zero-terminated"),
        long_valued=split_options("delimiters"),
        open=True,
        reads=1,
    ),
    "comm": CommandSpec(
        short="123z",
        long=build_long_names("check-order nocheck-order total zero-terminated"),
        long_valued=split_options("output-delimiter"),
        open=True,
    ),
    "join": CommandSpec(
        short="iz",
        valued="12aejotv",
        long=build_long_names("ignore-case check-order nocheck-order header zero-terminated"),
        open=True,
    ),
    "fold": CommandSpec(
        short="bcs",
        valued="w",
        long=build_long_names("bytes spaces characters"),
        long_valued=split_options("width"),
        numeric=True,
        open=True,
        reads=1,
    ),
    "fmt": CommandSpec(
        short="cstu",
        valued="pwg",
        long=build_long_names("crown-margin split-only tagged-paragraph uniform-spacing"),
        long_valued=split_options("prefix width goal"),
        numeric=True,
        open=True,
        reads=1,
    ),
    "expand": CommandSpec(
        short="i",
        valued="t",
        long=build_long_names("initial"),
        long_valued=split_options("tabs"),
        numeric=True,
        open=True,
        reads=1,
    ),
    "unexpand": CommandSpec(
        short="a",
        valued="t",
        long=build_long_names("all first-only"),
        long_valued=split_options("tabs"),
        open=True,
        reads=1,
    ),
    "column": CommandSpec(
        short="dexnLt",
        valued="cHNOoRsTWE",
        long=build_long_names("table fillrows table-noheadings table-noextreme keep-empty-lines"),
        long_valued=split_options("separator output-separator output-width table-columns table-right table-hide"),
        reads=1,
    ),
    "iconv": CommandSpec(
        short="cls",
        valued="ft",
        long=build_long_names("list silent"),
        long_valued=split_options("from-code to-code"),
        reads=1,
    ),
    "jq": CommandSpec(
        grammar="jq",
        short="acCeMnrRsSj",
        long=build_long_names(
            "ascii-output compact-output color-output exit-status join-output monochrome-output null-input raw-input"
            " raw-output raw-output0 slurp sort-keys tab unbuffered seq stream"
        ),
        long_valued=split_options("indent"),
        reads=2,
        text=1,
    ),
    "rg": CommandSpec(
        short="acFhHIilLnNopPqsSUuvVwx0.",
        valued="ABCdefgjmMtTr",
        long=build_long_names(
            "binary case-sensitive column count count-matches crlf debug files files-with-matches"
            " files-without-match fixed-strings follow glob-case-insensitive heading hidden ignore-case include-zero"
            " invert-match json line-buffered line-number line-regexp max-columns-preview mmap multiline"
            " multiline-dotall no-column no-filename no-heading no-ignore no-ignore-vcs no-line-number no-messages"
            " no-mmap null null-data one-file-system only-matching passthru pcre2 pretty quiet smart-case stats text"
            " trim type-list unicode no-unicode unrestricted vimgrep with-filename word-regexp"
        ),
        long_valued=split_options(
            "after-context before-context color colors context encoding engine glob iglob max-columns max-count"
            " max-depth max-filesize path-separator regexp file replace sort sortr threads type type-not"
        ),
        walks=True,
        text=1,
        pattern_options=split_options("-e -f --regexp --file --files"),
        patterns=split_options("-e --regexp"),
    ),
    "sed": CommandSpec(grammar="sed", reads=1),
    "diff": CommandSpec(
        short="abBcdeEiNnpqrstTuvwyZ",
        valued="CDFILSUWxX",
        long=build_long_names(
            "normal brief report-identical-files context unified ed rcs side-by-side left-column suppress-common-lines"
            " show-c-function expand-tabs initial-tab suppress-blank-empty recursive no-dereference new-file"
            " unidirectional-new-file ignore-case ignore-tab-expansion ignore-trailing-space ignore-space-change"
            " ignore-all-space ignore-blank-lines text strip-trailing-cr minimal speed-large-files color"
        ),
        long_valued=split_options(
            "show-function-line label width exclude ignore-matching-lines tabsize horizon-lines palette"
        ),
        numeric=True,
        recursive=split_options("-r --recursive"),
    ),
    "cmp": CommandSpec(
        short="bls",
        valued="in",
        long=build_long_names("print-bytes verbose quiet silent"),
        long_valued=split_options("ignore-initial bytes"),
        reads=2,
    ),
}

TEXT_COMMANDS: Mapping[str, CommandSpec] = MappingProxyType(_COMMANDS)
