"""The section about traces."""

import pytest
from config.folder import Folder

from gateway.features.tracing.section import TracingSettings


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        (None, None),
        ("http://c:4318", "http://c:4318/v1/traces"),
        ("http://c:4318/", "http://c:4318/v1/traces"),
        ("https://c/otlp", "https://c/otlp/v1/traces"),
        ("https://c/v1/traces", "https://c/v1/traces"),
    ],
)
def test_tracing_endpoint_gets_the_traces_path_appended(endpoint: str | None, url: str | None) -> None:
    assert TracingSettings.model_validate({"endpoint": endpoint}).url == url


def test_headers_may_come_from_files_and_are_secrets(folder: Folder) -> None:
    folder.write("run/token", "Bearer sesame\n")
    text = "tracing: {endpoint: 'http://c:4318', sample: 10%, headers: {Authorization_file: run/token, X-Team: a}}"
    tracing = folder.load(text).settings.tracing
    assert {name: value.reveal() for name, value in tracing.headers.items()} == {
        "Authorization": "Bearer sesame",
        "X-Team": "a",
    }
    assert tracing.sample == 0.1 and "sesame" not in repr(tracing)


def test_tracing_propagate_accepts_only_known_receivers(folder: Folder) -> None:
    problem = folder.problem("tracing: {endpoint: 'http://c', propagate: [models]}")
    assert "tracing.propagate[0]: expected one of upstreams, tools, mcp" in problem
