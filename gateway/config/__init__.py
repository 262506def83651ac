"""gateway.yaml: read once, checked as a whole, frozen."""

from gateway.config.addresses import Address
from gateway.config.load import Loaded, load
from gateway.config.problems import ConfigError, Problem
from gateway.config.reload import replacing
from gateway.config.secret import Secret, redactable
from gateway.config.settings import Settings

__all__ = ["Address", "ConfigError", "Loaded", "Problem", "Secret", "Settings", "load", "redactable", "replacing"]
