"""The tool `execute_sql`: one statement on one database, and its rows as JSON.

1. The connection decides whether something can be written (read-only file, read-only transaction, authorizer, role),
   never the words of the statement.
2. One statement a call, on a separate connection. Only committed changes remain.
3. Time, rows and bytes are bounded. A call that is cancelled or late is rolled back.
4. A statement that runs because it was judged harmless does so only while the database itself agrees.
"""

import asyncio
import importlib.util
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import parse_qsl

from pydantic import Field, ValidationInfo, model_validator

from gateway.plugin import Exchange, Host, Json, Plugin, Reach, ToolCall, ToolResult, ToolSpec, Verdict, place_sha256
from gateway.plugin.settings import (
    Duration,
    FilePath,
    Flag,
    PathLeaf,
    Secret,
    ToolConfig,
    ValueType,
    build_count_type,
    build_size_type,
)
from gateway.plugin.sql.statement import judge
from gateway.plugin.templates import TemplateValue as Bound
from gateway.plugin.templates import Values, fill_object

from .engine import Engine, EngineDoubt, Statement, StatementError
from .rows import SqlRows
from .sqlite import Sqlite
from .workflow_sql import Dialect, build_statement

SQLITE, POSTGRES = "sqlite:///", ("postgresql://", "postgres://")
MAX_SQL = 100_000  # characters
MAX_PARAMS = 1000
_EXTENSION = re.compile(r"[\w-]{1,63}")


def _read_url(value: object, folder: Path) -> Secret:
    """Return the URL, with a file that begins at `folder`. No message repeats it, because it may hold a password."""
    url = value.reveal() if isinstance(value, Secret) else value
    if not isinstance(url, str):
        raise ValueError("expected text such as sqlite:///FILE")
    if url.startswith(POSTGRES):
        if importlib.util.find_spec("asyncpg") is None:
            raise ValueError("PostgreSQL needs asyncpg: pip install 'twolane[postgres]'")
        return Secret(url)
    file = url.removeprefix(SQLITE)
    if not url.startswith(SQLITE) or file in ("", ":memory:") or "\0" in file:
        raise ValueError("expected sqlite:///FILE or postgresql://USER@HOST/DATABASE")
    return Secret(f"{SQLITE}{folder / file}")


def _check_extension(value: object) -> str:
    if not isinstance(value, str) or not _EXTENSION.fullmatch(value):
        raise ValueError("expected the name of an extension, such as citext")
    return value


class Config(ToolConfig):
    """Asks a database."""

    url: Annotated[Secret, PathLeaf(kind="secret database URL", parse=_read_url)] = Field(
        default=Secret(f"{SQLITE}./data.db"),
        validate_default=True,
        description="The database: `sqlite:///FILE`, which must exist, or `postgresql://...`.",
    )
    url_file: FilePath | None = Field(default=None, description="File that holds `url`.")
    read_only: Flag = Field(default=True, description="Open the database for reading only.")
    trusted_extensions: tuple[Annotated[str, ValueType(kind="extension", parse=_check_extension)], ...] = Field(
        default=(),
        description="Extensions of PostgreSQL whose functions only read, as far as a superuser owns these: statements "
        "that use them run without approval.",
    )
    timeout: Duration = Field(default=30.0, description="Longest time for a statement.")
    max_rows: Annotated[int, build_count_type(1, 10_000_000)] = Field(default=1000, description="Rows in a result.")
    max_bytes: Annotated[int, build_size_type(1, 1 << 30)] = Field(
        default=256 << 10, description="Size of the rows of a result, as JSON."
    )

    @model_validator(mode="before")
    @classmethod
    def _file_was_read(cls, tree: object, info: ValidationInfo) -> object:
        """Refuse `url_file` where the gateway does not read it, below `with`: it would have no effect."""
        if (
            isinstance(tree, dict)
            and tree.get("url_file") is not None
            and (info.context is None or not tree.get("url"))
        ):
            raise ValueError("url_file is read at tools.execute_sql only: write url here")
        return tree

    @model_validator(mode="after")
    def _extensions_are_of_postgres(self) -> Self:
        if self.trusted_extensions and not self.address.startswith(POSTGRES):
            raise ValueError("trusted_extensions: only PostgreSQL has extensions, and url names SQLite")
        return self

    @property
    def address(self) -> str:
        """Return the URL itself."""
        return self.url.reveal()


