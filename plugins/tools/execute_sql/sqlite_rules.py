"""The rules for a statement in SQLite's authorizer, which SQLite's own parser consults."""

import sqlite3
from collections.abc import Callable, Collection
from typing import Final, TypeAlias

from gateway.plugin.word_lists import split_words

#: Called for each thing that a statement needs; returns SQLITE_OK or SQLITE_DENY.
Authorize: TypeAlias = Callable[..., int]

_READING: Final = frozenset(
    (
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_FUNCTION,
        sqlite3.SQLITE_RECURSIVE,
        sqlite3.SQLITE_PRAGMA,
    )
)
#: Other files, and the transaction that a call is.
_NEVER: Final = frozenset(
    (sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_SAVEPOINT)
)
_NO_FUNCTIONS: Final = split_words("load_extension fts3_tokenizer readfile writefile edit")
#: They describe the database; some take the name of a table.
_PRAGMAS: Final = split_words("""
    table_info table_xinfo table_list index_list index_info index_xinfo foreign_key_list foreign_key_check
    collation_list function_list
""")
#: SQLite's full-text search uses these by itself.
_INNER_PRAGMAS: Final = split_words("page_size data_version")

#: Functions of SQLite that compute, or look at this connection; their results are bounded by its limits. Not among
#: them: `load_extension`, `fts3_tokenizer`, `sqlite_log`, `optimize` (it rewrites an index), and the shell's functions.
FUNCTIONS: Final = split_words("""
    -> ->> abs acos acosh asin asinh atan atan2 atanh avg bm25 ceil ceiling changes char coalesce concat concat_ws cos
    cosh count cume_dist current_date current_time current_timestamp date datetime degrees dense_rank exp first_value
    floor format glob group_concat hex highlight if ifnull iif instr json json_array json_array_length
    json_error_position json_extract json_group_array json_group_object json_insert json_object json_patch json_pretty
    json_quote json_remove json_replace json_set json_type json_valid jsonb jsonb_array jsonb_extract
    jsonb_group_array jsonb_group_object jsonb_insert jsonb_object jsonb_patch jsonb_remove jsonb_replace jsonb_set
    julianday lag last_insert_rowid last_value lead length like likelihood likely ln log log10 log2 lower ltrim match
    matchinfo max median min mod nth_value ntile nullif octet_length offsets percent_rank percentile percentile_cont
    percentile_disc pi pow power printf quote radians random randomblob rank regexp replace round row_number
    rtreecheck rtreedepth rtreenode rtrim sign sin sinh snippet soundex sqlite_compileoption_get
    sqlite_compileoption_used sqlite_offset sqlite_source_id sqlite_version sqrt strftime string_agg substr substring
    subtype sum tan tanh time timediff total total_changes trim trunc typeof unhex unicode unistr unistr_quote
    unixepoch unlikely upper zeroblob
""")
#: Tables that are made as they are read, without being in the schema.
_COMPUTED_TABLES: Final = split_words("json_each json_tree jsonb_each jsonb_tree generate_series dbstat sqlite_stmt")
#: Both, by their names in a statement.
READABLE: Final = tuple(sorted(_COMPUTED_TABLES | {f"pragma_{name}" for name in _PRAGMAS}))
#: Steps of SQLite's machine that act without the authorizer.
ACTING_STEPS: Final = frozenset(("Vacuum", "IncrVacuum", "JournalMode", "Checkpoint", "AutoCommit", "Savepoint"))


def list_running_rules(*, read_only: bool) -> Authorize:
    """Return the rules of a statement that a person, or the operator's configuration, lets run."""

    def authorize(action: int, first: str | None = None, second: str | None = None, *_: str | None) -> int:
        if action in _NEVER or (read_only and action not in _READING):
            return sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_PRAGMA and (first or "").lower() not in _PRAGMAS:
            return sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _NO_FUNCTIONS:
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK

    return authorize


def list_reading_rules(modules: Collection[str], denied: list[str]) -> Authorize:
    """Return the rules of a statement that runs without approval: it reads tables, and calls only pure functions.

    `modules` are the connection's, in lower case. Each denied action is added to `denied`, in words.
    """

    def authorize(action: int, first: str | None = None, second: str | None = None, *_: str | None) -> int:
        about, name = (first or "").lower(), (second or "").lower()
        match action:
            case sqlite3.SQLITE_SELECT | sqlite3.SQLITE_RECURSIVE:
                return sqlite3.SQLITE_OK
            case sqlite3.SQLITE_READ:
                pragma = about.removeprefix("pragma_")
                if pragma != about and pragma not in _PRAGMAS:
                    what = f"runs the pragma {pragma!r}"
                elif about in modules and pragma == about and about not in _COMPUTED_TABLES:
                    what = f"opens {about!r}, which is no table of the database"
                else:
                    return sqlite3.SQLITE_OK
            case sqlite3.SQLITE_FUNCTION:
                if name in FUNCTIONS:
                    return sqlite3.SQLITE_OK
                what = f"calls {name!r}"
            case sqlite3.SQLITE_PRAGMA:
                if about in _PRAGMAS or (about in _INNER_PRAGMAS and not name):
                    return sqlite3.SQLITE_OK
                what = f"runs the pragma {about!r}"
            case _:
                what = f"{_ACTIONS.get(action, 'does more than read')}{about and f' ({about!r})'}"
        denied.append(what)
        return sqlite3.SQLITE_DENY

    return authorize


_ACTIONS: Final = {
    sqlite3.SQLITE_INSERT: "inserts rows",
    sqlite3.SQLITE_UPDATE: "changes rows",
    sqlite3.SQLITE_DELETE: "deletes rows",
    sqlite3.SQLITE_ATTACH: "opens another file",
    sqlite3.SQLITE_TRANSACTION: "ends the transaction",
    sqlite3.SQLITE_SAVEPOINT: "ends the transaction",
}
