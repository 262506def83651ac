"""Settings of traces that go nowhere."""

from config.folder import Folder


def test_tracing_settings_without_an_endpoint_warn(folder: Folder) -> None:
    loaded = folder.load("tracing: {passthrough: true, propagate: [mcp]}")
    assert [str(one) for one in loaded.warnings if "tracing" in str(one)] == [
        "gateway.yaml:1:11 tracing.passthrough: has no effect without endpoint",
        "gateway.yaml:1:30 tracing.propagate: has no effect without endpoint",
    ]
