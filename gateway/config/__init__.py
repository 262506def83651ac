"""gateway.yaml: read once, checked as a whole, frozen."""

from gateway.config.load import LoadedConfig, load
from gateway.config.problems import ConfigError, Problem
from gateway.config.reload import merge_configs
from gateway.config.schema.settings import Settings
from gateway.config.values.addresses import Address
from gateway.config.values.secret import Secret, iterate_secret_texts

__all__ = [
    "Address",
    "ConfigError",
    "LoadedConfig",
    "Problem",
    "Secret",
    "Settings",
    "iterate_secret_texts",
    "load",
    "merge_configs",
]
