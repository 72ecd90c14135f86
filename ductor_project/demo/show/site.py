"""A customer's browser, as far as uploading needs one: one connection, one cookie, the token of Django's form."""

from __future__ import annotations

import http.client
import secrets
from http.cookies import SimpleCookie

TIMEOUT_S = 30.0


class SiteError(Exception):
    """The site answered what it must not answer."""


class Site:
    """Uploads files over HTTP. For one thread."""

    def __init__(self, host: str, port: int) -> None:
        self._connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
        self._token = ""

    def upload(self, tenant: str, name: str, text: str, pool: str, *, as_flow: bool = False) -> None:
        """POST a file as the form does. Raises SiteError unless the site accepted it."""
        path = f"/tenants/{tenant}/uploads/"
        if not self._token:
            self._fetch_token(path)
        fields = {"csrfmiddlewaretoken": self._token, "pool": pool}
        if as_flow:
            fields["as_flow"] = "on"
        kind, body = multipart(fields, name, text)
        status, _ = self._ask("POST", path, body, {"Content-Type": kind, "Cookie": f"csrftoken={self._token}"})
        if status != 302:
            raise SiteError(f"The site answered {status} to the upload of {name} by {tenant}.")

    def answers(self) -> bool:
        """Whether the site is up."""
        try:
            return self._ask("GET", "/", None, {})[0] == 200
        except OSError:
            self._connection.close()
            return False

    def close(self) -> None:
        self._connection.close()

    def _fetch_token(self, path: str) -> None:
        """The view is protected against cross-site requests like any other: the form's cookie has to come back."""
        status, headers = self._ask("GET", path, None, {})
        cookie = SimpleCookie(headers.get("Set-Cookie", "")).get("csrftoken")
        if status != 200 or cookie is None:
            raise SiteError(f"The form at {path} answered {status} without a token.")
        self._token = cookie.value

    def _ask(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str]
    ) -> tuple[int, http.client.HTTPMessage]:
        self._connection.request(method, path, body, headers)
        response = self._connection.getresponse()
        response.read()
        return response.status, response.headers


def multipart(fields: dict[str, str], name: str, text: str) -> tuple[str, bytes]:
    """`(content type, body)` of a form with these fields and one file, `file`."""
    boundary = secrets.token_hex(16)
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{field}"\r\n\r\n{value}\r\n'
        for field, value in fields.items()
    ]
    parts.append(
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
        f"Content-Type: text/csv; charset=utf-8\r\n\r\n{text}\r\n--{boundary}--\r\n"
    )
    return f"multipart/form-data; boundary={boundary}", "".join(parts).encode()
