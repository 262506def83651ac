"""Names of the gateway's tools."""

from gateway.dialects.offered_tools import build_tool_name, split_tool_name


def test_label_and_name_make_the_name_that_models_know() -> None:
    """And an inside name is a label and a short name again."""
    assert (build_tool_name("gateway", "run_command"), build_tool_name("box", "look")) == ("run_command", "box__look")
    assert split_tool_name("run_command", None) == ("gateway", "run_command")
    assert split_tool_name("box.look", "box") == ("box", "look")
