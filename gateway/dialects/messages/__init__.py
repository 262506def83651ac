"""Anthropic's Messages, as clients speak them. `ENDPOINT` is the path that gateway/dialects/registry.py finds.

`HELPERS` are the further paths of the API that the context lane answers itself.
"""

from typing import Final

ENDPOINT: Final = "messages"
HELPERS: Final = ("messages/count_tokens",)
