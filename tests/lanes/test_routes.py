"""A target belongs to the upstream with the longest prefix of its raw path; nothing is decoded to find it."""

import pytest

from gateway.lanes.routes import Route, RouteTable, get_path, resolve_alias

V1 = Route(b"/v1/", 0)
OTHER = Route(b"/other", 1)
DEEP = Route(b"/v1/responses", 2)
TABLE = RouteTable([V1, OTHER, DEEP])


@pytest.mark.parametrize(
    ("target", "route"),
    [
        (b"/v1/chat/completions", V1),
        (b"/v1/", V1),
        (b"/v1/?q", V1),
        (b"/v1//a/../b/%2e%2E?q=/other", V1),
        (b"/v1/responses", DEEP),
        (b"/v1/responses/resp_1?x", DEEP),
        (b"/v1/responses?x", DEEP),
        (b"/v1/responsesx", V1),
        (b"/other", OTHER),
        (b"/other/x", OTHER),
        (b"/other?x", OTHER),
        (b"/otherx", None),
        (b"/v1", None),
        (b"/V1/chat", None),
        (b"/%761/chat", None),
        (b"//v1/chat", None),
        (b"/x/../v1/chat", None),
        (b"/", None),
        (b"*", None),
    ],
)
def test_the_longest_prefix_of_whole_segments_wins(target: bytes, route: Route | None) -> None:
    """By the bytes that came: no case folding, no decoding, no dot segments (K6)."""
    assert TABLE.match(target) == route


@pytest.mark.parametrize(
    "rest",
    [
        *(b"../context/approvals", b"%2e%2e/metrics", b".%2E/x", b"a/../../x", b"..", b"../", b"./../x", b"//../x"),
        *(
            b"..%2fx",
            b"a%2f..%2f..%2fx",
            b"..%5cx",
            b"..\\x",
            b"a%2fb/../../x",
        ),
        *(b"..?q=/v1/", b"%2e%2e%2fx", b"responses/../../x"),
    ],
)
def test_path_that_could_leave_its_prefix_does_not_match(rest: bytes) -> None:
    """An upstream that tidies paths up would serve another one, with the operator's key."""
    assert TABLE.match(b"/v1/" + rest) is None
    assert Route(b"/v1", 0).matches(b"/v1/" + rest) is False


@pytest.mark.parametrize(
    "rest", [b"a/..", b"a/../b", b"a/b/../../c", b"...", b"..a/b", b"a%2fb", b"a?x=/../../y", b"%252e%252e/x", b"..;/x"]
)
def test_dot_segments_below_the_prefix_match(rest: bytes) -> None:
    """They go on as they came."""
    assert TABLE.match(b"/v1/" + rest) == V1


def test_path_leaving_a_deeper_prefix_matches_the_wider_prefix() -> None:
    """As a server would read it: to the upstream of `/v1/`, with its key."""
    assert TABLE.match(b"/v1/responses/../models") == V1


def test_of_two_equal_prefixes_the_first_configured_wins() -> None:
    """The order in the file decides nothing else."""
    first, second = Route(b"/v1/", 0), Route(b"/v1/", 1)
    assert RouteTable([first, second]).match(b"/v1/x") is first
    assert RouteTable([Route(b"/", 2), second, first]).match(b"/v1/x") is second
    assert RouteTable([]).match(b"/v1/x") is None


