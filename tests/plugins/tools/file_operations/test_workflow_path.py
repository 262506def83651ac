"""Values of a workflow in a path: they stay below the place of their reference."""

import pytest

from gateway.contracts.templates import split_pieces
from gateway.plugins.tools.file_operations.workflow_path import build_path


def path(template: str, **params: object) -> str:
    return build_path(split_pieces(template, {"params": params}))


@pytest.mark.parametrize(
    ("template", "x", "written"),
    [
        ("reports/{{params.x}}.md", "may", "reports/may.md"),
        ("reports/{{params.x}}.md", "2024/may", "reports/2024/may.md"),
        ("reports/{{params.x}}", "...", "reports/..."),
        ("reports/{{params.x}}", "a..b", "reports/a..b"),
        ("../common/{{params.x}}", "a", "../common/a"),
        ("reports/{{params.x}}", "{{params.y}}", "reports/{{params.y}}"),
    ],
)
def test_workflow_value_is_inserted_into_the_path(template: str, x: str, written: str) -> None:
    assert path(template, x=x) == written


@pytest.mark.parametrize(
    ("template", "x"),
    [
        ("reports/{{params.x}}", ".."),
        ("reports/{{params.x}}.md", "../../secret"),
        ("reports/{{params.x}}", "a/../../b"),
        ("reports/{{params.x}}.", "."),
        ("reports/.{{params.x}}", "./b"),
        ("reports/{{params.x}}{{params.x}}", "."),
        ("{{params.x}}.md", "/etc/passwd"),
        ("reports/{{params.x}}.md", "a\0"),
    ],
)
def test_workflow_value_that_climbs_out_of_the_path_is_refused(template: str, x: str) -> None:
    """Also in pieces that only together do; the reason names the reference."""
    with pytest.raises(ValueError, match=r"\{\{params\.x\}\}"):
        path(template, x=x)
