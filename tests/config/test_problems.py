"""Problems and their places."""

from gateway.config.problems import ConfigError, Problem, SourceLocation, format_path, quote_word


def test_config_problem_is_shown_as_place_path_and_message() -> None:
    """`gateway.yaml:7:14 upstreams[0].base_url: message`, and without a path `--listen: message`."""
    place = str(SourceLocation("gateway.yaml", 7, 14))
    path = format_path(("upstreams", 0, "base_url"))
    assert str(Problem(place, path, "expected a URL")) == "gateway.yaml:7:14 upstreams[0].base_url: expected a URL"
    assert str(Problem(str(SourceLocation("--listen")), "", "no")) == "--listen: no"


def test_unusual_keys_are_quoted_escaped_and_cut() -> None:
    """A key cannot forge a second line, colour a terminal or fill a screen."""
    assert format_path(("prompts", "my key", 3)) == "prompts['my key'][3]"
    assert format_path(("a\n\x1b[0mb",)) == "['a\\n\\x1b[0mb']"
    assert len(format_path(("k" * 10_000,))) < 100
    assert quote_word("ä" * 100).isascii()


def test_a_config_error_carries_all_problems() -> None:
    """One line each."""
    problems = (Problem("a:1:1", "x", "one"), Problem("GATEWAY__Y", "", "two"))
    error = ConfigError(problems)
    assert error.problems == problems
    assert str(error) == "a:1:1 x: one\nGATEWAY__Y: two"
