"""The section that limits a key, a tenant, a model or an upstream."""

from typing import Annotated

from pydantic import Field

from gateway.config.schema.section import Section
from gateway.config.values.scalars import Flag, build_count_type
from gateway.config.values.units import build_amount_type
from gateway.contracts.allowance import Allowance

#: A worker can count more than that in a quarter of a second.
_MOST = 1_000_000_000
_MOST_TOKENS = 1_000_000_000_000


Count = Annotated[int, build_count_type(1, _MOST)]
Tokens = Annotated[int, build_count_type(1, _MOST_TOKENS)]
Cost = Annotated[float, build_amount_type(_MOST, kind="amount", example="an amount such as 25 or 0.5")]


class AllowanceSettings(Section):
    requests_per_minute: Count | None = Field(
        default=None, description="Most requests in any 60 seconds; null: no limit, here and below."
    )
    tokens_per_minute: Count | None = Field(
        default=None, description="Most tokens in any 60 seconds, of input and output together."
    )
    concurrent: Count | None = Field(default=None, description="Most requests under way at a time.")
    tokens_per_day: Tokens | None = Field(default=None, description="Most tokens in a day (UTC); needs `usage`.")
    tokens_per_month: Tokens | None = Field(
        default=None, description="Most tokens in a calendar month (UTC); needs `usage`."
    )
    cost_per_day: Cost | None = Field(
        default=None, description="Most cost in a day (UTC), in the currency of `usage.prices`."
    )
    cost_per_month: Cost | None = Field(
        default=None, description="Most cost in a calendar month (UTC), in the currency of `usage.prices`."
    )
    soft: Flag = Field(
        default=False, description="Refuse nothing: report with a metric, a log line and `X-Context-Limit`."
    )

    @property
    def allowance(self) -> Allowance:
        """Return the limits that the section sets."""
        return Allowance(**{name: getattr(self, name) for name in Allowance.__slots__})
