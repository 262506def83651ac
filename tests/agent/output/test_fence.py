"""Lines that open and close fenced blocks."""

import pytest

from gateway.agent.output.fence import Fence, find_run_end, may_open, read_code_line, read_line


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("```\n", "json"),
        ("```json\n", "json"),
        ("```JSON  \r\n", "json"),
        ("~~~json\n", "json"),
        ("`````json title=x\n", "json"),
        ('```json {"tool"', "json"),
        ('```{"tool"', "json"),
        ("```python\n", "code"),
        ("```json5\n", "json"),
        ("```tool_call\n", "json"),
        ("```toolbox\n", "code"),
        ("```{r}\nx <- 1", "code"),
        ("```" + "x" * 300, "code"),
        ("```print(1)``` and\n", "none"),
        ("``\n", "none"),
        ("`" * 64, "none"),
        ("```", "wait"),
        ("```js", "wait"),
        ("```json ", "wait"),
        ("```{", "wait"),
    ],
)
def test_fence_line_is_classified_by_its_opening(line: str, kind: str) -> None:
    """JSON and unlabelled blocks are looked into, others are code; a line with a second run is inline code."""
    assert read_line(line, 0, starts=True, inside=None, called=False, final=False)[0] == kind


@pytest.mark.parametrize(
    ("line", "kind"), [("```python\n", "code"), ("```json\n", "json"), ("``` opens\n", "none"), ("```json {", "wait")]
)
def test_fence_after_text_opens_a_block(line: str, kind: str) -> None:
    """Models write `Sure: ```json`; only a whole line behind it makes a fence."""
    assert read_line(line, 0, starts=False, inside=None, called=False, final=False)[0] == kind


@pytest.mark.parametrize(
    ("line", "starts", "called", "kind"),
    [
        ("```\n", True, False, "close"),
        ("````\n", True, False, "close"),
        ("``` Then\n", True, False, "close"),
        ("``` Then\n", False, True, "close"),
        ("``` Then\n", False, False, "none"),
        ("```\n", False, False, "close"),
        ("```python\n", True, False, "code"),
        ("~~~\n", True, False, "json"),
    ],
)
def test_json_block_closes_at_its_own_fence(line: str, *, starts: bool, called: bool, kind: str) -> None:
    """Its own fence; one with a language opens another."""
    inside = Fence("`", 3)
    assert read_line(line, 0, starts=starts, inside=inside, called=called, final=False)[0] == kind


@pytest.mark.parametrize(
    ("line", "before", "kind"),
    [
        ("```\n", "", "close"),
        ("````  \r\n", "  > ", "close"),
        ("```json\n", "", "none"),
        ("``\n", "", "none"),
        ("```\n", "x = 1 ", "none"),
        ("```\n", "- ", "none"),
        ("```  ", "", "wait"),
    ],
)
def test_code_block_closes_only_at_a_matching_bare_fence(line: str, before: str, kind: str) -> None:
    """A fence alone on its line, as long as the first: what is within must not be taken for an answer."""
    assert read_code_line(line, 0, before, inside=Fence("`", 3), final=False)[0] == kind


def test_unfinished_fence_line_is_decided_at_the_end() -> None:
    """A cut line is decided at once."""
    assert read_line("```js", 0, starts=True, inside=None, called=False, final=True)[0] == "code"
    assert read_code_line("``` ", 0, "", inside=Fence("`", 3), final=True)[0] == "close"


def test_fence_may_follow_indentation_quotes_and_list_marks() -> None:
    """Behind indentation, quote marks and one mark of a list."""
    assert all(map(may_open, ["", "   ", "> ", "- ", "  12. ", "> * "]))
    assert not any(map(may_open, ["x", "- x ", "1.", "-"]))


def test_fence_run_length_is_limited() -> None:
    """Of a longer run the rest is another."""
    assert find_run_end("x````y", 1) == 5
    assert find_run_end("`" * 100, 0) == 64


def test_call_attempt_ends_before_the_closing_fence() -> None:
    """Before the closing fence; what may become one is not certain."""
    fence = Fence("`", 3)
    assert fence.find_candidate_end("{\n  ```\n", 0, final=False) == (2, True)
    assert fence.find_candidate_end("{\n  ``", 0, final=False) == (1, False)
    assert fence.find_candidate_end("{\n  ``", 0, final=True) == (6, False)
    assert fence.find_candidate_end("{\n ``x", 0, final=False) == (6, False)
