"""Error answers of the Responses API, which have OpenAI's shape. A start loads them, and not the dialect."""

from typing import Final

from gateway.dialects.dialect import WriteError
from gateway.http.error_response import build_error_body

ERRORS: Final[WriteError] = build_error_body
