"""The part of features in the checks of a configuration: each declares its own, in `checks.py` of its folder."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gateway.config.document import Document
from gateway.config.schema.settings import Settings
from gateway.features.registry import load_parts


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureChecks:
    """The checks of one feature.

    `check_document` reports conflicts between keys; it reads the raw tree, as single values may be wrong.
    `check_settings` warns of what else is questionable, once the configuration is valid. `secret_headers` are the
    paths of headers whose values may stand in files (`NAME_file`).
    """

    check_document: Callable[[Document], None]
    check_settings: Callable[[Document, Settings], None] | None = None
    secret_headers: tuple[tuple[str, ...], ...] = ()


def collect_checks() -> Iterator[FeatureChecks]:
    """Yield the checks of all features."""
    for part in load_parts("checks"):
        found: FeatureChecks = part.CHECKS
        yield found
