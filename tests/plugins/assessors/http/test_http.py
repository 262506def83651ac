"""The assessor of HTTP requests, against the cases it is measured on."""

import json
import time
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.contracts.plugin import Host
from gateway.contracts.risk import RiskAssessor
from gateway.plugins.assessors.http import PLUGIN, Config

DATA = Path(__file__).parents[3] / "data"
CASES = [json.loads(line) for line in (DATA / "http.jsonl").read_text().splitlines()]
CASES = [case for case in CASES if not case.get("ambiguous")]
SIBLINGS = [json.loads(line) for line in (DATA / "http_siblings.jsonl").read_text().splitlines()]
PROFILES = ("literal", "standard", "hardened")


def assessor(profile: str = "standard", **config: object) -> RiskAssessor:
    return PLUGIN.build(Config.model_validate({"profile": profile, **config}), cast(Host, None))


def decision(url: str, assessor: RiskAssessor, **arguments: object) -> str:
    return assessor.assess({"method": "GET", "url": url, **arguments}).decision


ASSESSORS = {profile: assessor(profile) for profile in PROFILES}


def expected(case: dict[str, Any], *, profile: str) -> str:
    """Core holds in every profile (there is no tier extended). Hardening: auto, in hardened confirm."""
    return "auto" if case["tier"] == "hardening" and profile != "hardened" else str(case["expect"])


@pytest.mark.parametrize("profile", PROFILES)
def test_http_corpus_gets_the_expected_verdicts(profile: str) -> None:
    """Every case holds, in each profile as its tier says; the basis names the whitelist or its absence."""
    judged = [(case, ASSESSORS[profile].assess(case["arguments"])) for case in CASES]
    assert len(judged) > 70
    assert [(case, verdict) for case, verdict in judged if verdict.decision != expected(case, profile=profile)] == []
    for case, verdict in judged:
        assert verdict.basis == ("whitelist" if verdict.decision == "auto" else "default"), case
        assert verdict.rule.startswith("http.") and verdict.reason.endswith("."), case


@pytest.mark.parametrize("profile", PROFILES)
def test_variants_of_the_http_corpus_get_the_expected_verdicts(profile: str) -> None:
    """URLs of the same kinds as the cases: other spellings, other tricks, other plain uses."""
    wrong = [one for one in SIBLINGS if decision(one["url"], ASSESSORS[profile]) != expected(one, profile=profile)]
    assert len(SIBLINGS) > 150 and wrong == []


PRIVATE = [case["arguments"] for case in CASES if case.get("group") == "private_network"]


@pytest.mark.parametrize("arguments", PRIVATE, ids=lambda arguments: arguments["url"])
def test_private_networks_setting_allows_private_hosts_under_hardened(arguments: dict[str, Any]) -> None:
    """With `private_networks` the hardened profile does not ask for being private; metadata services always ask."""
    opened = assessor("hardened", private_networks=True)
    verdict = opened.assess(arguments)
    assert verdict.decision == "auto" or verdict.rule in ("http.disguised", "http.port")
    assert decision("http://169.254.169.254/", opened) == "confirm"


def test_http_request_whitelist_fallback() -> None:
    """Scenario: GET, HEAD and OPTIONS run, other methods ask."""
    for method in ("GET", "HEAD", "OPTIONS", "get", "Head"):
        assert assessor("literal").assess({"method": method, "url": "https://example.com/"}).decision == "auto"
    for method in (
        "POST",
        "PUT",
        "DELETE",
        "PATCH",
        "QUERY",
        "PROPFIND",
        " GET",
        "GET ",
        "GET\n",
        "ＧＥＴ",
        "G\u0435T",
        "*",
    ):
        assert assessor("literal").assess({"method": method, "url": "https://example.com/"}).decision == "confirm"


def test_hosts_setting_allows_only_listed_hosts() -> None:
    """With `hosts` only those listed run, in every profile; a metadata service is never one of them."""
    for profile in PROFILES:
        listed = assessor(profile, hosts=("Example.com", "*.example.org", "localhost", "169.254.169.254"))
        for host in ("example.com", "EXAMPLE.com.", "a.example.org", "a.b.example.org", "localhost:8080"):
            assert decision(f"https://{host}/", listed) == "auto", host
        for host in ("example.org", "a.example.com", "badexample.org", "example.com.evil.net", "169.254.169.254"):
            assert decision(f"https://{host}/", listed) == "confirm", host


def test_long_query_requires_confirmation_under_hardened() -> None:
    """Hardened: a query that could carry a conversation away asks, unless the host is listed."""
    url = "https://example.net/?q=" + "a" * 2_000
    assert decision(url, ASSESSORS["standard"]) == "auto"
    assert decision(url, ASSESSORS["hardened"]) == "confirm"
    assert decision(url, assessor("hardened", hosts=("example.net",))) == "auto"


