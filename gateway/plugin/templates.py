"""The references in workflows, for tools that put values into a language of their own. Provisional until 1.0."""

from gateway.workflows.templates import Value, Values, filled_object

__all__ = [
    "Value",
    "Values",
    "filled_object",
]
