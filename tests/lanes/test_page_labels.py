"""Each page of ours is counted under one of five routes."""

import pytest

from gateway.api.chat import MODEL_PATHS
from gateway.dialects.chat import ENDPOINT
from gateway.dialects.registry import build_paths
from gateway.lanes.page_labels import find_page_name, get_page_labels


@pytest.mark.parametrize(
    ("paths", "route"),
    [
        (build_paths(ENDPOINT), ("chat", "context")),
        (build_paths("responses"), ("chat", "context")),
        (build_paths("responses/compact"), ("chat", "context")),
        (build_paths("responses/resp_1"), ("polling", "own")),
        (build_paths("responses/resp_1/input_items"), ("polling", "own")),
        (build_paths("conversations/conv_1/items"), ("polling", "own")),
        (build_paths("conversations"), ("pages", "own")),
        (("/", "/metrics", "/health/live", "/health/ready"), ("health", "own")),
        (("/context/runs", "/context/runs/run_1/events", "/context/approvals/ap_1", "/context/ws"), ("polling", "own")),
        (("/context/v1/chat/completions/", "/v1/responses/"), ("chat", "context")),
        (("/console", "/console/", "/console/runs/run_1/live", "/console/static/console.css"), ("console", "own")),
        (("/consolex", "/console.html"), ("pages", "own")),
        ((*MODEL_PATHS, "/workflows/x/runs", "/v1/system-prompts", "/mcp/services", "/x"), ("pages", "own")),
    ],
)
def test_page_label_depends_on_its_path_alone(paths: tuple[str, ...], route: tuple[str, str]) -> None:
    """By its path alone, whatever it answers."""
    assert {get_page_labels(path.encode()) for path in paths} == {route}


@pytest.mark.parametrize(
    ("path", "page"),
    [
        ("/context/v1/chat/completions", "/context/v1/chat/completions"),
        ("/context/v1/responses/", "/context/v1/responses"),
        ("/context/approvals", "/context/approvals"),
        ("/context/runs/run_1/events", "/context/runs"),
        ("/mcp", "/mcp"),
        ("/mcp/files", "/mcp"),
        ("/workflows/w/runs", "/workflows"),
        ("/mcpx", None),
        ("/context/runsx", None),
        ("/context/anything", None),
        ("/context/v1/responses/resp_1", None),
        ("/x", None),
        ("", None),
    ],
)
def test_page_span_name_is_a_fixed_path_prefix(path: str, page: str | None) -> None:
    """Names are of a closed set: no id and no word of a client is in one."""
    assert find_page_name(path.encode()) == page
