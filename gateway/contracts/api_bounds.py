"""The bounds of requests to the gateway's own API. Its pages check them; the console and the commands keep within."""

from typing import Final

#: The entries of a list in one answer: where the request names no `limit`, and at most.
LIMIT: Final = 50
LIMIT_MOST: Final = 200
#: So many approvals are decided by one request, at most.
BATCH_MOST: Final = 100
