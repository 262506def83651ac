"""The protocol's own suite for clients, `@modelcontextprotocol/conformance`, as far as it is about what a gateway does.

A gateway uses the tools of its servers. It shows a server's questions to nobody. Its tokens it gets as a client with
credentials, from the issuer that its operator wrote down, not as a person in front of a browser. What the suite asks
of other clients is listed with the reason.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.mcp_servers.servers import ROOT
from tests.mcp_servers.suite import BOTH, HANDSHAKE, MODERN, SUITE, scenarios_of

pytestmark = pytest.mark.mcp_servers

_CLIENT: Final = f"{sys.executable} -m tests.mcp_servers.conformance_client"

#: Not on the timeline of the protocol's revisions.
EXTENSION: Final = ("",)

#: Scenarios, and the revisions at which they are run.
RUN: Final = {
    "initialize": (HANDSHAKE,),
    "tools_call": BOTH,
    "sse-retry": (HANDSHAKE,),
    "request-metadata": (MODERN,),
    "http-standard-headers": (MODERN,),
    "http-custom-headers": (MODERN,),
    "http-invalid-tool-headers": (MODERN,),
    "json-schema-ref-no-deref": (MODERN,),
    "json-schema-2020-12-preservation": BOTH,
    "sep-2322-client-request-state": (MODERN,),
    "auth/client-credentials-basic": EXTENSION,
    "auth/pre-registration": BOTH,
    "auth/metadata-default": BOTH,
    "auth/metadata-var1": BOTH,
    "auth/metadata-var2": BOTH,
    "auth/metadata-var3": BOTH,
    "auth/token-endpoint-auth-basic": BOTH,
    "auth/metadata-issuer-mismatch": (MODERN,),
}

#: Here the client is to give up.
REFUSED: Final = frozenset(("auth/metadata-issuer-mismatch",))

_BROWSER: Final = (
    "client-registration",
    "authorization-request",
    "resource-parameter-in-authorization",
)
#: Checks within them that ask for what a gateway does not do: a person at a browser, an answer to a server's question.
EXCUSED: Final = {
    **{f"auth/metadata-{which}": _BROWSER for which in ("default", "var1", "var3")},
    # The server calls itself otherwise than by its address; a gateway asks it nothing before it has a token for it.
    "auth/metadata-var2": (*_BROWSER, "resource-parameter-matches-prm"),
    "auth/token-endpoint-auth-basic": ("resource-parameter-in-authorization",),
    "sep-2322-client-request-state": (
        "sep-2322-client-request-state-echoed",
        "sep-2322-client-jsonrpc-id-different",
        "sep-2322-client-no-state-omitted",
    ),
}

#: Scenarios of which no check is about a gateway, by reason.
NOT_RUN: Final = {
    "answers to a server's questions (elicitation)": ("elicitation-sep1034-client-defaults",),
    "what happens at the authorization endpoint, where a person consents": (
        "auth/basic-cimd",
        "auth/scope-from-www-authenticate",
        "auth/scope-from-scopes-supported",
        "auth/scope-omitted-when-undefined",
        "auth/scope-step-up",
        "auth/scope-retry-limit",
        "auth/offline-access-scope",
        "auth/offline-access-not-supported",
        "auth/iss-supported",
        "auth/iss-not-advertised",
        "auth/iss-supported-missing",
        "auth/iss-wrong-issuer",
        "auth/iss-unexpected",
        "auth/iss-normalized",
    ),
    "a client that registers itself, or that has no secret": (
        "auth/authorization-server-migration",
        "auth/token-endpoint-auth-none",
    ),
    "another way to show who it is at the token endpoint: a key, a secret in the body": (
        "auth/client-credentials-jwt",
        "auth/token-endpoint-auth-post",
    ),
    "the issuer that a server names, which a gateway does not ask for": ("auth/resource-mismatch",),
    "the authorization of the revision of March 2025, which names no issuer": (
        "auth/2025-03-26-oauth-metadata-backcompat",
        "auth/2025-03-26-oauth-endpoint-fallback",
    ),
    "other ways to a token: identity assertions, workload identity, proof of possession": (
        "auth/enterprise-managed-authorization",
        "auth/wif-jwt-bearer",
        "auth/dpop",
        "auth/dpop-nonce",
    ),
    "skills, which are resources": (
        "sep-2640-client-no-prefetch",
        "sep-2640-client-verify-digest",
        "sep-2640-client-verify-size",
        "sep-2640-client-verify-frontmatter",
    ),
}


def test_every_client_scenario_is_run_or_excluded_with_a_reason() -> None:
    """A new version of the suite brings nothing that goes unseen."""
    assert sorted(scenarios_of("client")) == sorted([*RUN, *(name for names in NOT_RUN.values() for name in names)])


@pytest.mark.parametrize(
    ("scenario", "revision"), [(scenario, revision) for scenario, revisions in RUN.items() for revision in revisions]
)
def test_client_passes_the_conformance_scenario(scenario: str, revision: str, tmp_path: Path) -> None:
    """Every check of the scenario passes, but for those that are excused, which do not."""
    options = ["--scenario", scenario]
    if revision:
        options += ["--spec-version", revision]
    if checks := EXCUSED.get(scenario):
        excused = tmp_path / "excused.yaml"
        excused.write_text(json.dumps({"client": [f"{scenario}:{check}" for check in checks]}), encoding="utf-8")
        options += ["--expected-failures", str(excused)]
    done = subprocess.run((*SUITE, "client", "--command", _CLIENT, *options), cwd=ROOT, capture_output=True, text=True)
    told = done.stdout + done.stderr
    assert done.returncode == 0, told
    assert re.search(r"^Passed: [1-9]", told, re.MULTILINE), told
    # With excuses the suite does not look at this any more.
    assert ("Client exited with code" in told) == (scenario in REFUSED), told
