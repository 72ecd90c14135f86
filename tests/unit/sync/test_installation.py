"""Whose namespace it is: made once, claimed once, refused by name, taken over only on request."""

from __future__ import annotations

import io
import logging
from typing import Any

import pytest
import redis
from django.conf import settings as django_settings
from django.core.management import CommandError, call_command
from django.db.models import QuerySet
from django.test import override_settings

from queueapp.cli import startup
from queueapp.errors import ForeignInstallation, StoreUnavailable
from queueapp.models import Installation
from queueapp.store import shards
from queueapp.sync import installation
from queueapp.sync.installation import Ownership
from tests.clock import Clock

pytestmark = pytest.mark.django_db

OURS, THEIRS = "ours-0123456789", "theirs-0123456789"


@pytest.fixture
def row() -> Installation:
    """This database's row."""
    return Installation.objects.create(pk=installation.ONLY_ROW, key=OURS)


def owner(client: redis.Redis, namespace: str) -> Any:
    return client.get(f"{namespace}:owner")


def adopt(*arguments: str) -> str:
    out = io.StringIO()
    call_command("ductor", "adopt", *arguments, stdout=out)
    return out.getvalue()


# -- the row -----------------------------------------------------------------------------------------------------


def test_the_id_is_made_once() -> None:
    made = installation.installation_id()
    assert len(made) == 22
    assert installation.installation_id() == made
    assert Installation.objects.count() == 1


