"""One spelling for the address of a protected resource, so that equivalent addresses are equal.

RFC 3986 §6.2.2 and §6.2.3, and nothing beyond them: a slash more at the end is another resource,
and so is a longer path.
"""

from __future__ import annotations

import re
from ipaddress import IPv6Address

from limen.errors import LimenError

MAX_LENGTH = 2_048
"""Characters. Longer than any address that a server would have its tokens made out for."""

DEFAULT_PORTS = {"http": 80, "https": 443}
MAX_PORT = 65_535

_ADDRESS = re.compile(
    r"(?P<scheme>https?)://"
    r"(?P<host>\[[0-9a-f:.]+\]|[a-z0-9_-]+(?:\.[a-z0-9_-]+)*\.?)"
    r"(?::(?P<port>[0-9]{0,5}))?"
    r"(?P<path>/(?:[a-z0-9._~!$&'()*+,;=:@/-]|%[0-9a-f]{2})*)?"
    r"(?P<query>\?(?:[a-z0-9._~!$&'()*+,;=:@/?-]|%[0-9a-f]{2})*)?",
    re.ASCII | re.IGNORECASE,
)
_PRINTABLE = re.compile(r"[\x21-\x7e]*")
_PERCENT = re.compile(r"%([0-9A-Fa-f]{2})")
_UNRESERVED = re.compile(r"[A-Za-z0-9._~-]")


class ResourceError(LimenError):
    """Say why a text is not the address of a protected resource."""


def normalised(uri: str) -> str:
    """Return the one spelling of all addresses that are equivalent to this one.

    Raises:
        ResourceError: it is no absolute http or https address, or has a part that a resource
            may not have (user, fragment), or a character that no address has.
    """
    if len(uri) > MAX_LENGTH:
        raise ResourceError(f"resource has {len(uri)} characters; at most {MAX_LENGTH} are allowed")
    if not _PRINTABLE.fullmatch(uri) or "\\" in uri:
        raise ResourceError(
            "resource has a character that no address has: spell a host in punycode,"
            " and others with `%`"
        )
    # RFC 8707 §2: a resource has no fragment, not even an empty one.
    if "#" in uri:
        raise ResourceError(f"resource has a fragment: `{uri}`")
    if "@" in uri.partition("://")[2].partition("/")[0].partition("?")[0]:
        # What is before the sign may be a password.
        raise ResourceError("resource has a user before its host")
    parts = _ADDRESS.fullmatch(uri)
    if parts is None:
        raise ResourceError(f"resource is not an absolute http or https address: `{uri}`")
    scheme = parts["scheme"].lower()
    host = _host(parts["host"].lower(), uri)
    port = _port(scheme, parts["port"], uri)
    path = _without_dot_segments(_decoded(parts["path"] or "/"))
    return f"{scheme}://{host}{port}{path}{_decoded(parts['query'] or '')}"


def same_resource(one: str, other: str) -> bool:
    """Tell whether two addresses are equivalent. What is no address equals nothing."""
    try:
        return normalised(one) == normalised(other)
    except ResourceError:
        return False


def _host(host: str, uri: str) -> str:
    if host.startswith("["):
        try:
            IPv6Address(host[1:-1])
        except ValueError as error:
            raise ResourceError(f"resource has a wrong IPv6 address: `{uri}`") from error
    return host


def _port(scheme: str, port: str | None, uri: str) -> str:
    if not port or int(port) == DEFAULT_PORTS[scheme]:
        return ""
    if int(port) > MAX_PORT:
        raise ResourceError(f"resource has a port beyond {MAX_PORT}: `{uri}`")
    return f":{int(port)}"


def _decoded(text: str) -> str:
    """Decode what needs no encoding, and spell the rest of the encoding in upper case."""

    def spelled(found: re.Match[str]) -> str:
        character = chr(int(found[1], 16))
        return character if _UNRESERVED.fullmatch(character) else found[0].upper()

    return _PERCENT.sub(spelled, text)


def _without_dot_segments(path: str) -> str:
    segments = path.split("/")[1:]
    kept: list[str] = []
    for segment in segments:
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    if segments[-1] in {".", ".."}:
        kept.append("")
    return "/" + "/".join(kept)
