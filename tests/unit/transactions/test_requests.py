"""With ATOMIC_REQUESTS a view is a transaction."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path

from tests.producing import add
from tests.unit.transactions.rollback import Rollback


def enqueueing_view(request: HttpRequest) -> HttpResponse:
    result = add.enqueue(1)
    if request.GET:
        raise Rollback
    return HttpResponse(result.state)


@transaction.non_atomic_requests
def view_outside(request: HttpRequest) -> HttpResponse:
    return HttpResponse(add.enqueue(1).state)


@transaction.non_atomic_requests
async def asynchronous_view(request: HttpRequest) -> HttpResponse:
    return HttpResponse((await add.aenqueue(1)).state)


urlpatterns = [path("atomic", enqueueing_view), path("not", view_outside), path("async", asynchronous_view)]


@pytest.mark.urls(__name__)
class TestAtomicRequests:
    pytestmark = pytest.mark.django_db(transaction=True)

    @pytest.fixture(autouse=True)
    def _on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", True)

    def test_a_view_is_a_transaction(self, client: Client, waiting: Callable[[], int]) -> None:
        assert client.get("/atomic").content == b"deferred"
        assert waiting() == 1

    def test_a_view_that_raises_sends_nothing(self, client: Client, waiting: Callable[[], int]) -> None:
        with pytest.raises(Rollback):
            client.get("/atomic", {"raise": "1"})
        assert waiting() == 0

    @pytest.mark.parametrize("where", ["/not", "/async"])
    def test_views_outside_of_it_send_at_once(self, client: Client, waiting: Callable[[], int], where: str) -> None:
        assert client.get(where).content == b"pending"
        assert waiting() == 1
