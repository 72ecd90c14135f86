"""Clients of `--metrics-addr` that mean no good: they reach no more than the page, and keep no thread for long."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from http.client import HTTPException
from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

import queueapp.monitoring.listener as module
from queueapp.inspection.collector import STORE
from queueapp.metrics import TenantLabels
from queueapp.monitoring.listener import PATIENCE_S, Answers, Listener
from queueapp.monitoring.page import page
from tests.unit.metrics.test_listener import ask


class Clock:
    """The time of the server, moved by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "monotonic", clock)
    return clock


@pytest.fixture
def listener() -> Iterator[Listener]:
    listener = Listener("127.0.0.1", 0, Answers(page=lambda accept: page(accept, []), ailing=str, unready=str))
    listener.start()
    yield listener
    listener.close()


def connected(listener: Listener, text: bytes) -> socket.socket:
    """A client that has sent this, and that the server has taken."""
    where = urlsplit(listener.url)
    client = socket.create_connection((str(where.hostname), where.port or 0), PATIENCE_S / 2)
    client.sendall(text)
    assert ask(listener, "/healthz")[0] == 200
    return client


def whole(client: socket.socket) -> bytes:
    """All that the server says until it closes."""
    with client:
        return b"".join(iter(lambda: client.recv(65536), b""))


def test_a_client_that_sends_byte_by_byte_is_cut_off(listener: Listener, clock: Clock) -> None:
    client = connected(listener, b"GET /healthz HTTP/1.1\r\nX-Slow: ")
    clock.now = PATIENCE_S / 2
    client.sendall(b"1")
    clock.now = PATIENCE_S + 1
    assert whole(client) == b""
    assert ask(listener, "/healthz")[0] == 200


def test_many_clients_are_not_all_heard(listener: Listener, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    clients = [connected(listener, b"GET ") for _ in range(3)]
    monkeypatch.setattr(module, "CLIENTS_MOST", 3)
    with pytest.raises((HTTPException, OSError)):
        ask(listener, "/healthz")
    clock.now = PATIENCE_S + 1
    assert [whole(client) for client in clients] == [b""] * 3
    monkeypatch.setattr(module, "CLIENTS_MOST", 50)
    assert ask(listener, "/healthz")[0] == 200


@pytest.mark.parametrize(
    "text",
    [
        b"GET /healthz HTTP/1.1\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /metrics\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\nGET /metrics HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nConnection: keep-alive\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n",
    ],
)
def test_one_connection_has_one_answer(listener: Listener, text: bytes) -> None:
    """What stands behind a request is no second one: no proxy and this server could count them differently."""
    answer = whole(connected(listener, text))
    assert answer.count(b"HTTP/1.") == 1
    assert answer.endswith(b"\r\n\r\nok\n")


@pytest.mark.parametrize(
    "text",
    [
        b"\0\xff\r\n\r\n",
        b"GET /../../etc/passwd HTTP/1.1\r\n\r\n",
        b"GET http://elsewhere/metrics HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/9.9\r\n\r\n",
        b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        b"<script>alert(1)</script> / HTTP/1.1\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text; version=\xff;q=nan,*/*;q=\r\n\r\n",
    ],
    ids=lambda text: repr(text[:25]),
)
def test_a_strange_request_is_answered_or_dropped(
    listener: Listener, text: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    answer = whole(connected(listener, text))
    assert b"<script>" not in answer
    assert b"root:" not in answer
    assert b"Python" not in answer
    assert ask(listener, "/healthz")[0] == 200
    assert "Traceback" not in capfd.readouterr().err


def test_a_client_that_goes_away_is_no_news(listener: Listener, capfd: pytest.CaptureFixture[str]) -> None:
    client = connected(listener, b"GET /metrics HT")
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.close()
    assert ask(listener, "/healthz")[0] == 200
    listener.close()
    assert "Traceback" not in capfd.readouterr().err


def test_tenants_cannot_make_labels_without_end() -> None:
    labels = TenantLabels(["acme"], 3)
    found = {labels.label(f"evil-{number}") for number in range(1000)}
    assert len(found) == 3
    assert labels.label("acme") == "acme"


@pytest.mark.django_db
@pytest.mark.urls("queueapp.monitoring.urls")
@pytest.mark.parametrize("url", ["redis://user:hunter2@127.0.0.1:1/0", "unix:///nowhere/secret.sock?password=hunter2"])
def test_probes_and_pages_tell_nothing_of_the_store(client: Client, settings: object, url: str) -> None:
    settings.DUCTOR = {**settings.DUCTOR, "REDIS_URL": url}  # type: ignore[attr-defined]  # pytest-django's settings take any name
    STORE.forget()
    user = User.objects.create_user("user")
    user.user_permissions.set(Permission.objects.filter(codename="view_operations"))
    answers = [client.get(path) for path in ("/readyz", "/healthz", "/metrics")]
    client.force_login(user)
    answers.append(client.get("/metrics"))
    assert [answer.status_code for answer in answers] == [503, 200, 403, 200]
    for answer in answers:
        said = answer.content.decode() + str(answer.headers)
        assert not re.search(r"hunter2|127\.0\.0\.1|secret\.sock|nowhere", said)
