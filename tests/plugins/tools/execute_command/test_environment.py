"""The variables that commands see."""

from gateway.plugin.shell.control_flow import LOOP_NAMES
from gateway.plugins.tools.execute_command.environment import ALWAYS, HARMLESS


def test_environment_variables_are_unique_and_exclude_shell_startup_variables() -> None:
    """PATH and HOME are the sandbox's; what a shell reads at its start is nobody's."""
    names = [name for name, _ in HARMLESS]
    assert len(set(names)) == len(names)
    assert set(ALWAYS) <= set(HARMLESS)
    assert not {"PATH", "HOME", "ENV", "BASH_ENV", "IFS", "SHELLOPTS", "BASHOPTS", "CDPATH", "LD_PRELOAD"} & set(names)


def test_loop_names_exclude_environment_variables() -> None:
    """A variable that was exported stays exported when a loop sets it."""
    names = {name.lower() for name, _ in HARMLESS} | {"path", "home", "pwd", "ifs", "http_proxy", "prefix"}
    assert not LOOP_NAMES & names
    assert all(name.isalpha() and name.islower() for name in LOOP_NAMES)


def test_git_config_count_matches_its_key_value_pairs() -> None:
    """As many pairs as are counted."""
    settings = dict(HARMLESS)
    count = int(settings["GIT_CONFIG_COUNT"])
    assert all(f"GIT_CONFIG_{kind}_{n}" in settings for kind in ("KEY", "VALUE") for n in range(count))
    assert f"GIT_CONFIG_KEY_{count}" not in settings
