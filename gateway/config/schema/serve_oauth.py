"""The section `mcp.serve.oauth`: access tokens of an issuer beside the gateway's own keys."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from gateway.config.schema.section import Section
from gateway.config.values.addresses import BaseUrl
from gateway.config.values.scalars import ShownName, Text

#: Callers with a token have these names, so that none of them is taken for a key.
CALLER_PREFIX = "oauth:"

TokenScope = Literal["tools", "approve"]


class ServeOAuth(Section):
    """Access tokens (JWT) that clients bring from an issuer. The gateway issues none itself."""

    issuer: BaseUrl = Field(description="Identifier of the issuer, exactly as its tokens name it in `iss`.")
    audience: Text = Field(description="Value that a token must name in `aud`, such as the URL of `/mcp`.")
    jwks_url: BaseUrl | None = Field(
        default=None, description="URL of the issuer's public keys; null: the `jwks_uri` of its metadata."
    )
    scope_claim: Text = Field(
        default="scope",
        description="Claim that holds what a token may do: words in a text, or a list; dots lead into objects.",
    )
    scopes: Mapping[Text, tuple[TokenScope, ...]] = Field(
        description="By value of `scope_claim`: scopes of the gateway that it grants. All other values grant nothing."
    )
    caller_claim: Text = Field(
        default="sub", description="Claim that names the caller in runs, approvals and logs; it must be unique."
    )
    tenant: ShownName | None = Field(default=None, description="Tenant of all callers with a token.")
    tenant_claim: Text | None = Field(
        default=None, description="Claim that names the tenant of the caller, in place of `tenant`."
    )
