"""Which addresses are one resource: equivalent spellings, and nothing that merely looks alike."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limen.tokens.resource import MAX_LENGTH, ResourceError, normalised, same_resource

ROOT = ("https://h", "https://h/", "https://h:443", "https://h:/", "HTTPS://H/", "https://h/.")
MCP = (
    "https://h/mcp",
    "https://h:443/mcp",
    "https://h:0443/mcp",
    "HTTPS://H/mcp",
    "https://h/mcp/../mcp",
    "https://h/./mcp",
    "https://h/../../mcp",
    "https://h/%6dcp",
    "https://h/%6Dcp/%2e%2E/mcp",
)
ALONE = (
    "https://h/mcp/",
    "https://h/mcp/.",
    "https://h/mcp-evil",
    "https://h/mcp/evil",
    "https://h//mcp",
    "https://h/MCP",
    "https://h/mcp?x",
    "https://h/mcp?",
    "https://h/mcp%2F",
    "https://h/mcp;x",
    "https://h:8443/mcp",
    "http://h/mcp",
    "http://h:443/mcp",
    "https://h./mcp",
    "https://h.evil/mcp",
    "https://xn--h-fga/mcp",
    "https://[::1]/mcp",
)


def test_equivalent_addresses_are_one_resource_and_no_others() -> None:
    # `/mcp/` and `/mcp/.` are one address, with a slash at its end.
    classes = [ROOT, MCP, ALONE[:2], *((one,) for one in ALONE[2:])]
    for one in classes:
        for other in classes:
            for left in one:
                for right in other:
                    assert same_resource(left, right) is (one is other), (left, right)


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("HTTPS://Example.COM:443", "https://example.com/"),
        ("http://127.0.0.1:8931/ecb/mcp", "http://127.0.0.1:8931/ecb/mcp"),
        ("http://[::1]:80/a/b/../c", "http://[::1]/a/c"),
        ("https://h/a%2fb%7e%c3%a9", "https://h/a%2Fb~%C3%A9"),
        ("https://h?q=%7e/../x", "https://h/?q=~/../x"),
        ("https://h/a/..", "https://h/"),
        ("https://h/a/b/..", "https://h/a/"),
        ("https://h/a//../b", "https://h/a/b"),
    ],
)
def test_an_address_is_spelled_by_rfc_3986(uri: str, expected: str) -> None:
    assert normalised(uri) == expected


@pytest.mark.parametrize(
    ("uri", "because"),
    [
        ("https://user@h/mcp", "user before its host"),
        ("https://user:secret@h/mcp", "user before its host"),
        ("https://good@evil/mcp", "user before its host"),
        ("https://h/mcp#", "fragment"),
        ("https://h/mcp#part", "fragment"),
        ("https://bücher.example/mcp", "character"),
        ("https://h/mcp\\..\\x", "character"),
        ("https://h\\@evil/mcp", "character"),
        ("https://h/mcp\n", "character"),
        ("https://h/\tmcp", "character"),
        ("https://h/mcp\x00", "character"),
        (" https://h/mcp", "character"),
        ("https://h/\ud800", "character"),
        ("", "not an absolute"),
        ("h/mcp", "not an absolute"),
        ("/mcp", "not an absolute"),
        ("//h/mcp", "not an absolute"),
        ("https:h/mcp", "not an absolute"),
        ("https:///mcp", "not an absolute"),
        ("https://:443/mcp", "not an absolute"),
        ("https://h..x/mcp", "not an absolute"),
        ("https://h:x/mcp", "not an absolute"),
        ("https://h:123456/mcp", "not an absolute"),
        ("https://h/%", "not an absolute"),
        ("https://h/%g0", "not an absolute"),
        ("https://h%2eevil/mcp", "not an absolute"),
        ('https://h/"', "not an absolute"),
        ("ftp://h/mcp", "not an absolute"),
        ("urn:example:mcp", "not an absolute"),
        ("https://h:65536/mcp", "port beyond 65535"),
        ("https://[::1/mcp", "not an absolute"),
        ("https://[1:2]/mcp", "wrong IPv6"),
        ("https://[:::]/mcp", "wrong IPv6"),
        ("https://h/" + "x" * MAX_LENGTH, "characters; at most 2048"),
    ],
)
def test_what_is_no_resource_is_refused_and_equals_nothing_not_even_itself(
    uri: str, because: str
) -> None:
    with pytest.raises(ResourceError, match=because) as raised:
        normalised(uri)
    assert str(raised.value).isprintable()
    assert "secret" not in str(raised.value)
    assert not same_resource(uri, uri)


@given(
    st.text(alphabet="htps:/.@%2eEfF?#[]-a1 \\", max_size=30).map(lambda text: "https://" + text)
)
def test_a_spelling_once_made_is_final(uri: str) -> None:
    try:
        once = normalised(uri)
    except ResourceError:
        return
    assert normalised(once) == once
    assert same_resource(uri, once)
