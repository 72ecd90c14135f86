"""Runs live in the database that `DUCTOR["DATABASE"]` names, and in no other."""

from __future__ import annotations

from typing import Any

import pytest
from django.apps import apps
from django.conf import settings
from django.db import connection, connections
from django.test import override_settings

from flows import models
from flows.sweep import sweep
from queueapp.moments import now_ms
from queueapp.store.store import Store
from tests.flows import host
from tests.working import work

pytestmark = pytest.mark.django_db(transaction=True)


def test_all_of_a_run_stands_in_the_database_of_the_settings(second_database: str, store: Store) -> None:
    with connections[second_database].schema_editor() as editor:
        for model in apps.get_app_config("ductor_flows").get_models():
            editor.create_model(model)
    with override_settings(DUCTOR={**settings.DUCTOR, "DATABASE": second_database}):
        runs: list[Any] = [host.chain.start(5), host.fan.start(3)]
        waits = host.patient.start(1)
        waits.send_event("go", {"more": 2})
        for _ in range(3):
            work(slots=2)
        assert [run.refresh().state for run in (*runs, waits)] == ["completed"] * 3
        assert not sweep(now_ms())
        for model in apps.get_app_config("ductor_flows").get_models():
            assert not model._default_manager.using("default").exists(), model
        assert models.ItemRun.objects.using(second_database).count() == 3


def test_the_few_runs_of_one_state_are_found_among_all_others() -> None:
    """The first page of what failed, in the admin and over REST, walks no others."""
    if connection.vendor != "sqlite":
        pytest.skip("of an empty table PostgreSQL reads all, whatever the indexes")
    assert "USING INDEX ductor_flows_state" in models.Run.objects.filter(state="failed")[:50].explain()
