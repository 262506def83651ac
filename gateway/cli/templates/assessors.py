"""The assessor `NAME`: calls whose texts are all short are known to be harmless."""

from pydantic import BaseModel, ConfigDict, Field

from gateway.plugin import Host, Json, Plugin, RiskAssessor, Verdict


class Config(BaseModel):
    """Hold the settings in the `with:` of `use: NAME`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_chars: int = Field(default=200, ge=0, description="Longest text that is harmless.")


class ShortTexts:
    """Return auto only for what is known to be harmless; for everything else confirm: a person is asked."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def assess(self, arguments: Json) -> Verdict:
        for name, value in arguments.items():
            if not isinstance(value, str) or len(value) > self._config.max_chars:
                return Verdict("confirm", "default", "no_short_text", f"{name!r} is no short text.")
        return Verdict("auto", "whitelist", "short_texts", "All its texts are short.")


def build(config: Config, host: Host) -> RiskAssessor:
    del host  # an assessor judges the arguments alone
    return ShortTexts(config)


PLUGIN = Plugin(Config, build)
