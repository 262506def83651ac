"""The instructions about diagrams for a model."""

import re

from gateway.plugins.stages.prompt_enhancer.mermaid import MERMAID


def test_inject_mermaid_instructions() -> None:
    """Instructions, syntax examples, and when to use diagrams (and when not)."""
    assert "Use a diagram when" in MERMAID and "Do not use one" in MERMAID
    examples = re.findall(r"^```mermaid\n(.*?)\n```$", MERMAID, re.MULTILINE | re.DOTALL)
    assert [example.split()[0] for example in examples] == ["flowchart", "sequenceDiagram"]
    assert MERMAID.count("```") == 2 * len(examples)


def test_mermaid_instructions_fit_in_300_tokens() -> None:
    """They are sent with every request: at most 300 tokens."""
    assert len(MERMAID.encode()) / 4 <= 300
