"""OpenAI's chat completions, as clients speak them. `ENDPOINT` is the path that gateway/dialects/registry.py finds."""

from typing import Final

ENDPOINT: Final = "chat/completions"
