"""The sections `risk` and `approvals`."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from gateway.config.schema.section import PluginUse, Section
from gateway.config.values.addresses import SecretText, SecretUrl
from gateway.config.values.scalars import ApprovalMode, FilePath, Flag, Name, Text, build_count_type
from gateway.config.values.units import Duration


class AssessorUse(PluginUse):
    adds: Flag = Field(
        default=False,
        description="Use it in addition to the tool's built-in assessor; false: instead of that one.",
    )


class Risk(Section):
    trust_llm: Literal["always", "until_tainted", "never"] = Field(
        default="always", description="When a call runs because the model itself marks it `risk_level: low`."
    )
    profile: Literal["literal", "standard", "hardened"] = Field(
        default="standard", description="How many kinds of calls count as harmless, without asking the model."
    )
    default: Literal["confirm", "deny"] = Field(
        default="confirm", description="Verdict on a call that no rule covers: wait for an approval, or refuse it."
    )
    rules: Mapping[Text, Literal["deny", "confirm", "floor"]] = Field(
        default_factory=dict,
        description=(
            "By tool, as globs: refuse its calls (`deny`), require an approval (`confirm`), or ignore "
            "the model's own `risk_level: low` (`floor`)."
        ),
    )
    assessors: Mapping[str, AssessorUse] = Field(
        default_factory=dict, description="Your own assessors, by the name of the tool that they judge."
    )


#: The name of the caller whose decision came by a link begins so.
LINK_PREFIX = "link:"


class NotifyLinks(Section):
    as_: Name = Field(alias="as", description="Name under which decisions by these links are on record.")


class Notify(Section):
    webhook: SecretUrl | None = Field(default=None, description="URL that receives a request for each new approval.")
    webhook_file: FilePath | None = Field(default=None, description="File that holds `webhook`.")
    secret: SecretText | None = Field(default=None, description="Key that signs these requests (HMAC-SHA256).")
    secret_file: FilePath | None = Field(default=None, description="File that holds `secret`.")
    links: NotifyLinks | None = Field(
        default=None,
        description="Put a link into each request with which its reader decides, once and without a key; null: none.",
    )


class RequirementSettings(Section):
    approvals: Annotated[int, build_count_type(2, 9)] = Field(description="Keys that must approve such a call.")
    tools: tuple[Text, ...] = Field(default=(), description="Tools, as names and globs; empty: all.")
    risk: tuple[Literal["low", "medium", "high"], ...] = Field(
        default=(), description="Risk levels that the model itself gave; empty: any, or none."
    )


class ApprovalsSettings(Section):
    mode: ApprovalMode = Field(
        default="turn",
        description="How a client waits. `turn`: the answer ends with the question. `hold`: the stream stays open "
        "until the decision comes from elsewhere. `reject`: the call is refused without a question.",
    )
    chains: Mapping[Name, ApprovalMode] = Field(
        default_factory=dict, description="By chain: another `mode` for its requests."
    )
    inline_wait: Duration = Field(
        default=120.0, description="Time for which a stream stays open before it ends with the question."
    )
    expires: Duration = Field(default=24 * 3600.0, description="Time in which you can decide on an approval.")
    remembered: Duration = Field(
        default=30 * 24 * 3600.0,
        description=(
            "Time for which the gateway remembers that a conversation approved a call for good, or "
            "wants an approval for each."
        ),
    )
    on_reject: Literal["abort", "continue"] = Field(
        default="abort",
        description=(
            "After a rejection: end the run (`abort`), or give the model the rejection and go on (`continue`). "
            "A response with an `mcp` tool always goes on."
        ),
    )
    self_: Literal["allow", "refuse"] = Field(
        default="allow",
        alias="self",
        description="Whether a key that begins a run may approve its calls, or only reject them (`refuse`).",
    )
    require: tuple[RequirementSettings, ...] = Field(
        default=(),
        description=(
            "Calls that several keys must approve if they need an approval. If several entries fit, the highest "
            "number applies."
        ),
    )
    notify: tuple[Notify, ...] = Field(default=(), description="Webhooks for new approvals.")
