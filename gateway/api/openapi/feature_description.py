"""The part of features in the description of the API: each declares its own, in `openapi.py` of its folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from gateway.api.openapi.operation import Operation
from gateway.api.openapi.shapes import Schema
from gateway.features.registry import list_features, load_part


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureDescription:
    """The operations of the pages of a feature, and the schemas of their JSON by name."""

    operations: Sequence[Operation]
    schemas: Mapping[str, Schema] = field(default_factory=dict)


@cache
def collect_descriptions() -> Sequence[FeatureDescription]:
    """Return the descriptions of all features, by their names."""
    found: list[FeatureDescription] = [
        load_part(name, "openapi").DESCRIPTION for name in sorted(list_features("openapi"))
    ]
    return found
