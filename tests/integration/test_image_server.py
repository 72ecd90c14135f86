"""The image's own versions and command, without an engine: the production server as the compose file runs it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from email.message import Message
from pathlib import Path

import pytest

from tests.unit.deployment import compose

pytest.importorskip(
    "gunicorn", reason="the image's packages are not installed here; `make test-all` has a cell for them"
)
pytestmark = pytest.mark.image

HTTPS = {"X-Forwarded-Proto": "https"}


class Stay(urllib.request.HTTPRedirectHandler):
    """Redirects are what the tests look at."""

    def redirect_request(self, *arguments: object) -> None:
        return None


class Site:
    """The running server."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self._base = f"http://127.0.0.1:{port}"
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), Stay)

    def get(self, path: str, **headers: str) -> tuple[int, Message, bytes]:
        request = urllib.request.Request(self._base + path, headers=headers)
        try:
            with self._opener.open(request, timeout=10) as answer:
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers, error.read()


@pytest.fixture
def environment(redis_url: str, namespace: str, tmp_path: Path) -> dict[str, str]:
    """The variables of the service `web`, with addresses and directories of the test."""
    given = compose.interpolated({**compose.filled(), "HTTPS": "1", "BEHIND_PROXY": "1"})["services"]["web"]
    return {
        "PATH": os.environ["PATH"],
        **given["environment"],
        "DATABASE_URL": f"sqlite:///{tmp_path / 'db.sqlite3'}",
        "REDIS_URL": redis_url,
        "DUCTOR_NAMESPACE": namespace,
        "STATE_DIR": str(tmp_path),
        "STATIC_ROOT": str(tmp_path / "static"),
        "PROMETHEUS_MULTIPROC_DIR": str(tmp_path / "metrics"),
    }


@pytest.fixture
def site(environment: dict[str, str]) -> Iterator[Site]:
    for command in ("migrate", "collectstatic"):
        arguments = [sys.executable, "manage.py", command, "--noinput", "-v0"]
        subprocess.run(arguments, cwd=compose.ROOT, env=environment, check=True, timeout=120)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    server, *options = compose.image_command()
    options = [option.replace("0.0.0.0:8000", f"127.0.0.1:{port}") for option in options]
    process = subprocess.Popen(
        [sys.executable, "-m", server, *options],
        cwd=compose.ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        running = Site(process, port)
        _wait(running)
        yield running
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=30)


def _wait(site: Site) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            site.get("/ductor/healthz")
        except OSError:
            assert site.process.poll() is None, site.process.communicate()[0]
            assert time.monotonic() < deadline
            time.sleep(0.05)
        else:
            return


def test_the_site_answers_probes_and_browsers_and_stops_at_a_signal(site: Site) -> None:
    assert site.get("/ductor/readyz")[0] == 200, "the probe comes without HTTPS"

    status, headers, _ = site.get("/")
    assert (status, headers["Location"][:8]) == (301, "https://")

    status, headers, page = site.get("/admin/login/", **HTTPS)
    assert status == 200
    assert b"csrfmiddlewaretoken" in page
    assert "Secure" in headers["Set-Cookie"]
    assert headers["Strict-Transport-Security"]

    for name in ("/static/site.css", "/static/admin/css/base.css"):
        status, headers, _ = site.get(name, **HTTPS)
        assert (status, headers["Content-Type"][:8]) == (200, "text/css"), name

    assert site.get("/admin/login/", **HTTPS, Host="elsewhere.example")[0] == 400

    site.process.send_signal(signal.SIGTERM)
    said = site.process.communicate(timeout=40)[0]
    assert site.process.returncode == 0, said
    assert "Traceback" not in said
    assert '"GET /admin/login/' in said, "requests are logged"


def test_the_probe_of_the_compose_file_tells_a_store_that_is_away(environment: dict[str, str], site: Site) -> None:
    assert site.get("/ductor/readyz")[0] == 200
    probe = compose.interpolated(compose.filled())["services"]["web"]["healthcheck"]["test"]
    assert probe[1] == "python"
    code = probe[-1].replace("http://127.0.0.1:8000", site._base)
    assert subprocess.run([sys.executable, "-c", code], timeout=30).returncode == 0
    gone = code.replace("readyz", "no-such-page")
    assert subprocess.run([sys.executable, "-c", gone], stderr=subprocess.DEVNULL, timeout=30).returncode != 0
