"""The tool `execute_sql`: one statement on one database, and its rows as JSON.

1. The connection decides whether something can be written (read-only file, read-only transaction, authorizer, role),
   never the words of the statement.
2. One statement a call, on a connection of its own. Only committed changes remain.
3. Time, rows and bytes are bounded. A call that is cancelled or late is rolled back.
4. A statement that runs because it was judged harmless does so only while the database itself agrees.
"""

import asyncio
import importlib.util
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from gateway.plugin import Exchange, Host, Json, Plugin, ToolCall, ToolResult, ToolSpec, Verdict, positive_seconds
from gateway.plugin.sql.statement import judge
from gateway.plugin.templates import Value, Values, filled_object

from .engine import Doubt, Engine, Statement, StatementError
from .rows import SqlRows
from .sqlite import Sqlite
from .workflow_sql import Dialect, statement_with

SQLITE, POSTGRES = "sqlite:///", ("postgresql://", "postgres://")
MAX_SQL = 100_000  # characters
MAX_PARAMS = 1000

Seconds = Annotated[float, BeforeValidator(positive_seconds)]


class Config(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    requires_approval: bool = Field(default=False, description="Ask a person before every call, whatever its risk.")
    untrusted: bool = Field(default=False, description="Its results come from strangers and taint the run.")
    url: str = Field(
        default="sqlite:///./data.db", repr=False, description="The database: `sqlite:///FILE` or `postgresql://...`."
    )
    read_only: bool = Field(default=True, description="Open the database for reading only.")
    timeout: Seconds = Field(default=30.0, description="Longest time for a statement.")
    max_rows: int = Field(default=1000, gt=0, description="Rows in a result.")
    max_bytes: int = Field(default=256 * 1024, gt=0, description="Size of the rows of a result, as JSON.")

    @field_validator("url")
    @classmethod
    def _is_known(cls, url: str) -> str:
        """Check the form of the URL. No message repeats it, because it may contain a password."""
        if url.startswith(POSTGRES):
            if importlib.util.find_spec("asyncpg") is None:
                raise ValueError("PostgreSQL needs asyncpg: pip install 'twolane[postgres]'")
        elif not url.startswith(SQLITE) or url.removeprefix(SQLITE) in ("", ":memory:") or "\0" in url:
            raise ValueError("expected sqlite:///FILE or postgresql://USER@HOST/DATABASE")
        return url


class ExecuteSql:
    """The source of this one tool, whose database examines its calls."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._engine = _engine(config)
        self._dialect: Dialect = "postgres" if config.url.startswith(POSTGRES) else "sqlite"

    async def list_tools(self) -> Sequence[ToolSpec]:
        name, mark = ("PostgreSQL", "`$1`, `$2`") if self._dialect == "postgres" else ("SQLite", "each `?`")
        what = "read-only" if self._config.read_only else "changes are committed"
        flags = replace(_SPEC, untrusted=self._config.untrusted, requires_approval=self._config.requires_approval)
        description = f"Runs one SQL statement on the {name} database ({what}) and returns its rows as JSON."
        return (replace(flags, description=description, parameters=_parameters(mark)),)

    def bound(self, arguments: Json, values: Values) -> Json:
        """Bind values to the statement: a value is never a part of it. See `Binder`. Raises ValueError."""
        bound: list[object] = []

        def write(pieces: Sequence[str | Value]) -> str:
            statement, found = statement_with(pieces, dialect=self._dialect)
            bound.extend(found)
            return statement

        filled = filled_object(arguments, values, writers={"sql": write})
        if bound and "params" in filled:
            raise ValueError("it has references in `sql` and `params` besides: write the values in one of the two ways")
        return {**filled, "params": bound} if bound else filled

    async def refusal(self, call: ToolCall, exchange: Exchange) -> str | None:  # noqa: ARG002 - as for `call`
        """Return why the call cannot run: several statements, or one that the connection would not let run."""
        statement = _statement(call)
        if isinstance(statement, str):
            return statement
        reason = await self._engine.refused(statement)
        return reason and f"The statement failed: {reason}."

    async def examine(self, call: ToolCall, exchange: Exchange) -> Verdict | None:  # noqa: ARG002 - as for `call`
        """Return the database's own doubt.

        If it is away, the text must be harmless to every database that we can read.
        """
        statement = _statement(call)
        if isinstance(statement, str):
            return None  # it fails, whoever lets it run
        try:
            doubt = await self._engine.doubt(statement)
        except StatementError:
            judged = judge(statement.sql).doubt
            doubt = None if judged is None else Doubt(*judged)
        return None if doubt is None else Verdict("confirm", "default", f"sql.{doubt.rule}", doubt.reason)

    async def call(self, call: ToolCall, exchange: Exchange) -> ToolResult:  # noqa: ARG002 - the same for every run
        statement = _statement(call)
        if isinstance(statement, str):
            return ToolResult(statement, ok=False)
        table = SqlRows(self._config.max_rows, self._config.max_bytes)
        try:
            async with asyncio.timeout(self._config.timeout):
                await self._engine.run(statement, table)
        except TimeoutError:
            return ToolResult(f"The statement took longer than {self._config.timeout:g} seconds: stopped.", ok=False)
        except StatementError as error:
            return ToolResult(f"The statement failed: {error}.", ok=False)
        return ToolResult(str(table))

    async def close(self) -> None:
        await self._engine.close()


def _engine(config: Config) -> Engine:
    if not config.url.startswith(POSTGRES):
        return Sqlite(config.url.removeprefix(SQLITE), read_only=config.read_only)
    from .postgres import Postgres  # asyncpg is an optional dependency, of those who have PostgreSQL

    return Postgres(config.url, read_only=config.read_only, timeout_s=config.timeout)


def _statement(call: ToolCall) -> Statement | str:
    """Return the statement to run, or the problem with the arguments."""
    sql, params = call.arguments.get("sql"), call.arguments.get("params", [])
    if not isinstance(sql, str) or not sql.strip():
        return "`sql` is missing, or is not a text."
    if len(sql) > MAX_SQL:
        return f"`sql` is longer than {MAX_SQL} characters."
    if not isinstance(params, list) or len(params) > MAX_PARAMS:
        return f"`params` is not a list of at most {MAX_PARAMS} values."
    return Statement(sql, tuple(params), call.harmless)


def _parameters(mark: str) -> Json:
    return {
        "type": "object",
        "properties": {
            "sql": {"type": "string", "description": "One statement."},
            "params": {
                "type": "array",
                "description": f"The values that {mark} in the statement stands for, in their order.",
                "items": {"type": ["string", "number", "boolean", "null", "array"]},
                "maxItems": MAX_PARAMS,
            },
        },
        "required": ["sql"],
        "additionalProperties": False,
    }


_SPEC = ToolSpec(
    name="execute_sql",
    description="Runs one SQL statement on the database.",
    parameters=_parameters("each placeholder"),
    category="database",
)


def build(config: Config, host: Host) -> ExecuteSql:  # noqa: ARG001 - every plugin is built with a host
    return ExecuteSql(config)


PLUGIN = Plugin(Config, build)
