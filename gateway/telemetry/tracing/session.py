"""The HTTP session of the exporter: what requests to a collector have, what is read of answers, why one failed."""

import ssl
from collections.abc import Mapping
from pathlib import Path
from ssl import get_default_verify_paths
from time import monotonic
from typing import Any, Final

import requests
from opentelemetry.exporter.otlp.proto.http.version import __version__ as exporter_version

from gateway import __version__

#: How long a collector may take over a request.
TIMEOUT_S: Final = 10.0
#: So much of a collector's answer is read; an answer that OTLP defines is shorter.
ANSWER_BYTES: Final = 16 << 10
_OK, _REDIRECTION = 2, 3  # the hundreds of statuses
_FIELDS: Final = {
    "content-type": "application/x-protobuf",
    "content-encoding": "gzip",
    "user-agent": f"twolane/{__version__} OTel-OTLP-Exporter-Python/{exporter_version}",
}


class CollectorSession(requests.Session):
    """A session for one collector.

    Its requests have the header fields and certificates of the configuration, and nothing that only the environment
    knows of: no proxy, no password, none of the fields and certificates of `OTEL_EXPORTER_OTLP_*`, which the SDK reads
    and which are another collector's. An answer is done with once it has its status: who answers must not fill memory,
    or hold a thread. A redirection is a failure: the fields are for the collector that is configured.

    `problem` is why the last request failed, or "".
    """

    def __init__(self, fields: Mapping[str, str], ca_file: Path | None) -> None:
        super().__init__()
        self.trust_env = False
        self.problem = ""
        self._fields = {**_FIELDS, **{name.lower(): value for name, value in fields.items()}}
        self._ca_file = str(ca_file or get_default_verify_paths().cafile or "") or True

    def request(self, *args: Any, **options: Any) -> requests.Response:
        """Send a request within TIMEOUT_S, read a bounded answer, and note the cause of a failure."""
        end_s, left = monotonic() + TIMEOUT_S, ANSWER_BYTES
        self.cert = None
        options |= {"headers": self._fields, "verify": self._ca_file, "stream": True}
        try:
            response = super().request(*args, **options)
            with response:
                while left > 0 and monotonic() < end_s and (part := response.raw.read1(left)):
                    left -= len(part)
        except Exception as error:
            origin = _get_root_cause(error)
            self.problem = _describe_error(origin)
            if isinstance(origin, ssl.SSLCertVerificationError):  # of a kind that the SDK does not try again
                raise requests.RequestException(self.problem) from error
            raise
        hundreds = response.status_code // 100
        self.problem = "" if hundreds == _OK else f"it answered with status {response.status_code}"
        if hundreds == _REDIRECTION:
            raise requests.TooManyRedirects("none is followed", response=response)
        return response


def _get_root_cause(error: BaseException) -> BaseException:
    """Return the system's or TLS's own error, below the libraries' wrapping."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return error


def _describe_error(error: BaseException) -> str:
    """Return a short cause of a failure, for the log."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate was not accepted ({error.verify_message})"
    if isinstance(error, TimeoutError):
        return "it was silent for too long"
    return (isinstance(error, OSError) and error.strerror) or type(error).__name__
