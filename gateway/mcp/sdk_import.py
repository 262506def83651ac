"""The import of the SDK for MCP, which takes seconds: it is done in a thread, and by one thread at a time.

The SDK and its libraries log URLs, session ids, and what the other side sends; what matters of it is logged by us.
"""

import logging
import threading
from typing import Final

MISSING_SDK: Final = "the SDK for MCP is not installed: pip install 'twolane[mcp]'"
#: Held while the SDK is imported: two threads would find each other's modules half initialised.
IMPORTING: Final = threading.Lock()


def silence_loggers(*libraries: str) -> None:
    """Disable the log lines of these libraries."""
    for library in libraries:
        logging.getLogger(library).setLevel(logging.CRITICAL)
