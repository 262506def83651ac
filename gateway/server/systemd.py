"""Notifications for systemd (sd_notify): a datagram to NOTIFY_SOCKET, or none if that is unset."""

import os
import socket


def notify(state: str) -> None:
    """Send `READY=1`, `STOPPING=1`, ... to systemd. An error is ignored."""
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
