"""The settings: defaults, conversion, and one clear fault with a stable id for everything else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest
from django.test.utils import override_settings

from queueapp import conf, setting_readers
from queueapp.conf import SettingFault, Settings, default_alias, known_pools, load, our_aliases, settings
from tests.unit.test_backend import HostBackend

OURS = {"BACKEND": "queueapp.backend.DuctorBackend"}
OTHER = {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}


@pytest.fixture
def source() -> str:
    with open(conf.__file__, encoding="utf-8") as module:
        return module.read()


def test_every_reader_fills_a_field_and_every_field_has_a_reader() -> None:
    assert {reader.field for reader in setting_readers.READERS.values()} == {field.name for field in fields(Settings)}


def test_every_field_is_documented_under_itself(source: str) -> None:
    for field in fields(Settings):
        assert re.search(rf'^    {field.name}: .*\n    """', source, re.MULTILINE), field.name


def test_ids_are_stable_and_no_two_are_equal() -> None:
    numbers = [reader.number for reader in setting_readers.READERS.values()]

    assert len(set(numbers)) == len(numbers)
    assert setting_readers.READERS["REDIS_URL"].number == 110
    assert setting_readers.READERS["DATABASE"].number == 139


def test_the_defaults_are_those_of_the_documentation() -> None:
    loaded, faults = load({})

    assert faults == []
    assert (loaded.max_attempts, loaded.max_crashes, loaded.lease_ms, loaded.grace_ms) == (1, 3, 30_000, 25_000)
    assert (loaded.namespace, loaded.tenant_default, loaded.database) == ("ductor", "default", "default")
    assert (loaded.result_ttl_ms, loaded.result_max) == (86_400_000, 100_000)
    assert (loaded.dead_ttl_ms, loaded.dead_max) == (30 * 86_400_000, 10_000)
    assert (loaded.max_payload_bytes, loaded.max_result_bytes) == (262_144, 65_536)
    assert (loaded.leader_ttl_ms, loaded.leader_renewal_ms, loaded.leader_retry_ms) == (5_000, 1_666, 1_000)
    assert loaded.enqueue_on_commit is True


@pytest.mark.parametrize(
    ("value", "milliseconds"), [(2, 2_000), (0.5, 500), (timedelta(minutes=1), 60_000), (1.0004, 1_000)]
)
def test_durations_become_milliseconds(value: object, milliseconds: int) -> None:
    assert load({"LEASE_SECONDS": value})[0].lease_ms == milliseconds