@pytest.mark.parametrize(
    ("beside", "standard", "hardened"),
    [
        ({"headers": {"User-Agent": "x", "Accept-Language": "de"}}, "auto", "auto"),
        ({"headers": {}}, "auto", "auto"),
        ({"headers": None}, "auto", "auto"),
        ({"headers": {"Authorization": "Bearer x"}}, "auto", "confirm"),
        ({"auth": ["a", "b"]}, "auto", "confirm"),
        ({"headers": {"X-HTTP-Method-Override": "DELETE"}}, "confirm", "confirm"),
        ({"headers": {"x_http_method_override": "DELETE"}}, "confirm", "confirm"),
        ({"headers": {"Host": "169.254.169.254"}}, "confirm", "confirm"),
        ({"headers": {"Transfer-Encoding": "chunked"}}, "confirm", "confirm"),
        ({"headers": {"Metadata-Flavor": "Google"}}, "confirm", "confirm"),
        ({"headers": {"Accept": "a\r\nb"}}, "confirm", "confirm"),
        ({"headers": {"Accept": ["a"]}}, "confirm", "confirm"),
        ({"headers": [["Accept", "a"]]}, "confirm", "confirm"),
        ({"headers": "Accept: a"}, "confirm", "confirm"),
        ({"headers": {"X-Number": 10**5000}}, "confirm", "confirm"),
        ({"headers": {"Range": 10**5000}}, "auto", "auto"),
        ({"body": {}}, "auto", "auto"),
        ({"body": "x"}, "confirm", "confirm"),
        ({"json": {"a": 1}}, "confirm", "confirm"),
        ({"data": "a=1"}, "confirm", "confirm"),
        ({"params": {"q": "x", "n": 1}}, "auto", "auto"),
        ({"params": {"_method": "DELETE"}}, "confirm", "confirm"),
        ({"params": {"url": "http://localhost/"}}, "auto", "confirm"),
        ({"params": {"q": ["x"]}}, "auto", "auto"),
        ({"params": "_method=DELETE"}, "confirm", "confirm"),
        ({"timeout": 5, "follow_redirects": True}, "auto", "auto"),
        ({"timeout": {"a": 1}}, "confirm", "confirm"),
        ({"user_agent": "a\r\nX: y"}, "confirm", "confirm"),
        ({"verify": True, "insecure": False}, "auto", "auto"),
        ({"verify": False}, "auto", "confirm"),
        ({"insecure": True}, "auto", "confirm"),
        ({"proxy": "http://p.example"}, "auto", "confirm"),
        ({"save_to": "x"}, "confirm", "confirm"),
        ({"save_to": None}, "auto", "auto"),
        ({"unix_socket": "/var/run/docker.sock"}, "confirm", "confirm"),
        ({"resolve": "example.com:443:127.0.0.1"}, "confirm", "confirm"),
        ({"method_override": "DELETE"}, "confirm", "confirm"),
    ],
)
def test_unknown_arguments_beside_the_url_require_confirmation(
    beside: dict[str, Any], standard: str, hardened: str
) -> None:
    """Harmless ones run; overrides, bodies, files and unknown ones ask; the rest asks where hardened."""
    assert decision("https://example.com/", ASSESSORS["standard"], **beside) == standard
    assert decision("https://example.com/", ASSESSORS["hardened"], **beside) == hardened


@pytest.mark.parametrize(
    "arguments",
    [{}, {"method": "GET"}, {"url": "https://example.com/"}, {"method": None, "url": "https://example.com/"}]
    + [
        {"method": "GET", "url": url} for url in (None, 1, ["https://example.com/"], {"a": 1}, "", "https://a.b/\ud800")
    ],
)
def test_missing_or_non_text_method_or_url_requires_confirmation(arguments: dict[str, Any]) -> None:
    """A method or URL that is missing or is no text asks."""
    assert assessor().assess(arguments).decision == "confirm"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
NAMES = st.sampled_from(["method", "url", "headers", "params", "body", "verify", "proxy", "auth", "timeout"])


@given(st.dictionaries(NAMES | st.text(), JSON, max_size=5), st.booleans())
def test_any_object_gets_a_verdict(arguments: dict[str, Any], plain: bool) -> None:
    """No JSON object raises."""
    if plain:
        arguments = {**arguments, "method": "GET", "url": "https://example.com/"}
    for each in ASSESSORS.values():
        assert each.assess(arguments).decision in ("auto", "confirm")


REFUSED = [case["url"] for case in SIBLINGS if case["expect"] == "confirm" and case["tier"] == "core"]


@given(st.sampled_from(REFUSED), st.sampled_from(["", "/", "/x", "?a=1", "#f"]), st.booleans())
def test_rewritten_variants_of_risky_urls_still_require_approval(url: str, end: str, upper: bool) -> None:
    """Another letter case or something at the end: what asks goes on to ask."""
    assert decision((url.upper() if upper else url) + end, ASSESSORS["standard"]) == "confirm"


