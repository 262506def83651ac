"""What chat completions and Responses have in common."""

from gateway.model.apis.openai_form import OpenAiForm
from gateway.upstream.endpoint import Endpoint, ModelAccess

CLIENTS = b"Authorization: Bearer sk-client\r\n"


def test_client_lines_list_and_credential_pass_unless_the_gateway_has_a_key() -> None:
    form = OpenAiForm()
    assert form.build_lines(b"X-One: 1\r\n", ModelAccess()) == b"X-One: 1\r\n"
    assert form.convert_models(b'{"data": []}') == b'{"data": []}'
    for key, sent in ((None, CLIENTS), (b"k", b"Authorization: Bearer k\r\n")):
        endpoint = Endpoint(name="up", host="h", port=1, authority=b"h", api_key=key)
        assert form.select_credential(CLIENTS, endpoint, header=b"authorization", lines=b"") == sent
