"""`--metrics-addr`: what the small server answers, and how it fails."""

from __future__ import annotations

import socket
from argparse import ArgumentTypeError
from collections.abc import Iterator
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from queueapp.cli.command import address
from queueapp.errors import DuctorError
from queueapp.monitoring import health
from queueapp.monitoring.health import STUCK_S, Vitals
from queueapp.monitoring.listener import Answers, Listener, listen


class State:
    """What the process says of itself."""

    ailing = ""
    unready = ""


@pytest.fixture
def state() -> State:
    return State()


@pytest.fixture
def listener(state: State) -> Iterator[Listener]:
    answers = Answers(
        page=lambda accept: (f"asked for {accept}\n".encode(), "text/plain"),
        ailing=lambda: state.ailing,
        unready=lambda: state.unready,
    )
    listener = Listener("127.0.0.1", 0, answers)
    listener.start()
    yield listener
    listener.close()


def ask(listener: Listener, path: str, method: str = "GET") -> tuple[int, str, dict[str, str]]:
    connection = HTTPConnection(urlsplit(listener.url).netloc, timeout=5)
    connection.request(method, path, headers={"Accept": "text/plain"})
    response = connection.getresponse()
    answer = response.status, response.read().decode(), dict(response.getheaders())
    connection.close()
    return answer


def test_it_serves_the_page(listener: Listener) -> None:
    status, text, headers = ask(listener, "/metrics?x=1")
    assert (status, text) == (200, "asked for text/plain\n")
    assert headers["Content-Length"] == str(len(text))
    assert "python" not in headers["Server"].lower()


def test_a_sick_process_is_neither_well_nor_ready(listener: Listener, state: State) -> None:
    assert [ask(listener, path)[:2] for path in ("/healthz", "/readyz")] == [(200, "ok\n")] * 2
    state.unready = "the store does not answer"
    assert ask(listener, "/healthz")[0] == 200, "a process that waits need not be started anew"
    assert ask(listener, "/readyz")[:2] == (503, "the store does not answer\n")
    state.ailing = "its loop stands still"
    assert ask(listener, "/healthz")[:2] == (503, "its loop stands still\n")
    assert ask(listener, "/readyz")[:2] == (503, "its loop stands still\n")


def test_other_paths_and_methods_are_refused(listener: Listener) -> None:
    assert ask(listener, "/")[0] == 404
    assert ask(listener, "/metrics", "POST")[0] == 501
    assert ask(listener, "/healthz", "HEAD")[:2] == (200, "")


def test_a_page_that_fails_is_told_and_logged(
    state: State, listener: Listener, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(State, "ailing", property(lambda self: 1 / 0))
    assert ask(listener, "/healthz")[:2] == (500, "it failed; the log says how\n")
    assert "ZeroDivisionError" in caplog.text


def test_a_client_that_says_nothing_keeps_nobody_waiting(listener: Listener) -> None:
    with socket.create_connection(urlsplit(listener.url).netloc.split(":"), 5):  # type: ignore[arg-type]  # as much of it as is asked here
        assert ask(listener, "/healthz")[0] == 200


def test_a_port_that_is_taken_is_one_clear_line(listener: Listener) -> None:
    port = int(listener.url.rpartition(":")[2])
    with pytest.raises(DuctorError, match=rf"^Cannot listen on 127\.0\.0\.1:{port} \(.*in use\); give another --met"):
        Listener("127.0.0.1", port, Answers(page=lambda accept: (b"", ""), ailing=str, unready=str))


def test_a_host_that_is_not_ours_is_one_clear_line() -> None:
    with pytest.raises(DuctorError, match=r"^Cannot listen on 203\.0\.113\.1:0 \("):
        Listener("203.0.113.1", 0, Answers(page=lambda accept: (b"", ""), ailing=str, unready=str))


def test_nothing_listens_unless_asked() -> None:
    assert listen(None, Vitals()) is None


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("127.0.0.1:9100", ("127.0.0.1", 9100)),
        (":0", ("0.0.0.0", 0)),
        ("localhost:1", ("localhost", 1)),
        ("[::1]:9100", ("::1", 9100)),
    ],
)
def test_an_address_is_host_and_port(text: str, pair: tuple[str, int]) -> None:
    assert address(text) == pair


@pytest.mark.parametrize("text", ["9100", "localhost", "localhost:", "::1:9100", "a:65536", "a:-1", "a:x", "a b:1", ""])
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match=r"127\.0\.0\.1:9100"):
        address(text)


class Part:
    """Stands for a worker or a scheduler."""

    unready = ""

    def __init__(self, turned_at: float) -> None:
        self.turned_at = turned_at


class TestVitals:
    def test_a_process_that_starts_is_well_but_not_ready(self) -> None:
        vitals = Vitals(lambda: 1e9)
        assert vitals.ailing() == ""
        assert vitals.unready().startswith("starting")

    def test_a_loop_that_stands_still_is_ill(self) -> None:
        vitals = Vitals(lambda: 1000.0)
        vitals.parts = [Part(1000.0 - STUCK_S)]
        assert vitals.ailing() == ""
        vitals.parts.append(Part(999.0 - STUCK_S))
        assert vitals.ailing() == "the loop of this part has not turned for 61 s"

    def test_each_part_must_be_ready(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(health, "outside", lambda: "")
        vitals, part = Vitals(), Part(0.0)
        vitals.parts = [Part(0.0), part]
        assert vitals.unready() == ""
        part.unready = "it is stopping"
        assert vitals.unready() == "part: it is stopping"
