"""The parts of a model API that all in OpenAI's form share: the credential, the header lines, the list of models."""

from gateway.upstream.endpoint import Endpoint, ModelAccess


class OpenAiForm:
    """The parts of a `ModelApi` that are the same for chat completions and Responses."""

    models_path = b"/models"

    def build_lines(self, lines: bytes, access: ModelAccess) -> bytes:
        """Return the client's lines."""
        del access
        return lines

    def select_credential(self, clients: bytes, endpoint: Endpoint, *, header: bytes, lines: bytes) -> bytes:
        """Return the client's credential, or the upstream's own key in `auth_header`, else in `header`."""
        del lines
        return clients if endpoint.api_key is None else endpoint.build_credential_line(header)

    def convert_models(self, content: bytes) -> bytes:
        """Return the list as it is."""
        return content
