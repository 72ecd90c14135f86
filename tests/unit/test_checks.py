"""One test per check id: the fault that it finds, and silence without it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.checks import run_checks
from django.test.utils import override_settings

from queueapp import backend, checks, conf, setting_readers
from queueapp.middleware import TenantMiddleware
from queueapp.producer import discovery

OURS = {"BACKEND": "queueapp.backend.DuctorBackend"}
OTHER = {"BACKEND": "queueapp.compat.BaseTaskBackend"}
URL = "redis://store.example:6379/0"


def found(**overrides: Any) -> dict[str, str]:
    """Id → message with hint of every message of ours under these settings."""
    with override_settings(**overrides):
        messages = [message for check in checks.CHECKS for message in check()]
    return {str(message.id): f"{message.msg} {message.hint}" for message in messages}


def ductor(**given: Any) -> dict[str, Any]:
    return {"DUCTOR": {"REDIS_URL": URL, **given}}


def test_this_project_is_clean() -> None:
    assert found() == {}


def test_all_are_registered_and_none_touches_the_store_or_a_table(settings: Any) -> None:
    settings.DUCTOR = {"REDIS_URL": "redis://localhost:1/0", "NAMESPACE": "!"}

    assert "queueapp.E112" in {message.id for message in run_checks()}


def test_every_id_has_a_test_here() -> None:
    sources = [Path(str(module.__file__)).read_text() for module in (backend, checks, conf, setting_readers)]
    ids = set(re.findall(r'"(queueapp\.[EW]\d{3})"', " ".join(sources)))
    here = Path(__file__).read_text() + Path(__file__).with_name("test_conf.py").read_text()
    here += Path(__file__).with_name("test_backend.py").read_text()

    assert ids
    assert {name for name in ids if f'"{name}"' not in here} == set()


def test_e1nn_each_fault_of_a_setting_is_a_message() -> None:
    messages = found(**ductor(LEASE_SECONDS="x", READY_TTL_SECONDS=3, LEASE_SECOND=3))

    assert set(messages) == {"queueapp.E126", "queueapp.E102", "queueapp.E101"}
    assert "LEASE_SECONDS" in messages["queueapp.E126"]
    assert "'x'" in messages["queueapp.E126"]


def test_e100_ductor_is_no_dictionary() -> None:
    assert "queueapp.E100" in found(DUCTOR="redis://")


def test_e152_database_is_no_alias() -> None:
    assert "'other'" in found(**ductor(DATABASE="other"))["queueapp.E152"]


def test_e153_cache_alias_is_no_alias() -> None:
    assert "'other'" in found(DUCTOR={"CACHE_ALIAS": "other"})["queueapp.E153"]


def test_e154_a_pools_policy_is_none() -> None:
    message = found(**ductor(POOLS={"emails": {"POLICY": "fifa"}, "reports": {"POLICY": "fifo"}}))["queueapp.E154"]

    assert all(words in message for words in ("emails", "'fifa'", "drr, edf, fifo, lottery, priority, ring, tiered"))


@pytest.mark.parametrize("policy", ["drr", "lottery"])
def test_e159_a_policy_of_python_needs_scheduled_dispatch(policy: str) -> None:
    message = found(**ductor(POOLS={"emails": {"POLICY": policy}}))["queueapp.E159"]

    assert f"{policy!r}, which needs scheduled dispatch" in message
    assert 'Add "DISPATCH": "scheduled"' in message
    assert policy not in message.partition("or take one of")[2]


def test_e160_a_policy_of_your_own_must_be_one() -> None:
    message = found(**ductor(POLICIES={"mine": "math.pi"}))["queueapp.E160"]

    assert "DUCTOR[\"POLICIES\"]['mine'] cannot run: float.name is missing" in message


def test_e158_the_latest_start_needs_milliseconds() -> None:
    def given(**values: Any) -> dict[str, str]:
        return found(**ductor(POOLS={"emails": values}))

    assert "in 'rows'" in given(POLICY="edf", EDF_BY="latest_start", COST_UNIT="rows")["queueapp.E158"]
    assert given(POLICY="edf", EDF_BY="latest_start") == {}
    assert given(POLICY="edf", COST_UNIT="rows") == {}
    assert given(POLICY="fifo", EDF_BY="latest_start", COST_UNIT="rows") == {}


@pytest.mark.parametrize(
    ("setting", "check_id"),
    [("TENANT_RESOLVERS", "queueapp.E155"), ("TENANT_CONTEXT", "queueapp.E156"), ("API_TENANTS", "queueapp.E157")],
)
def test_e155_e156_e157_a_callable_about_tenants_cannot_be_imported(setting: str, check_id: str) -> None:
    def given(path: Any) -> dict[str, str]:
        value = [path] if setting == "TENANT_RESOLVERS" else path
        return found(**ductor(**{setting: value}), MIDDLEWARE=["queueapp.middleware.TenantMiddleware"])

    assert "'nowhere.at_all', which cannot be imported" in given("nowhere.at_all")[check_id]
    assert f'DUCTOR["{setting}"]' in given("os.no_such_name")[check_id]
    assert "is not callable" in given("os.sep")[check_id]
    assert given("os.getcwd") == {}
    assert given(print) == {}


def test_w003_resolvers_without_the_middleware() -> None:
    assert "TenantMiddleware" in found(**ductor(TENANT_RESOLVERS=[print]), MIDDLEWARE=["os.no_such"])["queueapp.W003"]
    assert found(**ductor(), MIDDLEWARE=[]) == {}
    for path in ("queueapp.middleware.TenantMiddleware", f"{__name__}.HostsOwn"):
        assert found(**ductor(TENANT_RESOLVERS=[print]), MIDDLEWARE=[path]) == {}


class HostsOwn(TenantMiddleware):
    """A host's subclass."""


