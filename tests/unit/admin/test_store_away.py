"""Without the store: every page answers within a second or two, says what is the matter, and rows can be edited."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.test import Client, override_settings

from queueapp.models import DeadLetterInspection
from queueapp.store import connection
from tests.unit.admin.addresses import Page, pages
from tests.unit.admin.test_dead_letters import text
from tests.unit.admin.test_permissions import TABLE

pytestmark = pytest.mark.django_db

ENOUGH_S = 1.9
"""One wait of a second for the store, not two, and a slow machine."""
FROM_THE_STORE = {
    name
    for name in TABLE
    if name.startswith(("operations_", "jobs_", "deadletters_")) or name in ("tenant_seen", "pool_delete")
}


@pytest.fixture(params=["refused", "silent"])
def away_url(request: pytest.FixtureRequest) -> Any:
    if request.param == "refused":
        yield "redis://127.0.0.1:1/0"
        return
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}/0"


@pytest.fixture
def found(redis_url: str) -> list[Page]:
    """Every page, prepared while the store is there."""
    return pages()


@pytest.fixture
def gone(found: list[Page], away_url: str) -> Any:
    """From here on it is away."""
    with override_settings(DUCTOR={**django_settings.DUCTOR, "REDIS_URL": away_url}):
        yield
        connection.reset()


def test_every_page_answers_soon_and_says_what_is_the_matter(
    found: list[Page], gone: None, admin_client: Client
) -> None:
    for page in found:
        if TABLE[page.name].get != 200:
            continue
        began = time.monotonic()
        answer = admin_client.get(page.url)
        took = time.monotonic() - began
        assert took < ENOUGH_S, page
        assert answer.status_code == (403 if page.name in REFUSED else 200), page
        assert ("The store at 127.0.0.1" in text(answer)) == (page.name in FROM_THE_STORE), page


REFUSED = {f"{model}_add" for model in ("outboxentry", "deadletterinspection")} | {"deadletterinspection_delete"}


def test_every_action_is_refused_soon(found: list[Page], gone: None, admin_client: Client) -> None:
    for page in found:
        if TABLE[page.name].get == 200:
            continue
        began = time.monotonic()
        form = {"ids": "abcdef.0.0123456789012345678901", "confirmed": "yes", "note": "x"}
        answer = admin_client.post(page.url, form, follow=False)
        assert time.monotonic() - began < ENOUGH_S, page
        assert answer.status_code == 302, page
        messages = [str(message) for message in answer.wsgi_request._messages]  # type: ignore[attr-defined]
        assert "The store at 127.0.0.1" in messages[-1], page
    assert not DeadLetterInspection.objects.exclude(job_id="x").exists()
