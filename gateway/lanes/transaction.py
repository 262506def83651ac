"""A turn: one request and its answer on a client connection. The lanes differ in what they do with it."""

from typing import Final, Protocol

#: Reasons for the client's reading to be paused: too much is held for later; where the body goes does not keep up; what
#: came takes more than one turn of the event loop.
HELD: Final = 1
SENDING: Final = 2
YIELDED: Final = 4


class Turn(Protocol):
    """Holds a client connection from the end of a request's head until its answer is whole.

    It ends by `ClientConnection.turn_done` or by the end of the connection; then `client_gone` was called, once.
    """

    @property
    def mode(self) -> str: ...

    @property
    def streaming(self) -> bool:
        """Whether the answer is an event stream on its way."""
        ...

    def request_received(self, data: bytes) -> None:
        """Bytes from the client: of this request's body, or of what the client sent behind it."""
        ...

    def client_eof(self) -> bool:
        """The client sent FIN; True keeps our side of the connection open, False closes it after what is unsent."""
        ...

    def client_gone(self) -> None:
        """The client's connection is gone."""
        ...

    def client_full(self) -> None:
        """The client does not keep up with its answer."""
        ...

    def client_drained(self) -> None: ...

    def sweep(self, now: float) -> None:
        """Looks at this turn's deadlines; called twice a second with the loop's time."""
        ...
