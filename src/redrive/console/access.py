"""Access: who asks, and what they may do. Pure: headers in, a visitor or a refusal out.

Two tokens, one for looking and one for changing something. A browser exchanges its token for a
cookie; programs send it as `Authorization: Bearer`. Behind a reverse proxy, and only if that was
switched on, the proxy's header names the user.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Final, Literal, NamedTuple
from urllib.parse import urlsplit

from redrive.errors import ConfigurationError
from redrive.secret import Secret

Role = Literal["read", "change"]
COOKIE: Final = "redrive-console"
_USER: Final = 100
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


class Visitor(NamedTuple):
    """Who asks."""

    name: str
    role: Role
    by_cookie: bool
    """Whether their browser vouches for them unasked: another page could ask in their name."""

    @property
    def may_change(self) -> bool:
        """Whether they may change anything."""
        return self.role == "change"


@dataclass(frozen=True, kw_only=True)
class Proxy:
    """A reverse proxy that has checked who asks."""

    header: str
    """Such as `X-Forwarded-User`."""
    addresses: tuple[str, ...]
    """Where the proxy asks from: addresses or networks."""
    role: Role = "read"

    def __post_init__(self) -> None:
        if not self.addresses:
            raise ConfigurationError(
                f"the header {self.header} would be believed from anywhere: name the proxy's"
                " addresses with --proxy-from"
            )
        for each in self.addresses:
            try:
                ip_network(each)
            except ValueError:
                raise ConfigurationError(
                    f"--proxy-from {each} is neither an address nor a network"
                ) from None

    def vouches(self, client: str) -> bool:
        """Whether a request from that address came through the proxy."""
        try:
            address = ip_address(client)
        except ValueError:
            return False
        return any(address in ip_network(each) for each in self.addresses)


@dataclass(frozen=True, kw_only=True)
class Access:
    """The rules of one console."""

    change: Secret
    read: Secret
    hosts: Collection[str] = field(default=_LOOPBACK)
    """Names under which it may be asked: a page of another name that resolves to it is refused."""
    proxy: Proxy | None = None

    def visitor(self, headers: Mapping[str, str], client: str) -> Visitor | None:
        """Who asks, by their headers (names in lower case) and address; None: nobody known."""
        if self.proxy is not None and (user := self._user_of_proxy(headers, client)):
            return Visitor(user[:_USER], self.proxy.role, by_cookie=True)
        token = _token(headers)
        if token is not None:
            role = self.role_of(token)
            return None if role is None else Visitor(f"{role} token", role, by_cookie=False)
        role = self._role_of_cookie(_cookie(headers))
        return None if role is None else Visitor(f"{role} token", role, by_cookie=True)

    def given(self, headers: Mapping[str, str], client: str) -> str:
        """The token or cookie that is looked at; empty: there is none, or the proxy vouches."""
        if self._user_of_proxy(headers, client):
            return ""
        token = _token(headers)
        return _cookie(headers) if token is None else token

    def asks(self, headers: Mapping[str, str], client: str) -> str:
        """Whose requests are counted together: a user's of the proxy, else those of an address."""
        user = self._user_of_proxy(headers, client)
        return f"user {user[:_USER]}" if user else client

    def role_of(self, token: str) -> Role | None:
        """What a token allows; all are compared, so that the time taken tells nothing."""
        found: dict[Role, bool] = {
            "change": _same(token, self.change.reveal()),
            "read": _same(token, self.read.reveal()),
        }
        return next((role for role, same in found.items() if same), None)

    def cookie(self, role: Role) -> str:
        """What a browser keeps instead of the token."""
        return f"{role}.{self._signed(f'cookie {role}', role)}"

    def form_key(self, visitor: Visitor) -> str:
        """What a form of this console has, and a form of another page cannot know."""
        return self._signed(f"form {visitor.role} {visitor.name}", visitor.role)

    def refusal(self, visitor: Visitor, headers: Mapping[str, str], form_key: str) -> str:
        """Why a change is refused; empty: it is not."""
        if not visitor.may_change:
            return "this token is for looking only: changes need the other one"
        return self.foreign(visitor, headers, form_key)

    def foreign(self, visitor: Visitor, headers: Mapping[str, str], form_key: str) -> str:
        """Why a form is not of a page of this console; empty: it is."""
        if not visitor.by_cookie:
            return ""
        if headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return "the request came from another site"
        origin = urlsplit(headers.get("origin", ""))
        if origin.netloc != headers.get("host", ""):
            return "the request came from another origin"
        if not _same(form_key, self.form_key(visitor)):
            return "the form is not of this console, or of an earlier start of it: reload the page"
        return ""

    def is_named(self, host: str) -> bool:
        """Whether the console may be asked under that name, as the Host header has it."""
        try:
            name = urlsplit(f"//{host}").hostname
        except ValueError:
            return False
        return name is not None and name in {each.lower() for each in self.hosts}

    def _user_of_proxy(self, headers: Mapping[str, str], client: str) -> str:
        if self.proxy is not None and self.proxy.vouches(client):
            return headers.get(self.proxy.header.lower(), "").strip()
        return ""

    def _role_of_cookie(self, value: str) -> Role | None:
        known: tuple[Role, ...] = ("change", "read")
        same = [_same(value, self.cookie(role)) for role in known]
        return next((role for role, is_it in zip(known, same, strict=True) if is_it), None)

    def _signed(self, text: str, role: Role) -> str:
        key = self.change if role == "change" else self.read
        return hmac.new(key.reveal().encode(), text.encode(), hashlib.sha256).hexdigest()


def _token(headers: Mapping[str, str]) -> str | None:
    """The token that a program sends; None: it sends none."""
    scheme, _, given = headers.get("authorization", "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else None


def _cookie(headers: Mapping[str, str]) -> str:
    """What the browser keeps for the console; empty: nothing."""
    for each in headers.get("cookie", "").split(";"):
        name, _, value = each.strip().partition("=")
        if name == COOKIE:
            return value
    return ""


def _same(given: str, known: str) -> bool:
    """Whether they are equal; as bytes, as a header may have anything in it."""
    return hmac.compare_digest(given.encode(errors="replace"), known.encode())
