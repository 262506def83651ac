"""Tells systemd how we are (sd_notify): a datagram to NOTIFY_SOCKET, nothing where there is none."""

import os
import socket


def notify(state: str) -> None:
    """Sends `READY=1`, `STOPPING=1`, ...; never fails."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        try:
            sock.sendto(state.encode(), address)
        except OSError:
            return
