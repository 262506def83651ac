"""Field lines are read by the grammar of RFC 9110 and kept as they came; which of them end at this hop is one list."""

import string

import pytest

from gateway.http.fields import (
    HOP_BY_HOP,
    Field,
    FieldError,
    check_trailers,
    get_hop_fields,
    group_by_name,
    is_chunked,
    list_members,
    parse_fields,
)

CANARY = b"cAnArY-5f3d"


def only(line: bytes) -> Field:
    (field,) = parse_fields(line + b"\r\n\r\n")
    return field


def test_field_is_parsed_to_name_value_and_original_line() -> None:
    """The line that is forwarded is the line that came, white space included."""
    assert only(b"X-Mixed-Case: \t a b\tc \t") == (b"x-mixed-case", b"a b\tc", b"X-Mixed-Case: \t a b\tc \t\r\n")


def test_order_case_and_repeats_are_kept() -> None:
    """Nothing is merged or sorted: P18."""
    section = b"ETag: 1\r\nSet-Cookie: a\r\nx-low: 2\r\nSet-Cookie: b\r\nSET-COOKIE: a\r\n\r\n"
    fields = parse_fields(section)
    assert b"".join(field.line for field in fields) + b"\r\n" == section
    assert [field.name for field in fields] == [b"etag", b"set-cookie", b"x-low", b"set-cookie", b"set-cookie"]


@pytest.mark.parametrize("line", [b"X:", b"X: ", b"X:\t \t"])
def test_header_field_with_an_empty_value_is_read(line: bytes) -> None:
    """White space alone is no value; the line keeps it."""
    assert only(line) == (b"x", b"", line + b"\r\n")


def test_field_name_and_value_accept_every_legal_byte() -> None:
    """RFC 9110: tchar in names; visible ASCII, SP, HTAB and obs-text in values."""
    name = b"!#$%&'*+-.^_`|~0189AZaz"
    value = bytes([*range(0x21, 0x7F), 0x20, 0x09, *range(0x80, 0x100), 0x2E])
    assert only(name + b": " + value) == (name.lower(), value, name + b": " + value + b"\r\n")


def accepted(template: bytes) -> set[int]:
    """The bytes that the template takes in its place."""
    taken = set()
    for byte in range(256):
        try:
            parse_fields(template % bytes((byte,)) + b"\r\n\r\n")
        except FieldError:
            continue
        taken.add(byte)
    return taken


def test_field_value_with_a_control_character_is_refused() -> None:
    """CR, LF and NUL are what splits messages; none of the others means anything. HTAB alone is white space."""
    assert accepted(b"X: a%bb") == set(range(256)) - {*range(9), *range(10, 32), 127}


def test_field_name_must_be_a_token() -> None:
    """No space before the colon (F7), no quotes, brackets or controls, nothing beyond ASCII."""
    token = set(b"!#$%&'*+-.^_`|~" + string.digits.encode() + string.ascii_letters.encode())
    assert accepted(b"%bX: a") == token
    assert accepted(b"X%b: a") == token | {ord(":")}  # a second colon belongs to the value


@pytest.mark.parametrize(
    ("section", "complaint"),
    [
        (b"A: b\r\nX: a\r\n b\r\n\r\n", "header line 3 begins with white space: folded headers are not accepted"),
        (b" X: a\r\n\r\n", "header line 1 begins with white space"),
        (b"\tX: a\r\n\r\n", "header line 1 begins with white space"),
        (b"A: b\r\nX : a\r\n\r\n", "header line 2 has white space before its colon"),
        (b"X\t: a\r\n\r\n", "header line 1 has white space before its colon"),
        (b"X: a\nY: b\r\n\r\n", "header line 1 contains a control character; lines end with CR LF"),
        (b"X: a\rb\r\n\r\n", "header line 1 contains a control character"),
        (b"X: \0\r\n\r\n", "header line 1 contains a control character"),
        (b"no colon\r\n\r\n", "header line 1 is not 'name: value'"),
        (b": a\r\n\r\n", "header line 1 is not 'name: value'"),
        (b"A: b\r\n", "header line 2 is not 'name: value'"),
        (b"A: b\r\n\r\nC: d\r\n\r\n", "header line 2 is not 'name: value'"),
        (b"", "header line 1 is not 'name: value'"),
    ],
)
def test_field_error_names_the_line_and_reason(section: bytes, complaint: str) -> None:
    """F7, F16, F17, F32: the text tells which line and why, and repeats no byte of it."""
    with pytest.raises(FieldError) as told:
        parse_fields(section)
    assert str(told.value).startswith(complaint)


