"""One test per check of flows: the fault that it finds, and silence without it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.checks import run_checks
from django.db import OperationalError, connection
from django.db.migrations.recorder import MigrationRecorder

from flows import declaring, versions
from flows.errors import UnknownFlow
from queueapp.cli.command import plain
from queueapp.cli.diagnosis import examine
from queueapp.cli.startup import pending_migrations

HOST = "ductor_flows_host"


def found() -> dict[str, str]:
    """Id → message with hint of every message of flows."""
    messages = run_checks(tags=["ductor_flows"])
    return {str(message.id): f"{message.msg} {message.hint}" for message in messages}


@pytest.fixture
def host_app(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    package = tmp_path / HOST
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(versions, "_broken", None)
    monkeypatch.setattr(declaring, "registry", dict(declaring.registry))
    settings.INSTALLED_APPS = [*django_settings.INSTALLED_APPS, HOST]
    yield package
    for name in [name for name in sys.modules if name.startswith(HOST)]:
        del sys.modules[name]


def test_this_project_is_clean() -> None:
    assert found() == {}


def test_e001_a_flows_module_that_cannot_be_imported(host_app: Path) -> None:
    (host_app / "flows.py").write_text("from flows import flow\n\n@flow\ndef nothing():\n    pass\n")
    message = found()["ductor_flows.E001"]
    assert message.startswith(f"{HOST}.flows cannot be imported: FlowInvalid: flow nothing has no steps")
    assert f"'{HOST}'" in message
    with pytest.raises(UnknownFlow, match=f"{HOST}.flows .* cannot be imported: FlowInvalid: flow nothing has no"):
        versions.current("nothing")


def test_e002_tables_of_flows_belong_into_the_shared_schema(settings: Any) -> None:
    settings.SHARED_APPS = ["queueapp"]
    settings.TENANT_APPS = ["flows"]
    assert "SHARED_APPS" in found()["ductor_flows.E002"]
    settings.SHARED_APPS = ["queueapp", "flows"]
    assert "ductor_flows.E002" in found()
    settings.TENANT_APPS = []
    assert found() == {}


@pytest.mark.django_db
def test_worker_and_scheduler_wait_for_the_migrations_of_flows() -> None:
    assert pending_migrations() == ""
    MigrationRecorder(connection).record_unapplied("ductor_flows", "0001_initial")
    assert pending_migrations() == "migrations of ductor_flows are not applied (0001_initial)"


def test_a_table_of_flows_that_is_not_there_leads_to_migrate() -> None:
    said = plain(OperationalError("no such table: ductor_flows_run"))
    assert said == "The database is not ready (no such table: ductor_flows_run): run `manage.py migrate`."


@pytest.mark.django_db
def test_doctor_tells_them_too(host_app: Path, redis_url: str) -> None:
    (host_app / "flows.py").write_text("import nowhere_at_all\n")
    assert "nowhere_at_all" in {remark.check: remark.text for remark in examine()}["ductor_flows.E001"]
