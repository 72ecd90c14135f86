"""The password of the store stands in no message: of a command, a check, a page, a log line or a traceback."""

from __future__ import annotations

import io
import logging
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.management import call_command
from django.test import Client, override_settings
from django.urls import include, path

from queueapp.cli.logs import JsonLine, TextLine
from tests.unit.admin.urls import urlpatterns as admin_urls

SECRET = "hunter2-of-the-store"
urlpatterns = [*admin_urls, path("api/", include("queueapp.api.urls")), path("", include("queueapp.monitoring.urls"))]

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("check",),
    ("ductor", "status"),
    ("ductor", "job", "abcdef.0.0123456789012345678901"),
    ("ductor", "dlq", "list"),
    ("ductor", "sync"),
    ("ductor", "upgrade"),
    ("worker", "--check"),
    ("scheduler", "--check"),
)
URLS = (
    "redis://:{}@127.0.0.1:1/0",
    "redis://user:{}@127.0.0.1:1/0",
    "rediss://user:{}@127.0.0.1:1/0",
    "redis://127.0.0.1:1/0?password={}",
    "redis://:{}@127.0.0.1:notaport/0",
    "redis://:{}#/@127.0.0.1:1/0",
    "redis://:{}@[::1/0",
    "redis://:a?{}=1@127.0.0.1:1/0",
    "redis://:a?{}@127.0.0.1:1/0",
    "redis://:a/{}@127.0.0.1:1/0",
    "unix://user:{}@/nowhere/store.sock",
    "unix:///nowhere/store.sock?password={}",
    "unix://:{}@?db=1",
    "http://:{}@127.0.0.1/",
)
SENTINELS = {"SENTINELS": [("127.0.0.1", 1)], "MASTER_NAME": "m", "PASSWORD": SECRET, "SENTINEL_PASSWORD": SECRET}
ADDRESSES: tuple[Any, ...] = (
    *(url.format(SECRET) for url in URLS),
    SENTINELS,
    {**SENTINELS, "PASWORD": SECRET},
    {"PASSWORD": SECRET},
    [f"redis://:{SECRET}@127.0.0.1/0"],
)


def said_by(act: Callable[[], object]) -> str:
    """All that is printed, raised (with its causes, without locals) and logged."""
    stream, lines = io.StringIO(), io.StringIO()
    handlers = []
    for form in (TextLine(), JsonLine()):
        handler = logging.StreamHandler(lines)
        handler.setFormatter(form)
        handlers.append(handler)
        logging.getLogger().addHandler(handler)
    try:
        with redirect_stdout(stream), redirect_stderr(stream):
            act()
    except (Exception, SystemExit) as error:
        stream.write("".join(traceback.format_exception(error)))
    finally:
        for handler in handlers:
            logging.getLogger().removeHandler(handler)
    return stream.getvalue() + lines.getvalue()


@pytest.mark.django_db
@pytest.mark.parametrize("address", ADDRESSES, ids=lambda address: str(address).replace(SECRET, "*")[:40])
def test_no_command_says_the_password(address: Any) -> None:
    with override_settings(DUCTOR={**django_settings.DUCTOR, "REDIS_URL": address}):
        for command in COMMANDS:
            said = said_by(lambda command=command: call_command(*command))  # type: ignore[misc]  # mypy infers no lambda with a default
            assert SECRET not in said, (command, said)


@pytest.mark.django_db
@pytest.mark.urls(__name__)
@pytest.mark.parametrize(
    "address", [URLS[0].format(SECRET), URLS[8].format(SECRET), SENTINELS], ids=["tcp", "unix", "sentinel"]
)
def test_no_page_says_the_password(address: Any, admin_client: Client) -> None:
    admin_client.raise_request_exception = False
    configured = {**django_settings.DUCTOR, "REDIS_URL": address, "API_TENANTS": None}
    with override_settings(DUCTOR=configured):
        for page in ("/admin/queueapp/operations/", "/admin/queueapp/jobs/", "/api/jobs/", "/readyz", "/metrics"):
            answers: dict[str, Any] = {}
            said = said_by(lambda page=page, answers=answers: answers.update({page: admin_client.get(page)}))  # type: ignore[misc]  # mypy infers no lambda with a default
            assert SECRET not in said + answers[page].content.decode() + str(answers[page].headers), page


@pytest.mark.django_db
def test_a_server_that_refuses_the_password_is_told_without_it(own_server: Callable[..., Any]) -> None:
    server = own_server("--requirepass", "another")
    address = server.url.replace("unix://", f"unix://:{SECRET}@", 1)
    with override_settings(DUCTOR={**django_settings.DUCTOR, "REDIS_URL": address}):
        said = said_by(lambda: call_command("ductor", "status"))
    assert "refuses the user name or password" in said
    assert SECRET not in said
