"""The import of the SDK for MCP, which takes seconds: it is done in a thread, and by one thread at a time."""

import threading
from typing import Final

MISSING_SDK: Final = "the SDK for MCP is not installed: pip install 'twolane[mcp]'"
#: Held while the SDK is imported: two threads would find each other's modules half initialised.
IMPORTING: Final = threading.Lock()