WRONG: list[tuple[str, Any, str]] = [
    ("REDIS_URL", "http://localhost", "URL"),
    ("REDIS_URL", "redis://", "URL"),
    ("REDIS_URL", 5, "URL"),
    ("REDIS_URL", {"SENTINELS": [("a", 1)]}, "MASTER_NAME"),
    ("CACHE_ALIAS", 3, "CACHES"),
    ("NAMESPACE", "Upper", "a-z"),
    ("NAMESPACE", "x" * 33, "1 to 32"),
    ("DEFAULT_ALIAS", "", "TASKS"),
    ("POOLS", ["a"], "dictionary"),
    ("POLICIES", {"mine": "nodots"}, "dotted paths"),
    ("POOLS", {"Not Good": {}}, "keyed by names"),
    ("POOLS", {"a": {"POLICI": "fifo"}}, "POLICY"),
    ("POOLS", {"a": {"DEFAULT_COST": 0.5}}, "at least 1"),
    ("POOLS", {"a": {"DEFAULT_WEIGHT": 0}}, "0.001"),
    ("POOLS", {"a": {"BACKLOG_LIMIT": -1}}, "what DUCTOR says for all pools"),
    ("POOLS", {"a": {"CONTINUE_WEIGHT": 0}}, "1 to 1,000"),
    ("BACKLOG_LIMIT", "many", "or None"),
    ("POOLS", {"a": {"EDF_BY": "start"}}, "latest_start"),
    ("POOLS", {"a": {"AGING_STEP_SECONDS": 0}}, "0.001 to 86,400"),
    ("POOLS", {"a": {"AGING_STEP_SECONDS": timedelta(days=2)}}, "0.001 to 86,400"),
    ("POOLS", {"a": {"DEFAULT_COST": timedelta(seconds=5)}}, "at least 1"),
    ("ENQUEUE_ON_COMMIT", 1, "True or False"),
    ("ON_COMMIT_FAILURE", "ignore", "'log'"),
    ("MAX_PAYLOAD_BYTES", 1, "whole number"),
    ("MAX_RESULT_BYTES", "64K", "whole number"),
    ("IDEMPOTENCY_TTL", 0, "duration"),
    ("MAX_ATTEMPTS", 0, "from 1"),
    ("MAX_ATTEMPTS", True, "whole number"),
    ("MAX_CRASHES", 1.5, "whole number"),
    ("BACKOFF", "5s", "seconds"),
    ("BACKOFF", float("inf"), "seconds"),
    ("UNKNOWN_TASK_GRACE", -1, "duration"),
    ("TENANT_DEFAULT", "_system", "begin with _"),
    ("UNKNOWN_TENANTS", "maybe", "'accept' or 'reject'"),
    ("LEASE_SECONDS", "30", "duration"),
    ("LEASE_SECONDS", float("nan"), "duration"),
    ("GRACE_SECONDS", None, "duration"),
    ("LEADER_TTL_SECONDS", 600, "duration"),
    ("LEADER_RENEW_SECONDS", 0, "duration"),
    ("LEADER_RETRY_SECONDS", [], "duration"),
    ("LEADER_PRESENCE", "on", "'off'"),
    ("REPLAY_WINDOW_SECONDS", 0, "duration"),
    ("RESULT_TTL", "1d", "duration"),
    ("RESULT_MAX", -1, "whole number"),
    ("DEAD_TTL", "30d", "duration"),
    ("DEAD_MAX", None, "whole number"),
    ("RECORDS_TTL", 0, "duration"),
    ("RUNS_TTL", -1, "duration"),
    ("TIMEOUT", 0, "or None"),
    ("API_TENANTS", 5, "callable"),
    ("MASK", "password", "list"),
    ("DATABASE", None, "DATABASES"),
    ("METRICS_TENANTS", -1, "whole number"),
    ("TENANT_RESOLVERS", "shop.tenants.by_host", "list of callables"),
    ("TENANT_RESOLVERS", [3], "dotted paths"),
    ("TENANT_CONTEXT", "schema", "context manager"),
]


@pytest.mark.parametrize(("name", "value", "words"), WRONG)
def test_a_wrong_value_names_setting_value_and_remedy(name: str, value: Any, words: str) -> None:
    loaded, [fault] = load({name: value})

    assert fault.id == f"queueapp.E{setting_readers.READERS[name].number}"
    assert fault.name == name
    assert f'DUCTOR["{name}"] is ' in fault.message
    assert words in fault.hint
    assert loaded == Settings()


def test_every_setting_has_a_wrong_value_here() -> None:
    assert {name for name, _, _ in WRONG} == set(setting_readers.READERS)


def test_an_unknown_setting_names_the_nearest() -> None:
    [fault] = load({"LEASE_SECOND": 30})[1]

    assert fault.id == "queueapp.E101"
    assert "'LEASE_SECOND' is not" in str(fault).replace('DUCTOR["', "'").replace("DUCTOR['", "'").replace("']", "'")
    assert "Did you mean LEASE_SECONDS?" in str(fault)
    assert "Known are: " in str(load({"QQQ": 1})[1][0])


@pytest.mark.parametrize("name", sorted(setting_readers.NOT_YET))
def test_a_setting_of_a_later_release_is_refused_by_name(name: str) -> None:
    [fault] = load({name: 1})[1]

    assert fault.id == "queueapp.E102"
    assert f'DUCTOR["{name}"] is planned but not there yet' in str(fault)


def test_ductor_must_be_a_dictionary() -> None:
    assert load([1])[1][0].id == "queueapp.E100"