@pytest.mark.parametrize(
    ("prefix", "base", "target", "rewritten"),
    [
        (b"/v1/", b"", b"/v1/x?y", b"/v1/x?y"),
        (b"/v1/", b"/openai/v1", b"/v1/x?y", b"/openai/v1/x?y"),
        (b"/v1/", b"/openai/v1", b"/v1/", b"/openai/v1/"),
        (b"/v1", b"/base", b"/v1", b"/base"),
        (b"/v1", b"/base", b"/v1?q", b"/base?q"),
        (b"/v1", b"/base", b"/v1//a/../%2e", b"/base//a/../%2e"),
        (b"/", b"/base", b"/x", b"/base/x"),
        (b"/v1/embeddings", b"/v1", b"/v1/embeddings?x", b"/v1/embeddings?x"),
        (b"/v1/audio/", b"/openai/v1", b"/v1/audio/speech", b"/openai/v1/audio/speech"),
        (b"/v1/chat/completions", b"/base", b"/v1/chat/completions", b"/base/chat/completions"),
        (b"/v1/local/", b"/v1", b"/v1/local/models", b"/v1/models"),
        (b"/ollama/v1", b"/v1", b"/ollama/v1/models", b"/v1/models"),
    ],
)
def test_a_base_path_replaces_the_prefix(prefix: bytes, base: bytes, target: bytes, rewritten: bytes) -> None:
    """Without one the target goes on unchanged; what is behind the prefix always does (P2)."""
    assert Route(prefix, 0).rewrite_target(target, base) == rewritten


@pytest.mark.parametrize(
    ("target", "meant"),
    [
        (b"/chat/completions", b"/v1/chat/completions"),
        (b"/chat/completions?a=b?c", b"/v1/chat/completions?a=b?c"),
        (b"/chat/completions?", b"/v1/chat/completions?"),
        (b"/chat/completions/cc_1", b"/v1/chat/completions/cc_1"),
        (b"/models", b"/v1/models"),
        (b"/models/a%2Fb?x", b"/v1/models/a%2Fb?x"),
        (b"/embeddings", b"/v1/embeddings"),
        (b"/responses", b"/v1/responses"),
        (b"/fine_tuning/jobs", b"/v1/fine_tuning/jobs"),
        (b"/context/embeddings?x", b"/context/v1/embeddings?x"),
        (b"/context/models/a%2Fb", b"/context/v1/models/a%2Fb"),
        (b"/context/v1/models", b"/context/v1/models"),
        (b"/context/runs", b"/context/runs"),
        (b"/context/approvals?x=/models", b"/context/approvals?x=/models"),
        (b"//models", b"//models"),
        (b"/Models", b"/Models"),
        (b"/v1/models", b"/v1/models"),
        (b"/metrics", b"/metrics"),
        (b"/chatx/completions", b"/chatx/completions"),
        (b"/v1/x?", b"/v1/x?"),
        (b"/x?/chat/completions", b"/x?/chat/completions"),
        (b"*", b"*"),
    ],
)
def test_api_path_without_v1_prefix_resolves_to_its_v1_path(target: bytes, meant: bytes) -> None:
    """Every path of the API, and nothing else; what follows is kept byte for byte."""
    assert resolve_alias(target) == meant


def test_path_is_the_raw_target_before_the_query() -> None:
    """Raw."""
    assert get_path(b"/a%3Fb;c?d?e") == b"/a%3Fb;c" and get_path(b"/a?") == get_path(b"/a") == b"/a"


@pytest.mark.parametrize(
    ("prefix", "path", "own"),
    [
        (b"/v1/", b"/v1/messages", b"/v1/messages"),
        (b"/v1/", b"/v1/threads/v1/messages", b"/v1/threads/v1/messages"),
        (b"/v1/messages", b"/v1/messages", b"/v1/messages"),
        (b"/rented/v1/", b"/rented/v1/messages", b"/v1/messages"),
        (b"/rented", b"/rented/v1/messages", b"/v1/messages"),
        (b"/groq/openai/v1", b"/groq/openai/v1/messages", b"/v1/messages"),
        (b"/azure/", b"/azure/deployments/d/embeddings", b"/deployments/d/embeddings"),
        (b"/openai/deployments/", b"/openai/deployments/d/embeddings", b"/deployments/d/embeddings"),
        (b"/", b"/v1/messages", b"/v1/messages"),
    ],
)
def test_api_path_is_recognized_below_any_prefix(prefix: bytes, path: bytes, own: bytes) -> None:
    """The rest of a path can look like another one."""
    assert Route(prefix, 0).get_api_path(path) == own
