"""The page of usage, as the description of the API has it."""

from gateway.api.admin.csv_export import FORMATS
from gateway.api.openapi.feature_description import FeatureDescription
from gateway.api.openapi.operation import VIEWING, Parameter, describe_get
from gateway.api.openapi.shapes import (
    NUMBER,
    TEXT,
    TRUTH,
    WHOLE,
    build_array_schema,
    build_constant_schema,
    build_nullable_schema,
    build_reference,
    build_text_fields,
    record,
    with_fields,
)
from gateway.contracts.storage.usage import COUNTS, DIMENSIONS

_PARAMETERS = (
    Parameter("from", TEXT, "The first day (UTC), such as 2026-11-01; default: 30 days up to the last one."),
    Parameter("to", TEXT, "The last day; default: today."),
    Parameter("by", TEXT, "What to sum by: some of day, tenant, key, model, upstream and lane; default: day."),
    Parameter("format", {"enum": list(FORMATS)}, "`csv`: a table for spreadsheets."),
)
_SUMS = record(cost=build_nullable_schema(NUMBER), currency=build_nullable_schema(TEXT), **dict.fromkeys(COUNTS, WHOLE))

DESCRIPTION = FeatureDescription(
    operations=[
        describe_get(
            "/context/usage",
            "getUsage",
            "Get sums of usage, of the key's own tenant, or with `admin` of all",
            "Operating",
            build_reference("Usage"),
            scopes=(*VIEWING, "admin"),
            parameters=_PARAMETERS,
        )
    ],
    schemas={
        "Usage": record(
            object=build_constant_schema("usage"),
            enabled=TRUTH,
            by=build_array_schema(TEXT),
            **build_text_fields("from", "to"),
            data=build_array_schema(with_fields(_SUMS, optional=True, **build_text_fields(*DIMENSIONS))),
        )
    },
)
