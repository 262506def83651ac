"""The words of tools, and the tools that fit some words best, by SQLite's full-text index (FTS5) in memory.

A rare word counts for more than a usual one, a word of a name for more than one of a description, and a word of a short
description for more than one of a long one (bm25). Endings of English words do not count. Chinese, Japanese and Korean
are written without blanks: there each pair of neighbours is a word.
"""

import re
import sqlite3
import weakref
from collections.abc import Sequence
from typing import Final

from gateway.aio.cooperative import Work
from gateway.mcp_server.listing import ToolOffer

#: What is read of a description: the beginning of a long manual states what the tool is for.
DESCRIPTION_CHARS: Final = 1000
#: What a word in a name counts for, with one in a description as 1.
_NAME_WEIGHT: Final = 2
#: A word of fewer letters stands for itself only, and no others that begin with it.
_BEGINNING_CHARS: Final = 4
_PAIRED: Final = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff"
_RUN: Final = re.compile(rf"[{_PAIRED}]+|(?:(?![{_PAIRED}])[^\W_])+")
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_CREATE: Final = "create virtual table tools using fts5(name, description, tokenize = 'porter unicode61')"
_INSERT: Final = "insert into tools (rowid, name, description) values (?, ?, ?)"
_FIND: Final = f"select rowid from tools where tools match ? order by bm25(tools, {_NAME_WEIGHT}, 1), rowid"  # noqa: S608
#: Words that do not show what a person wants.
_FILLER_LINES: Final = (
    "a about after all also am an and any are as at be been but by can could did do does for from get give had has",
    "have he help her hey hi his how i if in into is it its just let like may me might my need no not of off on or our",
    "out over please shall she should so some such tell than that the their them then there these they this those to",
    "too up us use using want was we were what when where which who whom whose why will with would you your",
    "一下 一个 什么 怎么 怎样 这个 那个 我想 想要 我的 帮我 请帮 给我 可以 需要 哪里 多少 一些",
)
_FILLERS: Final = frozenset(word for line in _FILLER_LINES for word in line.split())
#: Words that people and authors of tools use in one sense: the first of each line stands for all.
_SENSES: Final = (
    "search find look lookup",
    "create make new",
    "delete remove",
    "update edit modify change",
    "execute run",
    "list show",
    "picture image photo",
    "folder directory",
    "email mail",
    "documentation docs",
    "repository repo",
    "database db",
    "website site page",
    "paper article",
    "ticket issue",
    "cost price spend spent",
    "song track",
    "clear purge empty",
    "驾车 开车 自驾",
    "餐厅 美食 饭店",
)
_SENSE_OF: Final = {word: line.split()[0] for line in _SENSES for word in line.split()}


class WordIndex:
    """The words of some tools, as `index_words` has read them. They are gone with it."""

    def __init__(self, offers: Sequence[ToolOffer], rows: sqlite3.Connection) -> None:
        self.offers = offers
        self._rows = rows
        weakref.finalize(self, rows.close)

    def find_offers(self, words: Sequence[str]) -> list[ToolOffer]:
        """Return the tools with some of these words (as `split_words` makes them), the best first."""
        if not words:
            return []
        asked = " OR ".join(f'"{word}"{"*" if _is_prefix_word(word) else ""}' for word in words)
        return [self.offers[row] for (row,) in self._rows.execute(_FIND, (asked,))]


def index_words(offers: Sequence[ToolOffer]) -> Work[WordIndex]:
    """Read the words of some tools, in parts: there may be thousands."""
    index = WordIndex(offers, rows := sqlite3.connect(":memory:", check_same_thread=False))
    rows.execute(_CREATE)
    for number, offer in enumerate(offers):
        yield
        rows.execute(_INSERT, _build_row(number, offer))
    rows.commit()
    return index


def split_words(text: str) -> list[str]:
    """Return the words of a text, in their order."""
    words: list[str] = []
    for run in _RUN.findall(_HUMP.sub(" ", text)):
        if re.match(f"[{_PAIRED}]", run):
            words += [run[at : at + 2] for at in range(max(len(run) - 1, 1))]
        else:
            words.append(run.casefold())
    return list(map(_get_synonym_group, words))


def select_wanted_words(query: str) -> list[str]:
    """Return the distinct significant words of a query; all of them if none is significant."""
    words = list(dict.fromkeys(split_words(query)))
    return [word for word in words if word not in _FILLERS] or words


def _build_row(number: int, offer: ToolOffer) -> tuple[int, str, str]:
    definition = next(iter(offer.definitions.values()))
    names = split_words(f"{offer.inside} {definition.get('title', '')}")
    return number, " ".join(names), " ".join(split_words(definition["description"][:DESCRIPTION_CHARS]))


def _get_synonym_group(word: str) -> str:
    return _SENSE_OF.get(word) or _SENSE_OF.get(word.removesuffix("s"), word)


def _is_prefix_word(word: str) -> bool:
    """Return whether a word also stands for the words that begin with it, as a lone character of a pair does."""
    return len(word) >= _BEGINNING_CHARS or (len(word) == 1 and not word.isascii())
