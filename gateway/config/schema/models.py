"""The aliases of models: names of the operator's for models of upstreams, which are tried in order."""

from pydantic import Field

from gateway.config.schema.section import Section
from gateway.config.values.scalars import Name, Text


class ModelUse(Section):
    model: Text = Field(description="Model, as its upstream names it; never the name of an alias.")
    upstream: Name | None = Field(
        default=None,
        description="Upstream that serves it; null: `context.upstream`, else the one whose `models` match, else the "
        "first.",
    )


class ModelAlias(Section):
    use: tuple[ModelUse, ...] = Field(
        description="Models to try in order, at least one: the next one if all endpoints of the one before fail."
    )
