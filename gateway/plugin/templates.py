"""The references in workflows, for tools that put values into a language of their own. Provisional until 1.0."""

from gateway.contracts.templates import TemplateValue, Values, fill_object

__all__ = [
    "TemplateValue",
    "Values",
    "fill_object",
]