def test_two_processes_that_make_it_at_once_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one's row comes to be between our look and our insert."""
    real = QuerySet.get

    def overtaken(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return real(self, *args, **kwargs)
        except Installation.DoesNotExist:
            Installation(pk=installation.ONLY_ROW, key=THEIRS).save(force_insert=True)
            raise

    monkeypatch.setattr(QuerySet, "get", overtaken)
    assert installation.installation_id() == THEIRS
    assert Installation.objects.count() == 1


# -- the claim ---------------------------------------------------------------------------------------------------


def test_the_first_claims_and_claims_again(redis_client: redis.Redis, namespace: str, row: Installation) -> None:
    assert [installation.claim(), installation.claim()] == [OURS, OURS]
    assert owner(redis_client, namespace) == OURS.encode()


def test_a_second_database_on_the_same_store_is_refused(
    redis_client: redis.Redis, namespace: str, row: Installation
) -> None:
    redis_client.set(f"{namespace}:owner", THEIRS)
    with pytest.raises(ForeignInstallation) as refused:
        installation.claim()
    said = str(refused.value)
    for part in (namespace, "theirs-0…", "ours-012…", 'DUCTOR["NAMESPACE"]', "manage.py ductor adopt"):
        assert part in said
    assert refused.value.code == "foreign_installation"
    assert owner(redis_client, namespace) == THEIRS.encode()


def test_of_two_that_claim_at_once_one_wins(
    redis_client: redis.Redis, namespace: str, row: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one's claim arrives between our look and our write."""
    real = redis.Redis.get

    def overtaken(self: redis.Redis, name: Any) -> Any:
        seen = real(self, name)
        redis_client.set(f"{namespace}:owner", THEIRS)
        return seen

    monkeypatch.setattr(redis.Redis, "get", overtaken)
    with pytest.raises(ForeignInstallation):
        installation.claim()
    monkeypatch.undo()
    assert owner(redis_client, namespace) == THEIRS.encode()


def test_another_namespace_of_the_same_store_is_free(
    redis_client: redis.Redis, namespace: str, row: Installation
) -> None:
    redis_client.set(f"{namespace}:owner", THEIRS)
    with override_settings(DUCTOR={**django_settings.DUCTOR, "NAMESPACE": f"{namespace}-b"}):
        assert installation.claim() == OURS
    redis_client.delete(f"{namespace}-b:owner")


def test_a_copied_database_counts_as_the_same_installation(
    redis_client: redis.Redis, namespace: str, row: Installation
) -> None:
    installation.claim()
    Installation.objects.all().delete()
    Installation.objects.create(pk=installation.ONLY_ROW, key=OURS)  # what a dump brings along
    assert installation.claim() == OURS


def test_a_full_store_lets_its_owner_in(own_server: Any, namespace: str, row: Installation, settings: Any) -> None:
    """A claim that has to write would be refused, and no worker could ever empty the store."""
    server = own_server("--maxmemory", "3mb")
    settings.DUCTOR = {**django_settings.DUCTOR, "REDIS_URL": server.url}
    shards.take_over(OURS)
    client = redis.Redis.from_url(server.url)
    client.config_set("maxmemory", 1)
    with pytest.raises(redis.exceptions.OutOfMemoryError):
        client.set("any", "thing")
    assert installation.claim() == OURS


def test_start_up_waits_for_a_store_that_is_away_and_then_claims(
    redis_client: redis.Redis, namespace: str, row: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = iter([StoreUnavailable("away"), None])
    real = shards.claim

    def claim(ours: str) -> str:
        if error := next(tries):
            raise error
        return real(ours)

    monkeypatch.setattr(shards, "claim", claim)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    assert startup.claim_namespace() == OURS


# -- while a process runs ----------------------------------------------------------------------------------------


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ownership(redis_client: redis.Redis, row: Installation, clock: Clock) -> Ownership:
    return Ownership(installation.claim(), clock=clock)


def later(ownership: Ownership, clock: Clock) -> bool:
    clock.now = ownership.next_at
    ownership.look()
    return ownership.barred


def test_a_take_over_is_noticed_and_so_is_its_end(
    ownership: Ownership, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    assert not later(ownership, clock)
    shards.take_over(THEIRS)
    assert later(ownership, clock)
    assert later(ownership, clock)
    shards.take_over(OURS)
    assert not later(ownership, clock)
    assert [record.levelno for record in caplog.records] == [logging.ERROR, logging.WARNING], "each is said once"
    assert "theirs-0…" in caplog.text


def test_it_looks_only_when_it_is_time(ownership: Ownership, clock: Clock) -> None:
    shards.take_over(THEIRS)
    clock.now = ownership.next_at - 0.1
    ownership.look()
    assert not ownership.barred


def test_an_emptied_store_is_claimed_again_without_a_word(
    ownership: Ownership, clock: Clock, redis_client: redis.Redis, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    shards.store("default")
    redis_client.delete(f"{namespace}:owner", f"{namespace}:pools")
    assert not later(ownership, clock)
    assert owner(redis_client, namespace) == OURS.encode()
    assert shards.pools() == {"default": shards.keys("default").code}, "and others find the same pools"
    assert caplog.records == []


def test_what_was_known_stays_while_the_store_is_away(
    ownership: Ownership, clock: Clock, away: None, caplog: pytest.LogCaptureFixture
) -> None:
    assert not later(ownership, clock)
    ownership.barred = True
    assert later(ownership, clock)
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []


# -- adopt -------------------------------------------------------------------------------------------------------


def test_adopt_takes_the_namespace_over(redis_client: redis.Redis, namespace: str, row: Installation) -> None:
    redis_client.set(f"{namespace}:owner", THEIRS)
    assert "belongs to this installation (ours-012…) now" in adopt("--yes")
    assert installation.claim() == OURS
    assert "already" in adopt()


def test_adopt_says_what_it_means_and_asks(
    redis_client: redis.Redis, namespace: str, row: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    redis_client.set(f"{namespace}:owner", THEIRS)
    asked: list[str] = []

    def answer(question: str) -> str:
        asked.append(question)
        return "n"

    monkeypatch.setattr("builtins.input", answer)
    assert "Nothing was changed" in adopt()
    for part in (namespace, "theirs-0…", "ours-012…", "stop leasing and leading", "[y/N]"):
        assert part in asked[0]
    assert owner(redis_client, namespace) == THEIRS.encode()


def test_sync_and_upgrade_refuse_in_a_foreign_namespace(
    redis_client: redis.Redis, namespace: str, row: Installation
) -> None:
    redis_client.set(f"{namespace}:owner", THEIRS)
    for verb in ("sync", "upgrade"):
        with pytest.raises(CommandError, match="belongs to installation theirs-0…"):
            call_command("ductor", verb)
        call_command("ductor", verb, "--dry-run", stdout=io.StringIO())


def test_enqueueing_goes_on_in_a_foreign_namespace(
    redis_client: redis.Redis, namespace: str, row: Installation
) -> None:
    from tests.integration.jobs import noop

    redis_client.set(f"{namespace}:owner", THEIRS)
    assert noop.using(on_commit=False).enqueue().id
