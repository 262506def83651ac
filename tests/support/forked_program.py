"""A program that hands its streams to the fork server and ends as its fork does.

For those who start programs themselves, as clients of MCP servers do. It imports nothing of the gateway.
"""

import json
import os
import signal
import socket
import sys


def main() -> int:
    """Return the exit code; of a fork that a signal ended as a shell has it."""
    _, path, *arguments = sys.argv
    asked = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    asked.connect(path)
    request = {"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}  # noqa: PTH109
    socket.send_fds(asked, [json.dumps(request).encode()], [1, 2, 0])
    os.closerange(0, 3)  # the others see the end of a stream when the fork closes it
    asked.recv(32)  # its number
    code = int(asked.recv(32) or -signal.SIGKILL)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
