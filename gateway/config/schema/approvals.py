"""The sections `risk` and `approvals`."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from gateway.config.schema.section import PluginUse, Section
from gateway.config.values.addresses import SecretText, SecretUrl
from gateway.config.values.scalars import ApprovalMode, FilePath, Flag, Name, Text
from gateway.config.values.units import Duration


class AssessorUse(PluginUse):
    adds: Flag = Field(
        default=False,
        description="Keep the built-in assessor of the tool beside it; false: it replaces that one.",
    )


class Risk(Section):
    trust_llm: Literal["always", "until_tainted", "never"] = Field(
        default="always", description="When a model's own `risk_level: low` lets a call run."
    )
    profile: Literal["literal", "standard", "hardened"] = Field(
        default="standard", description="Which calls are known to be harmless."
    )
    default: Literal["confirm", "deny"] = Field(
        default="confirm", description="Verdict on a call that no rule knows: ask a person, or refuse."
    )
    rules: Mapping[Text, Literal["deny", "confirm", "floor"]] = Field(
        default_factory=dict,
        description="By tool (globs): refuse its calls, ask, or never take a model's own word that the risk is low.",
    )
    assessors: Mapping[str, AssessorUse] = Field(
        default_factory=dict, description="Assessors of your own, by the name of the tool they judge."
    )


class Notify(Section):
    webhook: SecretUrl | None = Field(default=None, description="URL that is told of each new approval.")
    webhook_file: FilePath | None = Field(default=None, description="File that holds `webhook`.")
    secret: SecretText | None = Field(default=None, description="Signs what is sent (HMAC-SHA256).")
    secret_file: FilePath | None = Field(default=None, description="File that holds `secret`.")


class Approvals(Section):
    mode: ApprovalMode = Field(
        default="turn",
        description="How a client waits: the answer ends with the question (`turn`), the stream stays open until "
        "somebody has decided elsewhere (`hold`), or nobody is asked (`reject`).",
    )
    chains: Mapping[Name, ApprovalMode] = Field(
        default_factory=dict, description="By chain: another `mode` for its requests."
    )
    inline_wait: Duration = Field(default=120.0, description="How long a stream is held before it becomes a turn.")
    expires: Duration = Field(default=24 * 3600.0, description="How long an approval can be decided.")
    remembered: Duration = Field(
        default=30 * 24 * 3600.0,
        description="How long a conversation is remembered that approved a call for good, or asks before each.",
    )
    on_reject: Literal["abort", "continue"] = Field(
        default="abort", description="After a rejection: end the run, or tell the model and go on."
    )
    notify: tuple[Notify, ...] = Field(default=(), description="Whom to tell of new approvals.")
