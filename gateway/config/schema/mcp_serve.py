"""The section `mcp.serve`: the gateway as an MCP server."""

import re
from typing import Annotated, Literal

from pydantic import Field

from gateway.config.schema.section import Section
from gateway.config.schema.serve_oauth import ServeOAuth
from gateway.config.values.scalars import Text, build_count_type, build_text_parser
from gateway.config.values.units import Duration
from gateway.config.values.value import ValueType

_PATH = re.compile(r"(?:/[A-Za-z0-9_-]{1,64}){1,4}\Z")
#: Pages of the gateway and of its upstreams stand below these.
RESERVED_PATHS = ("/v1", "/context", "/console", "/health", "/metrics", "/workflows", "/mcp/services")

_parse_path = build_text_parser(_PATH, "expected 1 to 4 segments such as /mcp, of letters, digits, '_' and '-'")


def parse_serve_path(value: object) -> str:
    """Parse the path of the endpoint. It is none of the gateway's other pages."""
    path = _parse_path(value)
    taken = next((known for known in RESERVED_PATHS if path == known or path.startswith(known + "/")), None)
    if taken is not None:
        raise ValueError(f"{taken} is a path of other pages: choose another one, such as /mcp")
    return path


ServePath = Annotated[str, ValueType(kind="path", parse=parse_serve_path)]


class ServeSessions(Section):
    """Sessions of clients of the era of `initialize`. Clients of 2026-07-28 have none."""

    most: Annotated[int, build_count_type(1, 100_000)] = Field(
        default=1000,
        description="Most open sessions of a worker; further ones get 503. One key may have a quarter of them: then "
        "its oldest unused one ends. The same holds for subscriptions of clients of 2026-07-28, none of which end.",
    )
    idle: Duration = Field(default=1800.0, description="Time without a request after which a session ends.")


class Serve(Section):
    path: ServePath = Field(
        default="/mcp", description="Path of the endpoint. `PATH/SERVICE` serves the tools of one service."
    )
    wait: Duration = Field(
        default=45.0,
        description="Longest time that a call waits for a person; then its client is asked to send it again. "
        "Many clients give up after 60 s.",
    )
    tools: tuple[Text, ...] = Field(
        default=(), description="Tools that clients may use, as names and globs such as `time.*`; empty: all."
    )
    workflows: Literal["prompts", "tools", "both", "off"] = Field(
        default="prompts",
        description="How clients see workflows: as prompts, as tools `workflow__NAME` for keys with the scope "
        "`context`, as both, or not at all.",
    )
    search_over: Annotated[int, build_count_type(1, 10_000)] | None = Field(
        default=None,
        description="With more tools than this, clients see `find_tools` and `call_tool` in place of all of them; "
        "null: always all.",
    )
    sessions: ServeSessions = Field(
        default_factory=ServeSessions, description="Sessions of clients before the protocol 2026-07-28."
    )
    oauth: ServeOAuth | None = Field(
        default=None, description="Accept access tokens of an issuer beside `keys`; null: keys only."
    )

    @property
    def has_workflow_prompts(self) -> bool:
        return self.workflows in ("prompts", "both")

    @property
    def has_workflow_tools(self) -> bool:
        return self.workflows in ("tools", "both")
