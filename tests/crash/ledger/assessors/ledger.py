"""The assessor `ledger`: some lines are written only when a person says so."""

from pydantic import BaseModel, ConfigDict, Field

from gateway.contracts.plugin import Host, Plugin
from gateway.contracts.risk import RiskAssessor, Verdict
from gateway.contracts.storage.store import Json


class Config(BaseModel):
    """The `with:` of `use: ledger`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    asks: tuple[int, ...] = Field(default=(5,), description="Numbers of the lines that need approval.")


class LedgerAssessor:
    """Judges by the number of the line."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def assess(self, arguments: Json) -> Verdict:
        if arguments["n"] in self._config.asks:
            return Verdict("confirm", "default", "ledger_asks", "This line needs approval.")
        return Verdict("auto", "whitelist", "ledger", "An everyday line.")


def build(config: Config, host: Host) -> RiskAssessor:
    del host
    return LedgerAssessor(config)


PLUGIN = Plugin(Config, build)
