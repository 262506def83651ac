"""The stage `NAME`: adds a note for the model to every request."""

from pydantic import BaseModel, ConfigDict, Field

from gateway.plugin import Exchange, Handler, Host, Plugin, Reply, Stage, replace


class Config(BaseModel):
    """Hold the settings in the `with:` of `use: NAME`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    note: str = Field(default="Answer in one sentence.", description="What the model is told.")


class NoteStage:
    """Add `note` to the notes of a request, which a prompt_enhancer below it renders."""

    def __init__(self, config: Config) -> None:
        self._config = config

    async def __call__(self, exchange: Exchange, call_next: Handler) -> Reply:
        return await call_next(replace(exchange, notes=(*exchange.notes, self._config.note)))


def build(config: Config, host: Host) -> Stage:
    del host  # it has tools, prompts, the store, counters and a clock for stages that need them
    return NoteStage(config)


PLUGIN = Plugin(Config, build)
