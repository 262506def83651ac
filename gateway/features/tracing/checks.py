"""The check of settings of traces that go nowhere."""

from gateway.config.document import Document
from gateway.config.feature_checks import FeatureChecks


def check_tracing(document: Document) -> None:
    """Warn of settings of traces where no endpoint takes them."""
    if document.get("tracing", "endpoint") is None:
        for path in document.iterate_matches("tracing", "*"):
            if path[-1] != "endpoint":
                document.warn(path, "has no effect without endpoint")


CHECKS = FeatureChecks(check_document=check_tracing, secret_headers=(("tracing", "headers"),))
