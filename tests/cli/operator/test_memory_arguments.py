"""The words of `gateway memories`, without a gateway."""

import pytest

from gateway.cli.main import main


@pytest.mark.parametrize(
    "words",
    ["delete", "delete --all", "delete --all mem_1 --user a", "delete mem_1 --user a", "list --user a --key b"],
)
def test_what_makes_no_sense_asks_nobody(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Deleting takes ids, or all of somebody who is named."""
    with pytest.raises(SystemExit) as ended:
        main(["memories", *words.split()])
    assert ended.value.code == 2 and "usage: gateway memories" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["list", "delete mem_1", "delete --all --user a", "delete --all --key a"])
def test_a_gateway_that_is_not_there_is_named(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With its address."""
    assert main(["memories", *words.split(), "--url", "http://127.0.0.1:1"]) == 1
    assert "127.0.0.1:1 does not answer" in capsys.readouterr().err
