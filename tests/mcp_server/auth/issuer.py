"""An issuer of access tokens on a loopback port: metadata, keys that rotate, tokens of every kind, and failures."""

import base64
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import jwt
from aiohttp import web
from aiohttp.test_utils import TestServer
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

AUDIENCE: Final = "https://gateway.example.com/mcp"
#: One for all tests: to make one takes a tenth of a second.
RSA_KEY: Final = rsa.generate_private_key(65537, 2048)
OTHER_RSA_KEY: Final = rsa.generate_private_key(65537, 2048)
EC_KEY: Final = ec.generate_private_key(ec.SECP256R1())
ED_KEY: Final = ed25519.Ed25519PrivateKey.generate()


def public(key: Any, **members: object) -> dict[str, object]:
    """Returns the JWK of a key's public half, with further members."""
    kinds = {rsa.RSAPrivateKey: RSAAlgorithm, ec.EllipticCurvePrivateKey: ECAlgorithm}
    algorithm = next((found for kind, found in kinds.items() if isinstance(key, kind)), OKPAlgorithm)
    return {**json.loads(algorithm.to_jwk(key.public_key())), **members}


class Issuer:
    """Serves `keys` at /keys; `status` other than 200 is a failure. `asked` counts the requests for keys.

    /moved redirects to /keys. `token_page` answers at /token.
    """

    def __init__(self) -> None:
        self.keys: list[dict[str, object]] = [public(RSA_KEY, kid="k1", use="sig")]
        self.status = 200
        self.asked = 0
        self.url = ""
        self.metadata: dict[str, object] = {}
        self.token_page: Callable[[web.Request], Awaitable[web.Response]] | None = None

    @property
    def jwks_url(self) -> str:
        return f"{self.url}/keys"

    async def metadata_page(self, _request: web.Request) -> web.Response:
        found = {"issuer": self.url, "jwks_uri": self.jwks_url, "token_endpoint": f"{self.url}/token"}
        endpoint = {"authorization_endpoint": f"{self.url}/authorize", "response_types_supported": ["code"]}
        return web.json_response({**found, **endpoint, **self.metadata})

    async def token_answer(self, request: web.Request) -> web.Response:
        assert self.token_page is not None
        return await self.token_page(request)

    async def keys_page(self, _request: web.Request) -> web.Response:
        self.asked += 1
        return web.json_response({"keys": self.keys}, status=self.status)

    async def moved_page(self, _request: web.Request) -> web.Response:
        raise web.HTTPFound("/keys")

    def claims(self, **changes: object) -> dict[str, object]:
        """Returns the claims of a good token, with changes; None removes one."""
        now = int(time.time())
        claims = {"iss": self.url, "aud": AUDIENCE, "exp": now + 300, "sub": "anna", "scope": "mcp:use openid"}
        return {name: value for name, value in {**claims, **changes}.items() if value is not None}

    def token(
        self, *, key: Any = RSA_KEY, alg: str = "RS256", head: dict[str, object] | None = None, **changes: object
    ) -> str:
        """Returns a token that is signed with a key, for the claims with these changes."""
        headers = {name: value for name, value in {"kid": "k1", **(head or {})}.items() if value is not None}
        return jwt.encode(self.claims(**changes), key, algorithm=alg, headers=headers)

    def odd_token(self, *, head: dict[str, object] | None = None, **changes: object) -> str:
        """Returns a token with a good signature (RS256) that a library may refuse to write. None removes a member."""
        members = {"alg": "RS256", "kid": "k1", **(head or {})}
        told = {name: value for name, value in members.items() if value is not None}
        text = ".".join(base64url(json.dumps(part).encode()) for part in (told, self.claims(**changes)))
        return f"{text}.{base64url(RSAAlgorithm(RSAAlgorithm.SHA256).sign(text.encode(), RSA_KEY))}"


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@asynccontextmanager
async def issuing() -> AsyncIterator[Issuer]:
    """Starts an issuer; its URL stays its own after it was closed."""
    issuer = Issuer()
    app = web.Application()
    app.router.add_get("/.well-known/oauth-authorization-server", issuer.metadata_page)
    app.router.add_get("/keys", issuer.keys_page)
    app.router.add_get("/moved", issuer.moved_page)
    app.router.add_post("/token", issuer.token_answer)
    async with TestServer(app) as server:
        issuer.url = str(server.make_url("")).rstrip("/")
        yield issuer
