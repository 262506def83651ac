"""The section about usage, and the file of prices."""

import re
from typing import Annotated

from pydantic import Field

from gateway.config.schema.section import Section
from gateway.config.values.scalars import ExistingFile, Flag, build_count_type, build_text_parser, parse_label
from gateway.config.values.units import build_amount_type
from gateway.config.values.value import ValueType

Amount = Annotated[float, build_amount_type(1_000_000, kind="number", example="a number such as 0.15")]
Glob = Annotated[str, ValueType(kind="glob", parse=parse_label)]
Currency = Annotated[
    str,
    ValueType(
        kind="three letters",
        parse=build_text_parser(re.compile(r"[A-Z]{3}\Z"), "expected the three letters of a currency, such as USD"),
    ),
]


class UsageSettings(Section):
    enabled: Flag = Field(
        default=False, description="Record the tokens of every request, in both lanes, by key, model and upstream."
    )
    prices: ExistingFile | None = Field(
        default=None, description="YAML file of prices; null: no costs. A change counts from the next request on."
    )
    keep_days: Annotated[int, build_count_type(1, 36_500)] = Field(
        default=400, description="Days after which usage is deleted, but for that of this month."
    )


class PriceEntry(Section):
    model: Glob = Field(description="Models, as a glob. The first entry that matches counts.")
    input: Amount = Field(description="Price of a million tokens of input.")
    output: Amount = Field(default=0.0, description="Price of a million tokens of output.")
    cached: Amount | None = Field(
        default=None, description="Price of a million tokens that came from the upstream's cache; null: as `input`."
    )
    cache_write: Amount | None = Field(
        default=None, description="Price of a million tokens that were written to the upstream's cache; null: `input`."
    )
    cache_write_1h: Amount | None = Field(
        default=None, description="Price of a million of those that it keeps for an hour; null: as `cache_write`."
    )
    audio_input: Amount | None = Field(
        default=None, description="Price of a million tokens of audio in the input; null: such answers have no cost."
    )
    audio_output: Amount | None = Field(
        default=None, description="Price of a million tokens of audio in the output; null: such answers have no cost."
    )


class PriceFile(Section):
    """A file of prices, complete."""

    currency: Currency = Field(description="Currency of all prices.")
    prices: tuple[PriceEntry, ...] = Field(description="Prices, tried from the first one on.")