@pytest.mark.parametrize("line", [b"A : %b", b" %b", b"A: %b\0", b"%b", b"%b\xff: a", b"A: b\n%b"])
def test_malformed_field_line_is_not_echoed(line: bytes) -> None:
    """F32: a secret in a bad line does not come back in the answer or the log."""
    with pytest.raises(FieldError) as told:
        parse_fields(b"Ok: " + CANARY + b"\r\n" + line % CANARY + b"\r\n\r\n")
    assert CANARY.decode() not in str(told.value)


def test_field_section_may_follow_a_start_line() -> None:
    """`start` is where it begins."""
    assert parse_fields(b"GET / HTTP/1.1\r\nA: b\r\n\r\n", 16) == [(b"a", b"b", b"A: b\r\n")]
    assert parse_fields(b"\r\n") == []


@pytest.mark.parametrize(
    "name",
    [
        *(
            b"Content-Length",
            b"Transfer-Encoding",
            b"Host",
            b"Authorization",
            b"Connection",
            b"Content-Type",
            b"Trailer",
        ),
        *(b"content-encoding", b"COOKIE", b"Set-Cookie", b"Expect", b"TE", b"Upgrade", b"Keep-Alive", b"X-Api-Key"),
        *(b"X-Gateway-Key", b"X-Context-Mode", b"x-context-anything", b"Proxy-Authorization", b"Content-Range"),
    ],
)
def test_trailer_with_framing_or_credential_field_is_rejected(name: bytes) -> None:
    """F12: framing, routing, credentials and content format belong to the head."""
    with pytest.raises(FieldError, match=r"a trailer carries a field that is not allowed there") as told:
        check_trailers(b"X-Sum: 1\r\n" + name + b": " + CANARY + b"\r\n\r\n")
    assert CANARY.decode() not in str(told.value)


def test_valid_trailers_pass_and_malformed_ones_are_refused() -> None:
    """Checksums and timings are what trailers are for."""
    check_trailers(b"\r\n")
    check_trailers(b"X-Sum: 1\r\nServer-Timing: a;dur=1\r\nETag: x\r\n\r\n")
    for section in (b" X: y\r\n\r\n", b"X : y\r\n\r\n", b"X: y\n\r\n\r\n", b"X\r\n\r\n", b""):
        with pytest.raises(FieldError):
            check_trailers(section)


@pytest.mark.parametrize(
    "line", [b"Transfer-Encoding: chunked", b"TRANSFER-ENCODING:Chunked", b"transfer-encoding:  CHUNKED"]
)
def test_unambiguous_chunked_coding_is_recognised(line: bytes) -> None:
    """Case does not matter."""
    assert is_chunked(only(line))


@pytest.mark.parametrize(
    "value",
    [b"chunked\t", b"chunked,", b"gzip, chunked", b'"chunked"', b"chunked;q=1", b"", b"xchunked", b"\x85chunked"],
)
def test_other_transfer_codings_are_not_chunked(value: bytes) -> None:
    """llhttp takes a trailing TAB for another coding."""
    assert not is_chunked(Field(b"transfer-encoding", value, b"Transfer-Encoding: " + value + b"\r\n"))


def test_list_members_are_collected_in_lower_case() -> None:
    """Empty members do not count (RFC 9110 section 5.6.1)."""
    fields = parse_fields(b"Connection: Close ,, X-A\t\r\nOther: z\r\nconnection: \r\nCONNECTION: Keep-Alive\r\n\r\n")
    assert list_members(group_by_name(fields)[b"connection"]) == [b"close", b"x-a", b"keep-alive"]
    assert list_members(()) == []


def test_connection_header_cannot_nominate_protected_fields_as_hop_by_hop() -> None:
    """RFC 9110 section 7.6.1, without letting a client nominate away Host, credentials or framing."""
    protected = [b"host", b"authorization", b"content-length", b"content-type", b"transfer-encoding", b"x-api-key"]
    assert get_hop_fields([*protected, b"x-gateway-key", b"set-cookie", b"x-hop", b"close"]) == {b"x-hop", b"close"}


def test_hop_by_hop_field_list_is_complete() -> None:
    """Transfer-Encoding is not among them: the chunk framing goes on as it came, and its field with it."""
    proxies = {b"proxy-connection", b"proxy-authenticate", b"proxy-authorization", b"proxy-authentication-info"}
    assert proxies | {b"connection", b"keep-alive", b"te", b"upgrade"} == HOP_BY_HOP
