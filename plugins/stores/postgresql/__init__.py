"""The store in a PostgreSQL database, which several machines may share."""

import importlib.util
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field, field_validator

from gateway.plugin import Host, Plugin

from .store_url import NEEDS_ASYNCPG, PostgresqlAddress, redact_url, split_pool

if TYPE_CHECKING:
    from .store import PostgresqlStore


class Config(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    url: str = Field(
        "postgresql://localhost/gateway",
        description="The database: `postgresql://USER@HOST/DATABASE`, with `?pool=N` for N connections.",
    )

    @field_validator("url")
    @classmethod
    def _names_a_database(cls, url: str) -> str:
        split_pool(url)
        if importlib.util.find_spec("asyncpg") is None:
            raise ValueError(NEEDS_ASYNCPG)
        return url


def build(config: Config, _host: Host) -> "PostgresqlStore":
    # asyncpg is an optional dependency.
    from .store import PostgresqlStore

    url, size = split_pool(config.url)
    return PostgresqlStore(url, place=redact_url(config.url), size=size)


PLUGIN = Plugin(Config, build, address=PostgresqlAddress)
