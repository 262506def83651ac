"""The word lists of the SQL judge."""

from gateway.plugin.sql import words as sql_words
from gateway.plugin.word_lists import split_words

EFFECTS = split_words(
    "pg_sleep sleep benchmark load_file pg_read_file lo_import lo_export dblink dblink_exec set_config setval nextval "
    "pg_terminate_backend pg_cancel_backend pg_reload_conf load_extension readfile writefile edit xp_cmdshell sys_exec "
    "query_to_xml ts_stat get_lock release_lock pg_advisory_lock openrowset zeroblob randomblob glob txid_current "
    "setseed pg_notify pg_switch_wal crosstab xmltype httpuritype"
)


def test_no_function_with_an_effect_is_listed() -> None:
    """What waits, locks, writes, reads files, talks to the network or runs text as SQL is not on the allow-list."""
    listed = sql_words.FUNCTIONS | sql_words.TYPES | sql_words.CONNECTING
    assert not listed.intersection(EFFECTS)


def test_connecting_words_exclude_writing_statements() -> None:
    """No connecting word begins a statement that writes."""
    assert not sql_words.CONNECTING & (sql_words.WRITING | sql_words.ONE_WORD)


def test_sql_word_lists_are_in_lower_case() -> None:
    """The lists are compared with words in lower case."""
    for name, value in vars(sql_words).items():
        if isinstance(value, frozenset):
            assert all(word == word.lower() for word in value), name
