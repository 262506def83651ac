"""Parameters that replace the method of a request, as frameworks read them."""

import pytest
from measuring import Effort

from gateway.plugin.method_overrides import overrides_method, path_overrides_method


@pytest.mark.parametrize(
    "parameter",
    [
        *("_method=DELETE", "_METHOD=put", "_method=", "_method[]=DELETE", "_method.x=DELETE", "a[_method]=DELETE"),
        *("verb=DELETE", "_verb=delete", "override=PATCH", "X-HTTP-Method-Override=DELETE", "x_http_method=PUT"),
        *("$httpMethod=DELETE", "http-method=x", ".method=x", " method=x", "__method=x", "methodOverride=PUT"),
        *("method=delete", "method=%20Delete", "method[]=POST", "http_verb=1", "_m=x", "request_method=DELETE"),
        *("method=ＤＥＬＥＴＥ", "＿method=x", "verb=[\"DELETE\"]", "x=1;_method=DELETE", "x=1&verb=PUT"),
        *("%5fmethod=DELETE", "%255fmethod=DELETE", "verb=%2544ELETE", "verb=MERGE", "verb=MKCOL", "verb='delete'"),
    ],
)  # fmt: skip
def test_method_override_parameter_is_recognised(parameter: str) -> None:
    """In every spelling that some server reads as its name."""
    assert overrides_method(parameter)


@pytest.mark.parametrize(
    "parameter",
    [
        *("q=delete", "type=post", "action=delete", "payment_method=card", "method=GET", "method=flickr.photos.search"),
        *("verb=run", "override=true", "shipping[method]=express", "m=1", "methods=2", "verbose=1", "next=/post", ""),
        *("page=2", "q=_method", "tags[]=put", "sort=-method", "verb=get", "overrides=none", "q=a;b=delete"),
    ],
)
def test_ordinary_parameter_is_not_a_method_override(parameter: str) -> None:
    """A name that only sounds alike, or a value that is no method."""
    assert not overrides_method(parameter)


@pytest.mark.parametrize("piece", ["_", "[", ".", "%25", ";", "method", "ﬃ"])
def test_method_override_check_time_is_bounded(piece: str) -> None:
    """As long as a URL may be."""
    effort = Effort()
    overrides_method(piece * (8192 // len(piece)))
    assert effort.cpu_s < 0.5


@pytest.mark.parametrize(
    "path", ["/a;_method=DELETE", "/a/_method", "/a%3Bverb=delete/b", "/%2fx-http-method-override"]
)
def test_method_override_in_a_path_parameter_is_recognised(path: str) -> None:
    """Where some server begins one."""
    assert path_overrides_method(path)
    assert not path_overrides_method("/a;v=1/methods/delete")
