"""An upstream and its endpoints as the context lane sees them, and the errors of one that fails."""

from dataclasses import dataclass

from gateway.contracts.errors import GatewayError
from gateway.upstream.failures import UPSTREAMS_FAULT
from gateway.upstream.group import Group
from gateway.upstream.pool import Pool


@dataclass(frozen=True, slots=True)
class ModelUpstream:
    """An upstream of the context lane. `models` are the patterns of its models; () matches all."""

    group: Group
    models: tuple[str, ...]

    @property
    def has_key(self) -> bool:
        """Return whether the gateway has a key for it. If not, the client's credential is sent."""
        return self.group.has_key

    @property
    def name(self) -> str:
        return self.group.name


@dataclass(slots=True)
class Target:
    """One endpoint of an upstream, `group`, for one call.

    `error_status` is the status of an error that it sent as its answer, behind a head with 200; None: it sent none.
    `is_excused`: that error names no status, so that the request may be at fault.
    """

    pool: Pool
    group: Group
    error_status: int | None = None
    is_excused: bool = False

    @property
    def name(self) -> str:
        return self.pool.endpoint.name

    def build_path(self, path: bytes) -> bytes:
        """Return an API path at the upstream: its base path replaces `/v1`."""
        return self.pool.endpoint.build_path(path)

    def build_url(self, path: bytes) -> str:
        """Return the URL of a path of the API, for people and spans."""
        return f"{self.pool.endpoint.origin}{self.build_path(path).decode('latin-1')}"

    def build_answer_error(self, reason: str) -> GatewayError:
        """Return the error of an answer that cannot be used."""
        return GatewayError("upstream_error", f"Upstream {self.name!r} failed: {reason}.")

    def log_failure(self, error: BaseException, request_id: str | None = None) -> None:
        """Log an exchange that failed, if the upstream is at fault."""
        if isinstance(error, GatewayError) and error.code in UPSTREAMS_FAULT:
            self.pool.failures.record_failure(error.message, request_id=request_id)