def test_e001_no_alias_is_ours() -> None:
    assert conf.BACKEND in found(TASKS={"default": OTHER}, **ductor())["queueapp.E001"]
    assert "queueapp.E001" in found(TASKS={}, **ductor())


def test_e002_default_alias_is_not_ours() -> None:
    tasks = {"default": OURS, "other": OTHER}

    assert "'other'" in found(TASKS=tasks, **ductor(DEFAULT_ALIAS="other"))["queueapp.E002"]
    assert "'nowhere'" in found(TASKS=tasks, **ductor(DEFAULT_ALIAS="nowhere"))["queueapp.E002"]
    assert found(TASKS=tasks, **ductor(DEFAULT_ALIAS="default")) == {}


def test_w001_default_is_somebody_elses() -> None:
    assert "'ours'" in found(TASKS={"default": OTHER, "ours": OURS}, **ductor())["queueapp.W001"]


def test_w002_a_key_of_our_alias_that_nobody_reads() -> None:
    def told(**more: Any) -> str:
        return found(TASKS={"default": {**OURS, **more}, "other": {**OTHER, "QUEUE": []}}, **ductor())["queueapp.W002"]

    assert "QUEUES?" in told(QUEUE=["emails"])
    assert "DUCTOR" in told(ENQUEUE_ON_COMMIT=True)
    assert "Known are: BACKEND, OPTIONS, QUEUES" in told(XYZ=1)
    fine = {**OURS, "QUEUES": ["default", "emails"], "OPTIONS": {}}
    assert found(TASKS={"default": fine, "other": {**OTHER, "QUEUE": []}}, **ductor()) == {}


