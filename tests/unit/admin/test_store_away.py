"""Without the store: every page answers within a second or two, says what is the matter, and rows can be edited."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client

from queueapp.models import DeadLetterInspection
from tests.unit.admin.addresses import Page, pages
from tests.unit.admin.test_dead_letters import text
from tests.unit.admin.test_permissions import TABLE

pytestmark = pytest.mark.django_db

FROM_THE_STORE = {
    name
    for name in TABLE
    if name.startswith(("operations_", "jobs_", "deadletters_")) or name in ("tenant_seen", "pool_delete")
}


@pytest.fixture
def found(redis_url: str) -> list[Page]:
    """Every page, prepared while the store is there."""
    return pages()


@pytest.fixture(params=["away", "silent"])
def gone(found: list[Page], request: pytest.FixtureRequest) -> Callable[[], int]:
    """From here on it is away. Says how often somebody waited for it."""
    store = request.getfixturevalue(request.param)
    return lambda: store.asked if store is not None else 0


def test_every_page_answers_soon_and_says_what_is_the_matter(
    found: list[Page], gone: Callable[[], int], admin_client: Client
) -> None:
    for page in found:
        if TABLE[page.name].get != 200:
            continue
        before = gone()
        answer = admin_client.get(page.url)
        assert gone() - before <= 1, page
        assert answer.status_code == (403 if page.name in REFUSED else 200), page
        assert ("The store at 127.0.0.1" in text(answer)) == (page.name in FROM_THE_STORE), page


REFUSED = {f"{model}_add" for model in ("outboxentry", "deadletterinspection")} | {"deadletterinspection_delete"}


def test_every_action_is_refused_soon(found: list[Page], gone: Callable[[], int], admin_client: Client) -> None:
    for page in found:
        if TABLE[page.name].get == 200:
            continue
        before = gone()
        form = {"ids": "abcdef.0.0123456789012345678901", "confirmed": "yes", "note": "x"}
        answer = admin_client.post(page.url, form, follow=False)
        assert gone() - before <= 1, page
        assert answer.status_code == 302, page
        messages = [str(message) for message in answer.wsgi_request._messages]  # type: ignore[attr-defined]  # the stubs have other answers of the test client
        assert "The store at 127.0.0.1" in messages[-1], page
    assert not DeadLetterInspection.objects.exclude(job_id="x").exists()
