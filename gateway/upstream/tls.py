"""TLS with an upstream: a context that resumes the last session with each server, which saves half of a handshake.

The asyncio transports make their TLS objects by `wrap_bio`, and pass no session. So the context remembers one for each
server name, and adds it. A session that the server does not take costs nothing: the handshake is then a whole one.

https://www.rfc-editor.org/rfc/rfc8446#section-2.2
"""

import ssl
import sys
from pathlib import Path


class ResumingContext(ssl.SSLContext):
    """A client's context with the checks of `ssl.create_default_context`. `ca_file` replaces the system's."""

    _sessions: dict[str | None, ssl.SSLSession]

    def __new__(cls, ca_file: Path | None = None) -> "ResumingContext":
        """Return the context. Raises OSError (ssl.SSLError) if the file cannot be used."""
        context = super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)
        context._sessions = {}
        if ca_file is None:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        else:
            context.load_verify_locations(ca_file)
        if sys.version_info >= (3, 13):
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VERIFY_X509_STRICT
        # A connection that ends without close_notify was cut: it must not look like the end of an answer.
        context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
        return context

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """Return the TLS object of a new connection, with the last session of its server."""
        if session is None and not isinstance(server_hostname, bytes):
            session = self._sessions.get(server_hostname)
        return super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)

    def keep_session(self, tls: ssl.SSLObject) -> None:
        """Keep the session of a connection over which something was read: by then its tickets have come."""
        if (session := tls.session) is not None:
            self._sessions[tls.server_hostname] = session
