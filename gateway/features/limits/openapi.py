"""The page of limits, as the description of the API has it."""

from gateway.api.openapi.feature_description import FeatureDescription
from gateway.api.openapi.operation import VIEWING, describe_get
from gateway.api.openapi.shapes import (
    NUMBER,
    TEXT,
    TRUTH,
    WHOLE,
    build_list_schema,
    build_nullable_schema,
    build_text_fields,
    record,
)

DESCRIPTION = FeatureDescription(
    operations=[
        describe_get(
            "/context/limits",
            "listLimits",
            "List the limits of the key and its tenant, or with `admin` all",
            "Operating",
            build_list_schema("Limit"),
            scopes=(*VIEWING, "admin"),
        )
    ],
    schemas={
        "Limit": record(
            **build_text_fields("scope", "name", "limit"),
            **dict.fromkeys(("used", "most"), NUMBER),
            tenant=build_nullable_schema(TEXT),
            resets_in_s=build_nullable_schema(NUMBER),
            soft=TRUTH,
            over=WHOLE,
            obstacle=build_nullable_schema(TEXT),
        )
    },
)
