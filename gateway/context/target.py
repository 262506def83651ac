"""An upstream as the context lane sees it, and what is said of one that fails."""

from dataclasses import dataclass

from gateway.errors import GatewayError
from gateway.telemetry.metrics import UpstreamTally
from gateway.upstream.failures import UPSTREAMS_FAULT
from gateway.upstream.pool import Pool


@dataclass(frozen=True, slots=True)
class Target:
    """An upstream of the context lane: `models` are the patterns of what it serves, () everything."""

    pool: Pool
    models: tuple[str, ...]
    tally: UpstreamTally

    @property
    def has_key(self) -> bool:
        """Whether the gateway has a key for it; else the client's credential goes there."""
        return self.pool.endpoint.api_key is not None

    @property
    def name(self) -> str:
        return self.pool.endpoint.name

    def path(self, path: bytes) -> bytes:
        """Returns a path of the API as the upstream has it: its base path stands where `/v1` would."""
        return (self.pool.endpoint.base_path or b"/v1") + path

    def url(self, path: bytes) -> str:
        """Returns the URL of a path of the API, for people."""
        endpoint = self.pool.endpoint
        scheme = "http" if endpoint.tls is None else "https"
        return f"{scheme}://{endpoint.authority.decode('latin-1')}{self.path(path).decode('latin-1')}"

    def broken(self, reason: str) -> GatewayError:
        """Returns the error of an answer that is none."""
        return GatewayError("upstream_error", f"Upstream {self.name!r} failed: {reason}.")

    def note(self, error: BaseException, request_id: str | None = None) -> None:
        """Logs an exchange that failed, if the upstream is at fault."""
        if isinstance(error, GatewayError) and error.code in UPSTREAMS_FAULT:
            self.pool.failures.note(error.message, request_id=request_id)