HOSTILE = ("1.", "a.", "/", "%2f", "a=http://x&", ":", "@", "9", "0x", "1-", "[", "\\", "①", "//a")


@pytest.mark.parametrize("piece", HOSTILE)
@pytest.mark.parametrize("start", ["http://", "https://example.com/?u=", "https://["])
def test_hostile_text_takes_linear_time(start: str, piece: str) -> None:
    """Long URLs are judged in less than 100 ms, those just short enough, too."""
    took = []
    for length in (100_000, 8_000):
        url = start + piece * (length // len(piece))
        for _ in range(2):
            started = time.thread_time()
            decision(url, ASSESSORS["hardened"])
            took.append(time.thread_time() - started)
    assert min(took[:2]) < 0.1 and min(took[2:]) < 0.1


@pytest.mark.parametrize(
    ("arguments", "expect"),
    [
        ({"params": {f"x{i}": "a" for i in range(300)}}, "confirm"),
        ({"params": {"x": "a" * 9_000}}, "confirm"),
        ({"headers": {f"accept{'-' * i}": "a" for i in range(100)}}, "confirm"),
        ({"params": {f"x{i}": "a" for i in range(100)}}, "auto"),
        ({"params": {"x": "1;_method=DELETE"}}, "confirm"),
        ({"params": {"_method[]": "DELETE"}}, "confirm"),
    ],
    ids=["parameters", "value", "headers", "few", "semicolon", "brackets"],
)
def test_query_parameters_are_assessed_like_the_query_of_the_url(arguments: dict[str, Any], expect: str) -> None:
    """A query that is too long or may replace the method asks."""
    assert decision("https://example.com/", assessor(), **arguments) == expect
    url = "https://example.com/?" + "&".join(f"{name}={value}" for name, value in arguments.get("params", {}).items())
    if "params" in arguments:
        assert decision(url, assessor()) == expect


@pytest.mark.parametrize("name", ["method", "_method", "http_method", "requestMethod", "__method", "_method[]"])
@pytest.mark.parametrize("value", ["delete", "DELETE", "Post", "put", " PATCH "])
def test_method_override_in_the_query_requires_approval_in_every_profile(name: str, value: str) -> None:
    """Graph APIs take `?method=delete` for a DELETE; `?method=flickr.photos.search` is an ordinary word."""
    for judge in ASSESSORS.values():
        assert decision(f"https://example.com/1?a=b&{name}={value.strip()}", judge) == "confirm"
        assert decision("https://example.com/1", judge, params={name: value}) == "confirm"
        assert decision("https://example.com/?method=flickr.photos.search&other=delete", judge) == "auto"


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/?access_token=abc",
        "https://example.com/?API_KEY=abc",
        "https://example.com/?q=1&X-Amz-Signature=0a",
        "https://example.com/?key=AIza" + "a1B" * 12,
        "https://example.com/?q=" + "ghp_" + "a1B2" * 9,
        "https://example.com/%67hp_" + "a1B2" * 9,
        "https://api.telegram.org/bot123456789:" + "a1B2c" * 7 + "/getMe",
    ],
)
def test_credentials_in_a_url_require_confirmation_under_hardened(url: str) -> None:
    """As those in headers do: by the name of a parameter, or by their looks."""
    assert decision(url, ASSESSORS["standard"]) == "auto"
    assert decision(url, ASSESSORS["hardened"]) == "confirm"


def test_page_token_parameter_is_not_taken_for_a_credential() -> None:
    """Nor is a word that only begins like one; a harmless header with a key in it carries one."""
    hardened = ASSESSORS["hardened"]
    assert decision("https://example.com/?page_token=abc&tokens=5&key=name", hardened) == "auto"
    assert decision("https://example.com/", hardened, headers={"Accept-Language": "ghp_" + "a1B2" * 9}) == "confirm"
    assert decision("https://example.com/", hardened, params={"token": "abc"}) == "confirm"


def test_list_values_of_query_parameters_are_judged_individually() -> None:
    """Each value of a list is judged, as each header that names a tenant is let through."""
    judge = ASSESSORS["standard"]
    url = "https://api.example.com/v1/items"
    assert decision(url, judge, params={"page": 1, "tags": ["a", "b"], "sort": None}) == "auto"
    assert decision(url, judge, headers={"X-Tenant-Id": "7"}) == "auto"
    for params in (
        {"verb": ["x", "DELETE"]},
        {"_method": [""]},
        {"a": [["b"]]},
        {"a": {"b": "c"}},
        [["a", "b"]],
        {"a": ["x"] * 300},
    ):
        assert decision(url, judge, params=params) == "confirm", params
    assert decision(url, ASSESSORS["hardened"], params={"x": ["a", "http://10.0.0.1/"]}) == "confirm"
