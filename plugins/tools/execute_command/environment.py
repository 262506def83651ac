"""The environment in which commands run: the same on every machine, with nothing inherited from the gateway.

A text that is known to be harmless also gets HARMLESS. It stops the programs of the tables from reading files that name
other programs to run. The work folder, which is HOME, may contain any of these files.
"""

from typing import Final

from gateway.plugin.shell.git import GIT_ENVIRONMENT

Settings = tuple[tuple[str, str], ...]

#: Words and characters are the same everywhere.
ALWAYS: Final[Settings] = (("LANG", "C.UTF-8"),)

HARMLESS: Final[Settings] = (
    *ALWAYS,
    *GIT_ENVIRONMENT,
    # go 1.21 fetches or runs the toolchain that go.mod or its own file names; it counts its runs below XDG_CONFIG_HOME.
    ("GOTOOLCHAIN", "local"),
    ("GOENV", "off"),
    ("GOFLAGS", ""),
    ("XDG_CONFIG_HOME", "/dev/null"),
    ("XDG_CACHE_HOME", "/dev/null"),
    # rustup's cargo and rustc run what rust-toolchain.toml or HOME names.
    ("RUSTUP_TOOLCHAIN", "stable"),
    ("RUSTUP_HOME", "/dev/null"),
    ("CARGO_HOME", "/dev/null"),
    # Python would run modules of ~/.local; pip would take another interpreter, or a log file, from its own file.
    ("PYTHONNOUSERSITE", "1"),
    ("PYTHONSAFEPATH", "1"),
    ("PYTHONDONTWRITEBYTECODE", "1"),
    ("PIP_CONFIG_FILE", "/dev/null"),
    ("PIP_NO_INPUT", "1"),
    ("PIP_NO_CACHE_DIR", "1"),
    ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
    # pip freeze runs hg and brz for editable installs: they would run extensions that a repository or HOME names.
    ("HGRCPATH", "/dev/null"),
    ("HGRCSKIPREPO", "1"),
    ("HGPLAIN", "1"),
    ("BRZ_HOME", "/dev/null"),
    ("BRZ_PLUGIN_PATH", "-user:-core:-site"),
    ("BZR_HOME", "/dev/null"),
    ("BZR_PLUGIN_PATH", "-user:-core:-site"),
    # npm would run another npm from a prefix in .npmrc, corepack the one that package.json names.
    ("npm_config_userconfig", "/dev/null"),
    ("npm_config_prefix", "/usr"),
    ("npm_config_cache", "/dev/null"),
    ("npm_config_logs_max", "0"),
    ("npm_config_update_notifier", "false"),
    ("COREPACK_HOME", "/dev/null"),
    ("COREPACK_ENABLE_PROJECT_SPEC", "0"),
    ("COREPACK_ENABLE_NETWORK", "0"),
)
