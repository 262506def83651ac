"""A finding on a terminal."""

from gateway.cli.doctor.findings import Finding


def test_a_finding_is_a_line_and_its_advice() -> None:
    """The text of another program is escaped: it cannot act as the terminal."""
    said = Finding("fail", "MCP kb", "it wrote \x1b[31mred", "look")
    assert said.lines() == (
        "fail  MCP kb                  it wrote \\u{1b}[31mred",
        "                              -> look",
    )
    assert Finding("ok", "a", "b").lines() == ("ok    a                       b",)