@pytest.mark.parametrize("given", [{}, {"REDIS_URL": None}, {"REDIS_URL": "embedded:"}])
def test_e010_no_store_outside_of_debug(given: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(DUCTOR=given, DEBUG=False) == {}, "Django's test runner turns DEBUG off, and then runs the checks"
    monkeypatch.setattr("queueapp.checks.in_test_run", lambda: False)
    assert "REDIS_URL" in found(DUCTOR=given, DEBUG=False)["queueapp.E010"]
    assert found(DUCTOR=given, DEBUG=True) == {}


@pytest.mark.parametrize(
    ("store", "cache", "same"),
    [
        ("redis://localhost:6379/0", "redis://127.0.0.1/0", True),
        ("redis://localhost", "redis://LOCALHOST:6379", True),
        ("rediss://:secret@cache.example/3", "redis://cache.example:6379/3", True),
        ("redis://localhost?db=2", "redis://localhost/2", True),
        ("unix:///run/redis.sock?db=1", "unix:///run/redis.sock?db=1", True),
        ("redis://localhost/0", "redis://localhost/1", False),
        ("redis://localhost:6379/0", "redis://localhost:6380/0", False),
        ("redis://a/0", "redis://b/0", False),
        ("unix:///run/a.sock", "unix:///run/b.sock", False),
        ("redis://localhost/0", "127.0.0.1:11211", False),
    ],
)
def test_e011_the_store_is_a_cache_too(store: str, cache: str, same: bool) -> None:
    caches = {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": ["redis://x/9", cache]}}
    messages = found(DUCTOR={"REDIS_URL": store}, CACHES=caches)

    assert ("queueapp.E011" in messages) is same
    assert "secret" not in str(messages)


def test_e011_reads_the_number_from_the_options_of_a_cache() -> None:
    cache = {"BACKEND": "x", "LOCATION": "redis://localhost", "OPTIONS": {"db": 4}}

    assert "queueapp.E011" in found(DUCTOR={"REDIS_URL": "redis://localhost/4"}, CACHES={"default": cache})
    assert found(DUCTOR={"REDIS_URL": "redis://localhost/0"}, CACHES={"default": cache}) == {}


def test_e012_queueapp_belongs_into_the_shared_schema() -> None:
    assert "queueapp.E012" in found(SHARED_APPS=["django.contrib.auth"], TENANT_APPS=["queueapp"], **ductor())
    assert "queueapp.E012" in found(SHARED_APPS=["queueapp"], TENANT_APPS=["queueapp"], **ductor())
    assert found(SHARED_APPS=["queueapp"], TENANT_APPS=[], **ductor()) == {}


@pytest.fixture
def host_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    package = tmp_path / "ductor_check_host"
    (package / "management" / "commands").mkdir(parents=True)
    for folder in (package, package / "management", package / "management" / "commands"):
        (folder / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(discovery, "_broken", None)
    yield package
    for name in [name for name in sys.modules if name.startswith("ductor_check_host")]:
        del sys.modules[name]


def test_e020_a_tasks_module_that_cannot_be_imported(host_app: Path) -> None:
    (host_app / "tasks.py").write_text("import nowhere_at_all\n")
    messages = found(INSTALLED_APPS=[*django_settings.INSTALLED_APPS, "ductor_check_host"])

    assert "ductor_check_host.tasks" in messages["queueapp.E020"]
    assert "nowhere_at_all" in messages["queueapp.E020"]


def test_w020_a_command_that_hides_ours_or_is_hidden(host_app: Path) -> None:
    (host_app / "management" / "commands" / "worker.py").write_text("")
    last = found(INSTALLED_APPS=[*django_settings.INSTALLED_APPS, "ductor_check_host"])["queueapp.W020"]
    first = found(INSTALLED_APPS=["ductor_check_host", *django_settings.INSTALLED_APPS])["queueapp.W020"]

    assert all(words in last for words in ("`worker`", "is hidden by", "ductor_worker"))
    assert " hides " in first


def test_w030_sqlite_whose_transactions_begin_deferred() -> None:
    sqlite: dict[str, Any] = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
    immediate = {**sqlite, "OPTIONS": {"transaction_mode": "immediate"}}
    messages: list[dict[str, str]] = []
    for database in (sqlite, immediate, {"ENGINE": "django.db.backends.postgresql"}):
        # Not override_settings: it would reconfigure connections, which the check never looks at.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(django_settings, "DATABASES", {"default": database})
            messages.append({str(message.id): message.msg for message in checks.check_sqlite()})

    assert list(messages[0]) == ["queueapp.W030"]
    assert messages[1:] == [{}, {}]
