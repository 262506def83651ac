"""A finding on a terminal."""

from gateway.cli.doctor.findings import Finding


def test_finding_lines_are_escaped_and_followed_by_advice() -> None:
    """The text of another program is escaped: it cannot act as the terminal."""
    said = Finding("fail", "MCP kb", "it wrote \x1b[31mred", "look")
    assert said.format_lines() == (
        "fail  MCP kb                  it wrote \\u{1b}[31mred",
        "                              -> look",
    )
    assert Finding("ok", "a", "b").format_lines() == ("ok    a                       b",)
