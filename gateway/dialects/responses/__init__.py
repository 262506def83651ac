"""The Responses API, as clients speak it. `ENDPOINT` and `BELOW` are what gateway/dialects/registry.py finds."""

from typing import Final

ENDPOINT: Final = "responses"
#: Collections of what is stored: the dialect has pages below each.
BELOW: Final = ("responses", "conversations")
