"""The site's page and probes: who may see what, and what other expositions of the host show."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from django.apps import apps
from django.contrib.auth.models import Permission, User
from django.db import OperationalError, connections
from django.test import Client, RequestFactory, modify_settings, override_settings
from django.urls import reverse
from prometheus_client import REGISTRY

from ductor_project.settings import DUCTOR
from queueapp.inspection.collector import STORE
from queueapp.monitoring import health, views
from queueapp.monitoring.health import outside
from queueapp.store.store import Store
from tests.unit.metrics.reading import samples, value

PAGES = ("metrics", "healthz", "readyz")


def url(name: str) -> str:
    return reverse(f"ductor_monitoring:{name}")


@pytest.fixture
def user(client: Client) -> Callable[..., None]:
    """Log somebody in, with these permissions."""

    def log_in(*codenames: str) -> None:
        somebody = User.objects.create_user("somebody", is_staff=True)
        somebody.user_permissions.set(Permission.objects.filter(codename__in=codenames))
        client.force_login(somebody)

    return log_in


def test_the_addresses_are_those_of_the_documentation() -> None:
    assert [url(name) for name in PAGES] == ["/ductor/metrics", "/ductor/healthz", "/ductor/readyz"]


@pytest.mark.django_db
class TestWhoSees:
    def test_nobody_sees_metrics_without_the_permission(self, client: Client, user: Callable[..., None]) -> None:
        for _ in range(2):
            answer = client.get(url("metrics"))
            assert answer.status_code == 403
            assert answer.content == b"the permission queueapp.view_operations is needed\n"
            if not User.objects.exists():
                user("view_payload", "operate_pool", "view_all_tenants")

    def test_who_may_see_operations_sees_them(self, client: Client, user: Callable[..., None], store: Store) -> None:
        user("view_operations")
        answer = client.get(url("metrics"))
        assert answer.status_code == 200
        assert answer["Content-Type"].startswith("text/plain; version=")
        assert "no-store" in answer["Cache-Control"]
        seen = samples(answer.content)
        assert value(seen, "ductor_pending_tasks", pool="default", shard="0") == 0
        assert value(seen, "ductor_store_up") == 1

    def test_a_site_without_users_shows_nothing(self) -> None:
        assert views.metrics(RequestFactory().get("/")).status_code == 403


@pytest.mark.parametrize("name", PAGES)
def test_pages_are_only_read(client: Client, name: str) -> None:
    assert client.post(url(name)).status_code == 405


def test_healthz_asks_nobody(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """No database fixture here: a query, also one that opens a transaction around the view, would be an error."""
    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", True)
    with override_settings(DUCTOR={**DUCTOR, "REDIS_URL": "unix:///nonexistent/no.sock"}):
        answer = client.get(url("healthz"))
    assert (answer.status_code, answer.content) == (200, b"ok\n")


@pytest.mark.django_db
class TestReadyz:
    def test_ready_is_when_store_and_database_answer(self, client: Client, store: Store) -> None:
        answer = client.get(url("readyz"))
        assert (answer.status_code, answer.content) == (200, b"ok\n")

    def test_it_says_which_one_does_not_and_no_more(self, client: Client, store: Store) -> None:
        with override_settings(DUCTOR={**DUCTOR, "REDIS_URL": "redis://:secret-1234@127.0.0.1:1/0"}):
            answer = client.get(url("readyz"))
        assert (answer.status_code, answer.content) == (503, b"the store does not answer\n")

    def test_a_database_that_is_away(self, client: Client, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        def away(*args: object) -> None:
            raise OperationalError("password=secret-1234")

        monkeypatch.setattr(type(connections["default"]), "cursor", away)
        answer = client.get(url("readyz"))
        assert (answer.status_code, answer.content) == (503, b"the database does not answer\n")

    def test_a_database_that_hangs_is_given_up_and_leaves_one_thread_behind(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked, go_on = [], threading.Event()

        def hang(*args: object) -> None:
            asked.append(threading.current_thread())
            go_on.wait(30)
            raise OperationalError

        monkeypatch.setattr(health, "DATABASE_S", 0.05)
        monkeypatch.setattr(type(connections["default"]), "cursor", hang)
        try:
            assert [outside() for _ in range(3)] == ["the database does not answer"] * 3
            assert len(asked) == 1
        finally:
            go_on.set()
            asked[0].join(30)
        monkeypatch.undo()
        assert outside() == ""

    def test_atomic_requests_do_not_get_in_the_way(
        self, client: Client, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The answer must be ours when the transaction around the view could not even begin."""
        monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", True)
        self.test_a_database_that_is_away(client, store, monkeypatch)


class TestDjangoPrometheus:
    @pytest.fixture
    def exports(self) -> Iterator[Callable[..., object]]:
        exporting = pytest.importorskip("django_prometheus.exports")
        yield exporting.ExportToDjangoView
        if STORE in REGISTRY._collector_to_names:
            REGISTRY.unregister(STORE)

    def test_its_page_shows_ours_once(self, exports: Callable[..., object], store: Store) -> None:
        with modify_settings(INSTALLED_APPS={"append": "django_prometheus"}):
            apps.get_app_config("queueapp").ready()  # a second time, as every change of the setting has it
            answer = exports(RequestFactory().get("/metrics"))
        seen = samples(answer.content)  # type: ignore[attr-defined]  # the stubs have other answers of the test client
        assert value(seen, "ductor_store_up") == 1
        assert value(seen, "ductor_pending_tasks", pool="default", shard="0") == 0
        assert ("ductor_worker_slot_seconds_total", ()) in seen

    def test_without_it_the_registry_is_left_alone(self) -> None:
        apps.get_app_config("queueapp").ready()
        assert STORE not in REGISTRY._collector_to_names