class ExecuteSql:
    """The source of this one tool, whose database examines its calls."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._engine = _build_engine(config)
        self._dialect: Dialect = "postgres" if config.address.startswith(POSTGRES) else "sqlite"

    async def list_tools(self) -> Sequence[ToolSpec]:
        name, mark = ("PostgreSQL", "`$1`, `$2`") if self._dialect == "postgres" else ("SQLite", "each `?`")
        what = "read-only" if self._config.read_only else "changes are committed"
        flags = replace(_SPEC, untrusted=self._config.untrusted, requires_approval=self._config.requires_approval)
        description = f"Runs one SQL statement on the {name} database ({what}) and returns its rows as JSON."
        place = place_sha256(*_build_place(self._config.address))
        return (replace(flags, description=description, parameters=_build_parameters(mark), server=place),)

    def bind(self, arguments: Json, values: Values) -> Json:
        """Bind values to the statement: a value is never a part of it. See `Binder`. Raises ValueError."""
        bound: list[object] = []

        def write(pieces: Sequence[str | Bound]) -> str:
            statement, found = build_statement(pieces, dialect=self._dialect)
            bound.extend(found)
            return statement

        filled = fill_object(arguments, values, writers={"sql": write})
        if bound and "params" in filled:
            raise ValueError("it has references in `sql` and `params` besides: write the values in one of the two ways")
        return {**filled, "params": bound} if bound else filled

    async def refusal(self, call: ToolCall, exchange: Exchange) -> str | None:  # noqa: ARG002 - as for `call`
        """Return why the call cannot run: several statements, or one that the connection would not let run."""
        statement = _read_statement(call)
        if isinstance(statement, str):
            return statement
        reason = await self._engine.find_refusal(statement)
        return reason and f"The statement failed: {reason}."

    async def examine(self, call: ToolCall, exchange: Exchange) -> Verdict | None:  # noqa: ARG002 - as for `call`
        """Return the database's own doubt.

        If it is away, the text must be harmless to every database that we can read.
        """
        statement = _read_statement(call)
        if isinstance(statement, str):
            return None  # it fails, with or without approval
        try:
            doubt = await self._engine.find_doubt(statement)
        except StatementError:
            judged = judge(statement.sql).doubt
            doubt = None if judged is None else EngineDoubt(*judged)
        return None if doubt is None else Verdict("confirm", "default", f"sql.{doubt.rule}", doubt.reason)

    async def call(self, call: ToolCall, exchange: Exchange) -> ToolResult:  # noqa: ARG002 - the same for every run
        statement = _read_statement(call)
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


def _build_place(address: str) -> list[str]:
    """Return what identifies the database and its role: the URL without its password."""
    if not address.startswith(POSTGRES):
        return [address]
    url, _, query = address.partition("?")
    role, _, where = url.partition("://")[2].rpartition("@")
    named = (f"{name}={value}" for name, value in parse_qsl(query) if "pass" not in name.lower())
    return [role.partition(":")[0], where, *named]


def _build_engine(config: Config) -> Engine:
    if not config.address.startswith(POSTGRES):
        return Sqlite(config.address.removeprefix(SQLITE), read_only=config.read_only)
    from .postgres import Postgres  # asyncpg is an optional dependency, for PostgreSQL

    return Postgres(
        config.address,
        read_only=config.read_only,
        timeout_s=config.timeout,
        extensions=config.trusted_extensions,
    )


def _read_statement(call: ToolCall) -> Statement | str:
    """Return the statement to run, or the problem with the arguments."""
    sql, params = call.arguments.get("sql"), call.arguments.get("params", [])
    if not isinstance(sql, str) or not sql.strip():
        return "`sql` is missing, or is not a text."
    if len(sql) > MAX_SQL:
        return f"`sql` is longer than {MAX_SQL} characters."
    if not isinstance(params, list) or len(params) > MAX_PARAMS:
        return f"`params` is not a list of at most {MAX_PARAMS} values."
    return Statement(sql, tuple(params), call.harmless)


def _build_parameters(mark: str) -> Json:
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
    parameters=_build_parameters("each placeholder"),
    category="database",
)


def build(config: Config, host: Host) -> ExecuteSql:  # noqa: ARG001 - every plugin is built with a host
    return ExecuteSql(config)


def examined_options(config: Config) -> Json:
    return {"dialect": "postgresql" if config.address.startswith(POSTGRES) else "sqlite"}


def reaches(config: Config) -> Sequence[Reach]:
    if config.address.startswith(POSTGRES):
        return ()
    place = Path(config.address.removeprefix(SQLITE))
    return [Reach(key=("url",), place=place, kind="database", writable=not config.read_only)]


PLUGIN = Plugin(Config, build, assessor="sql", examined_options=examined_options, reaches=reaches)