@pytest.mark.parametrize("renew", [1.8, 2, 3])
def test_a_renewal_after_the_leader_has_stopped_trusting_its_lease_is_refused(renew: float) -> None:
    fault = load({"LEADER_TTL_SECONDS": 2, "LEADER_RENEW_SECONDS": renew})[1][0]
    assert fault.id == "queueapp.E150"
    assert f"({renew:g}) is not below 1.8" in fault.message
    assert load({"LEADER_TTL_SECONDS": 2, "LEADER_RENEW_SECONDS": 1.7})[1] == []


def test_a_retry_above_the_lease_is_no_fault() -> None:
    """A standby asks when the lease ends, whatever is set: nobody has to lower one setting because of the other."""
    assert load({"LEADER_TTL_SECONDS": 0.5})[1] == []
    assert load({"LEADER_TTL_SECONDS": 2, "LEADER_RETRY_SECONDS": 60})[1] == []


def test_two_places_of_the_store_are_refused() -> None:
    assert load({"REDIS_URL": "redis://a", "CACHE_ALIAS": "default"})[1][0].id == "queueapp.E151"


def test_no_message_shows_a_password() -> None:
    url = load({"REDIS_URL": "http://user:hunter2@localhost"})[1][0]
    sentinels = load({"REDIS_URL": {"SENTINELS": [], "PASSWORD": "hunter2"}})[1][0]

    assert "hunter2" not in str(url)
    assert "hunter2" not in str(sentinels)


@pytest.mark.parametrize(
    "value",
    ["redis:/:hunter/2@host", "redsi://user:hunter/2@host", "hunter/2", b"redis://:hunter/2@host", ["hunter/2"]],
    ids=str,
)
def test_an_address_of_a_wrong_form_is_not_printed(value: object) -> None:
    (fault,) = load({"REDIS_URL": value})[1]
    assert "hunter" not in str(fault)
    assert 'DUCTOR["REDIS_URL"] is a ' in str(fault)
    assert "redis://host:6379/0" in str(fault)


def test_all_faults_are_found_at_once() -> None:
    assert len(load({"LEASE_SECONDS": "x", "TIMEOUT": 0, "NAMESPACE": "!"})[1]) == 3


class TestLazySettings:
    def test_a_fault_is_raised_at_the_first_access(self) -> None:
        with override_settings(DUCTOR={"MAX_ATTEMPTS": 0}), pytest.raises(SettingFault, match="MAX_ATTEMPTS"):
            _ = settings.max_attempts

    def test_override_settings_is_seen_and_undone(self) -> None:
        before = settings.max_attempts
        with override_settings(DUCTOR={"MAX_ATTEMPTS": 7}):
            assert settings.max_attempts == 7
        assert settings.max_attempts == before


class TestAliasesAndPools:
    @pytest.fixture(autouse=True)
    def _ductor(self) -> Iterator[None]:
        with override_settings(DUCTOR={"POOLS": {"reports": {}}}):
            yield

    def test_our_aliases_in_their_order(self) -> None:
        with override_settings(TASKS={"a": OTHER, "b": OURS, "default": OURS}):
            assert our_aliases() == ["b", "default"]

    def test_a_subclass_of_our_backend_is_ours(self) -> None:
        path = f"{HostBackend.__module__}.{HostBackend.__name__}"
        with override_settings(TASKS={"default": {"BACKEND": path}}):
            assert our_aliases() == ["default"]

    def test_what_cannot_be_imported_is_not_ours(self) -> None:
        with override_settings(TASKS={"default": {"BACKEND": "nowhere.Backend"}}):
            assert our_aliases() == []
            assert default_alias() is None

    def test_the_alias_of_tasks(self) -> None:
        with override_settings(TASKS={"a": OURS, "default": OURS}):
            assert default_alias() == "default"
        with override_settings(TASKS={"a": OURS, "b": OURS, "default": OTHER}):
            assert default_alias() == "a"
            with override_settings(DUCTOR={"DEFAULT_ALIAS": "b"}):
                assert default_alias() == "b"

    def test_the_known_pools(self) -> None:
        with override_settings(TASKS={"a": {**OURS, "QUEUES": ["emails"]}, "b": {**OTHER, "QUEUES": ["theirs"]}}):
            assert known_pools() == {"default", "emails", "reports"}
