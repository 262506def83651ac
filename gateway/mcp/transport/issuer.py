"""The HTTP of one authorization server: its metadata (RFC 8414, OpenID Connect Discovery), and JSON answers."""

from urllib.parse import urlsplit

import httpx2

from gateway.contracts.storage.store import Json

_TIMEOUT_S = 10.0


class IssuerError(Exception):
    """The error that the issuer gave no usable answer; the text is for the operator."""


class Issuer:
    """An authorization server by its identifier. `web` sends the requests."""

    def __init__(self, identifier: str, *, web: httpx2.AsyncBaseTransport) -> None:
        self._identifier = identifier
        self._client = httpx2.AsyncClient(
            transport=web, trust_env=False, timeout=_TIMEOUT_S, headers={"accept-encoding": "identity"}
        )

    async def get_url(self, field: str) -> str:
        """Return the URL that the metadata names in a field. Raises IssuerError.

        The metadata must be about this issuer, and the URL as safe as the issuer's.
        """
        url = (await self._fetch_metadata()).get(field)
        if not isinstance(url, str) or urlsplit(url).scheme not in {urlsplit(self._identifier).scheme, "https"}:
            raise IssuerError(f"the issuer's metadata names no {field} that is as safe as the issuer")
        return url

    async def request_json(
        self, method: str, url: str, *, data: dict[str, str] | None = None, headers: dict[str, str] | None = None
    ) -> Json:
        """Return the JSON object of an answer. Raises IssuerError."""
        try:
            response = await self._client.request(method, url, data=data, headers=headers)
            body = response.json()
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise IssuerError(f"the issuer cannot be asked: {error}") from None
        except httpx2.StreamError as error:
            raise IssuerError(f"the issuer's answer is not read: {error}") from None
        except (ValueError, RecursionError):
            body = None
        if response.status_code in {404, 405} and method == "GET":
            raise _AbsentError(f"the issuer answered with HTTP {response.status_code}")
        if response.is_redirect:
            raise IssuerError(
                f"the issuer answered with HTTP {response.status_code}, and no redirect is followed: configure the "
                "address that it leads to"
            )
        if response.status_code != 200:
            reason = body.get("error") if isinstance(body, dict) else None
            words = f", {reason[:100]!r}" if isinstance(reason, str) else ""
            raise IssuerError(f"the issuer answered with HTTP {response.status_code}{words}")
        if not isinstance(body, dict):
            raise IssuerError("the issuer's answer is no JSON object")
        return body

    async def _fetch_metadata(self) -> Json:
        """Return the metadata from the first well-known place that has it. Raises IssuerError."""
        origin, path = _get_origin(self._identifier), urlsplit(self._identifier).path.rstrip("/")
        places = [
            f"{origin}/.well-known/oauth-authorization-server{path}",
            f"{origin}/.well-known/openid-configuration{path}",
            f"{origin}{path}/.well-known/openid-configuration",
        ]
        for place in dict.fromkeys(places):
            try:
                metadata = await self.request_json("GET", place)
            except _AbsentError:
                continue
            if str(metadata.get("issuer", "")).rstrip("/") != self._identifier.rstrip("/"):
                raise IssuerError("the issuer's metadata is that of another issuer")
            return metadata
        raise IssuerError("the issuer has no metadata at /.well-known/oauth-authorization-server")


class _AbsentError(IssuerError):
    pass


def _get_origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
