"""A call that asks still asks, however it is spelled: comments, case, white space, quoting, encodings, parentheses.

`make soak` looks for minutes rather than seconds.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from verdicts import ASSESSORS, TOOLS, cases

from gateway.contracts.risk import Verdict
from gateway.plugin.sql.words import WRITING

QUICK = settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
DEEP = settings(QUICK, max_examples=40_000)

Change = Callable[[str], str]
Case = tuple[str, str]  # a profile, and what asks under it


def asking(kind: str, argument: str) -> list[Case]:
    """Every text that asks, with a profile under which it does."""
    found: list[Case] = []
    for case in cases(kind):
        if case["expect"] == "confirm" and set(case["arguments"]) <= {argument, "method", "operation"}:
            profile = "hardened" if case["tier"] == "hardening" else "standard"
            text = case["arguments"].get(argument)
            if isinstance(text, str) and text:
                found.append((profile, text))
    return found


def upper(text: str) -> str:
    """ASCII letters only: other letters may turn into ASCII ones."""
    return "".join(char.upper() if char.isascii() else char for char in text)


def lower(text: str) -> str:
    return "".join(char.lower() if char.isascii() else char for char in text)


def drawn(data: st.DataObject, changes: Sequence[Change]) -> Change:
    return data.draw(st.sampled_from(changes))


def decision(kind: str, profile: str, arguments: dict[str, Any]) -> str:
    verdict: Verdict = ASSESSORS[profile][TOOLS[kind]].assess(arguments)
    return verdict.decision


# SQL.

#: A comment or quote that is open would swallow what is put behind it, and a comment at the end of a line be closed.
OPEN_TEXT = re.compile(r"--|#|/\*|['\"`$\[\]\\]")
GAPS = (" ", "  ", "\n", "\t", "\r\n", "/**/", " /* x */ ", " -- x\n", "/* ; */", " /* ' */ ")
SQL = asking("sql", "sql")
PLAIN_SQL = [case for case in SQL if not OPEN_TEXT.search(case[1])]
SQL_ENDS: Sequence[Change] = (
    str,
    lambda sql: sql + ";",
    lambda sql: sql + " ;\n",
    lambda sql: sql + "\n-- SELECT 1",
    lambda sql: sql + "\n/* SELECT 1 */",
    lambda sql: "/* SELECT 1 */ " + sql,
    lambda sql: "-- SELECT 1\n" + sql,
    lambda sql: "\n\t" + sql,
    lambda sql: f"({sql})",
    lambda sql: f"( ( {sql} ) )",
)
#: A statement that changes something does so within another one, too.
INSIDE: Sequence[Change] = (
    lambda sql: f"SELECT 1; {sql}",
    lambda sql: f"SELECT ({sql})",
    lambda sql: f"SELECT * FROM ({sql}) x",
    lambda sql: f"WITH x AS ({sql}) SELECT * FROM x",
    lambda sql: f"EXPLAIN ANALYZE {sql}",
    lambda sql: f"EXPLAIN (ANALYZE, VERBOSE) {sql}",
)


def vary_sql(data: st.DataObject) -> None:
    profile, sql = data.draw(st.sampled_from(PLAIN_SQL))
    pieces = sql.split(" ")
    gaps = data.draw(st.lists(st.sampled_from(GAPS), min_size=len(pieces), max_size=len(pieces)))
    change = drawn(data, [str, upper, lower])
    varied = "".join(gap + change(piece) for gap, piece in zip(("", *gaps[1:]), pieces, strict=True))
    begins = re.match(r"\w*", sql.lower())
    writes = begins is not None and begins.group() in WRITING
    varied = drawn(data, [*SQL_ENDS, *(INSIDE if writes else ())])(varied)
    assert decision("sql", profile, {"sql": varied}) == "confirm", varied


def vary_hostile_sql(data: st.DataObject) -> None:
    """Quotes and comments are left as they are; around them everything may be different."""
    profile, sql = data.draw(st.sampled_from([case for case in SQL if case not in PLAIN_SQL]))
    change = drawn(data, [str, upper, lower])
    before = data.draw(st.sampled_from(["", " ", "\n", "/* x */", "-- x\n", "("]))
    varied = before + change(sql) + data.draw(st.sampled_from(["", ";", " ;", "\n;\n", ")"]))
    assert decision("sql", profile, {"sql": varied}) == "confirm", varied


# Commands.

PLAIN_WORD = re.compile(r"[A-Za-z0-9_./-]+")
#: With one of these at its end, or as a whole, the text has another meaning once something stands before or behind it.
UNFINISHED = re.compile(r"\s*(?:#.*)?|.*\\", re.DOTALL)
COMMANDS = [case for case in asking("command", "command") if not UNFINISHED.fullmatch(case[1])]
QUOTINGS: Sequence[Change] = (
    str,
    lambda word: f"'{word}'",
    lambda word: f'"{word}"',
    lambda word: f"{word[:1]}''{word[1:]}",
    lambda word: f'{word}""',
    lambda word: f"\\{word}",
)
AROUND: Sequence[Change] = (
    str,
    upper,
    lambda command: f"  {command}\t",
    lambda command: f"\n{command}\n",
    lambda command: f"{command};",
    lambda command: f"{command} 2>/dev/null",
    lambda command: f"{command} >/dev/null 2>&1",
    lambda command: f"{command} | cat",
    lambda command: f"{command} && true",
    lambda command: f"{command}; true",
    lambda command: f"{command} || true",
    lambda command: f"ls; {command}",
    lambda command: f"ls && {command}",
    lambda command: f"cat a | {command}",
    lambda command: f"( {command} )",
    lambda command: f"{{ {command}; }}",
    lambda command: f"! {command}",
    lambda command: f"echo $({command})",
    lambda command: f'echo "$({command})"',
    lambda command: f"echo `{command}`",
    lambda command: f"cat <({command})",
    lambda command: f"X=1 {command}",
    lambda command: f"command {command}",
    lambda command: f"time {command}",
)


def vary_command(data: st.DataObject) -> None:
    profile, command = data.draw(st.sampled_from(COMMANDS))
    if not re.search(r"['\"\\]", command):
        quote = drawn(data, QUOTINGS)
        words = command.split(" ")
        at = data.draw(st.integers(0, len(words) - 1))
        words[at] = quote(words[at]) if PLAIN_WORD.fullmatch(words[at]) else words[at]
        command = data.draw(st.sampled_from([" ", "  ", "\t", " \t "])).join(words)
    change = drawn(data, AROUND)
    if profile == "hardened" or command == "xargs":  # asks for a path, an input or an end; a pipe may give one
        change = drawn(data, [str, AROUND[2], AROUND[4], AROUND[5], AROUND[11], AROUND[12]])
    varied = change(command)
    assert decision("command", profile, {"command": varied}) == "confirm", varied


# URLs and methods.

URLS = [
    case for case in asking("http", "url") if decision("http", case[0], {"method": "GET", "url": case[1]}) != "auto"
]


def encoded(text: str) -> str:
    return "".join(f"%{ord(char):02x}" if char.isascii() and char.isalnum() else char for char in text)


def with_port(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    host = re.match(r"[\w.-]+(?=/|\Z)", rest)
    return f"{scheme}{separator}{host.group()}:80{rest[host.end() :]}" if separator and host else url


URL_CHANGES: Sequence[Change] = (
    str,
    upper,
    lower,
    with_port,
    lambda url: url + "#x",
    lambda url: re.sub("^http:", "HTTP:", url),
    lambda url: re.sub("^http:", "https:", url),
    lambda url: url.replace("://", "://user@", 1),
    lambda url: url.replace("://", "://a:b@", 1),
    lambda url: url.replace("://", ":///", 1),
    lambda url: url.replace("://", ":\\\\", 1),
    lambda url: re.sub(r"(?<=://)([\w.-]+?)\.?(?=/|$)", r"\1.", url),
    lambda url: re.sub(r"(?<=://)([\w.-]+)(?=/|$)", lambda host: encoded(host.group()), url),
    lambda url: f" {url}",
    lambda url: f"{url}\n",
    lambda url: f"https://example.com@{url.partition('://')[2]}",
)


def vary_url(data: st.DataObject) -> None:
    profile, url = data.draw(st.sampled_from(URLS))
    if "%" in url or "?" in url or url != url.strip():  # upper case may undo an escape, and white space become inner
        return
    change = drawn(data, URL_CHANGES)
    method = data.draw(st.sampled_from(["GET", "get", "HEAD", "OPTIONS"]))
    assert decision("http", profile, {"method": method, "url": change(url)}) == "confirm", change(url)


METHODS = [
    case["arguments"]["method"]
    for case in cases("http")
    if case["expect"] == "confirm" and isinstance(case["arguments"].get("method"), str)
]
METHODS = [method for method in METHODS if method.upper() not in ("GET", "HEAD", "OPTIONS")]


def vary_method(data: st.DataObject) -> None:
    method = data.draw(st.sampled_from(METHODS))
    change = drawn(data, [str, upper, lower, lambda text: f" {text}", lambda text: f"{text}\t"])
    arguments = {"method": change(method), "url": "https://example.com/"}
    assert decision("http", "standard", arguments) == "confirm", arguments


# Paths.

PATHS = [case for case in asking("file", "path") if case[0] == "hardened"]
PATH_CHANGES: Sequence[Change] = (
    str,
    upper,
    lambda path: path.replace("/", "//"),
    lambda path: path.replace("/", "/./"),
    lambda path: path.replace("/", "/x/../"),
    lambda path: path.replace("/", "\\"),
    lambda path: path + "/",
)


def vary_path(data: st.DataObject) -> None:
    profile, path = data.draw(st.sampled_from(PATHS))
    change = drawn(data, PATH_CHANGES)
    if urlsplit(path.replace("\\", "/")).scheme or path.startswith(("//", "\\\\")):
        change = upper
    arguments = {"operation": data.draw(st.sampled_from(["read", "list"])), "path": change(path)}
    assert decision("file", profile, arguments) == "confirm", arguments


VARIATIONS = (vary_sql, vary_hostile_sql, vary_command, vary_url, vary_method, vary_path)


@pytest.mark.judged
@pytest.mark.parametrize("vary", VARIATIONS)
def test_variants_of_risky_calls_still_require_approval(vary: Callable[[st.DataObject], None]) -> None:
    """However it is spelled."""
    QUICK(given(st.data())(vary))()


@pytest.mark.soak
@pytest.mark.parametrize("vary", VARIATIONS)
def test_many_more_variants_of_risky_calls_require_approval(vary: Callable[[st.DataObject], None]) -> None:
    """The same with a hundred times as many variants."""
    DEEP(given(st.data())(vary))()
    print(f"\n{vary.__name__}: {DEEP.max_examples} variants, none of them runs without asking")
