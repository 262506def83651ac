"""The assessor of SQL statements: a statement that only reads runs by itself. All else needs approval."""

from collections.abc import Mapping
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from gateway.plugin import Host, Json, Plugin, Verdict
from gateway.plugin.sql.lexer import Dialect
from gateway.plugin.sql.statement import judge
from gateway.plugin.word_lists import split_words

#: Marks of statements beyond the requirement's own list (SELECT, SHOW, DESCRIBE, EXPLAIN).
_EXTENDED: Final = frozenset({"with", "values", "table", "pragma", "explain_analyze"})
_HARDENED: Final[Mapping[str, str]] = {
    "lock": "It locks rows.",
    "assignment": "It assigns a session variable.",
    "recursion": "Its recursion has no visible end.",
    "sensitive_read": "It reads password hashes or access rules.",
}
#: Arguments beside `sql` that change neither what runs nor where its result goes.
_BESIDE: Final = split_words("""
    database db schema catalog limit max_rows row_limit rows offset page page_size params parameters args bindings
    values timeout timeout_s timeout_ms timeout_seconds format output_format dialect description reason purpose
    comment explanation title risk_level
""")


class Config(BaseModel):
    """The options of the assessor of SQL statements."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    profile: Literal["literal", "standard", "hardened"] = Field(
        "standard",
        description="literal: SELECT, SHOW, DESCRIBE and EXPLAIN only; standard: also WITH, VALUES, TABLE, reading "
        "PRAGMAs and EXPLAIN ANALYZE of a query; hardened: as standard, but locks, assignments, endless recursion and "
        "sensitive tables ask.",
    )
    dialect: Dialect = Field("any", description="Whose SQL it is; any: what each database would read must be harmless.")


class SqlAssessor:
    """The assessor of `{"sql": text}`."""

    def __init__(self, config: Config) -> None:
        self._profile = config.profile
        self._dialect = config.dialect

    def assess(self, arguments: Json) -> Verdict:
        sql = arguments.get("sql")
        if not isinstance(sql, str):
            return _build_confirm_verdict("arguments", "The argument 'sql' is missing or is not a text.")
        for name, value in arguments.items():
            if name != "sql" and value is not None and name not in _BESIDE:
                return _build_confirm_verdict("arguments", f"The argument {str(name)[:40]!r} may change what happens.")
        judgement = judge(sql, dialect=self._dialect)
        if judgement.doubt:
            return _build_confirm_verdict(*judgement.doubt)
        beyond = sorted(judgement.marks & _EXTENDED)
        if beyond and self._profile == "literal":
            return _build_confirm_verdict(
                beyond[0], f"It uses {beyond[0].replace('_', ' ').upper()}, which is not on the list."
            )
        if self._profile == "hardened":
            for mark, reason in _HARDENED.items():
                if mark in judgement.marks:
                    return _build_confirm_verdict(mark, reason)
        return Verdict("auto", "whitelist", "sql.reading", "It only reads.")


def _build_confirm_verdict(rule: str, reason: str) -> Verdict:
    return Verdict("confirm", "default", f"sql.{rule}", reason)


def build(config: Config, host: Host) -> SqlAssessor:  # noqa: ARG001 - what every plugin is built with
    return SqlAssessor(config)


PLUGIN = Plugin(Config, build, judges=("sql",))
