"""A client and an upstream that agree on a WebSocket, and then speak through the tunnel between them."""

from gateway.testing.raw_connection import Peer

from .through import get

WEBSOCKET = (
    b"Connection: Upgrade",
    b"Upgrade: websocket",
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    b"Sec-WebSocket-Version: 13",
)
HANDSHAKE = get(b"/v1/realtime?model=x", *WEBSOCKET, b"Sec-WebSocket-Protocol: realtime, v1")
SWITCHING = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSec-WebSocket-Protocol: realtime\r\n\r\n"
)


async def echo(peer: Peer) -> None:
    """Agrees, and sends back what comes, until FIN."""
    await peer.read_request()
    await peer.send(SWITCHING)
    while data := await peer.read_some(timeout_s=None):
        await peer.send(data)


async def joined(client: Peer) -> None:
    await client.send(HANDSHAKE)
    assert await client.read_head() == SWITCHING
