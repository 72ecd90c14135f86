"""Pools: renamed in the admin, their keys stay; none with jobs is deleted, whoever asks."""

from __future__ import annotations

import asyncio

import pytest
import redis
from django.contrib.admin.models import LogEntry
from django.core.exceptions import ValidationError
from django.db.models import ProtectedError
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from queueapp import sync
from queueapp.admin import pools as pools_admin
from queueapp.inspection.jobs import find_job
from queueapp.models import OutboxEntry, Pool
from queueapp.producer.sending import asend_each
from queueapp.store import shards
from queueapp.store.ids import new_id
from queueapp.store.keys import pool_code
from queueapp.store.records import Enqueued, NewJob
from tests.unit.admin.conftest import enqueue, fail, keep, public
from tests.unit.admin.test_dead_letters import text
from tests.unit.conftest import SilentStore

pytestmark = pytest.mark.django_db


@pytest.fixture
def pool(redis_url: str) -> Pool:
    return Pool.objects.create(name="mail")


def page_of(pool: Pool) -> str:
    return reverse("admin:queueapp_pool_rename", args=[pool.pk])


# -- renaming --------------------------------------------------------------------------------------------------------


@pytest.mark.compat
def test_a_renamed_pool_keeps_its_jobs_and_their_ids(
    pool: Pool, admin_client: Client, redis_client: redis.Redis, namespace: str
) -> None:
    [job_id] = public(enqueue(pool="mail"), "mail")
    waiting = keep(pool="mail")
    answer = admin_client.post(page_of(pool), {"name": "letters"})
    assert answer.headers["Location"] == reverse("admin:queueapp_pool_change", args=[pool.pk])
    pool.refresh_from_db()
    assert (pool.name, pool.code) == ("letters", pool_code("mail"))
    assert redis_client.hgetall(f"{namespace}:pools") == {pool_code("mail").encode(): b"letters"}
    assert OutboxEntry.objects.get(pk=waiting.pk).pool == "letters"
    [entry] = LogEntry.objects.all()
    assert entry.change_message == "renamed from mail to letters"
    shards.forget()  # as a process that starts now
    found = find_job(job_id)
    assert found is not None
    assert found.pool == "letters"
    assert shards.reads("letters").overview().waiting == 1
    assert shards.store("letters").keys.code == pool_code("mail")


def test_a_pool_that_the_store_has_never_seen_is_renamed_too(pool: Pool, admin_client: Client) -> None:
    admin_client.post(page_of(pool), {"name": "letters"})
    pool.refresh_from_db()
    assert pool.name == "letters"
    sync.repair()
    assert shards.reads("letters").keys.code == pool.code
    assert shards.pools()["letters"] == pool.code


def test_an_asynchronous_producer_that_starts_now_finds_a_renamed_pool(pool: Pool) -> None:
    enqueue(pool="mail")
    sync.rename(pool, "letters")
    shards.forget()
    job = NewJob(id=new_id(), task="shop.tasks.send", tenant="acme", payload=b"{}", fingerprint="0" * 16)
    [answer] = asyncio.run(asend_each([("letters", job)]))
    assert isinstance(answer, Enqueued)
    assert shards.keys("letters").code == pool.code
    assert shards.reads("letters").overview().waiting == 2


@pytest.mark.parametrize("name", ["", "UPPER", "a b", "x" * 65, "default", "post", "held", "digest"])
def test_a_name_that_cannot_be_is_refused_beside_the_field(
    pool: Pool, admin_client: Client, redis_client: redis.Redis, namespace: str, name: str
) -> None:
    enqueue(pool="mail")
    Pool.objects.create(name="post")
    redis_client.hset(f"{namespace}:pools", mapping={"aaaaaa": "held", pool_code("digest"): "another"})
    before = redis_client.hgetall(f"{namespace}:pools")
    answer = admin_client.post(page_of(pool), {"name": name})
    assert answer.status_code == 200
    assert answer.context["form"].errors["name"]
    pool.refresh_from_db()
    assert pool.name == "mail"
    assert redis_client.hgetall(f"{namespace}:pools") == before
    assert not LogEntry.objects.exists()


def test_a_pool_of_the_settings_keeps_its_name(pool: Pool, admin_client: Client, settings: Settings) -> None:
    settings.DUCTOR = {**settings.DUCTOR, "POOLS": {"mail": {}}}
    assert admin_client.get(page_of(pool)).context["fixed"]
    answer = admin_client.post(page_of(pool), {"name": "letters"})
    assert "The settings name the pool" in text(answer)
    pool.refresh_from_db()
    assert pool.name == "mail"


def test_no_pool_is_renamed_while_the_store_is_away(pool: Pool, admin_client: Client, away: None) -> None:
    answer = admin_client.post(page_of(pool), {"name": "letters"})
    assert "The pool keeps its name" in text(answer)
    pool.refresh_from_db()
    assert pool.name == "mail"


def test_renaming_does_not_hang_when_the_store_is_silent(pool: Pool, admin_client: Client, silent: SilentStore) -> None:
    assert admin_client.post(page_of(pool), {"name": "letters"}).status_code == 200
    assert silent.asked == 1
    pool.refresh_from_db()
    assert pool.name == "mail"


def test_the_old_name_stays_taken_while_the_pool_exists(pool: Pool, admin_client: Client) -> None:
    enqueue(pool="mail")
    sync.rename(pool, "letters")
    with pytest.raises(ValidationError, match="has the same code as the pool “letters”"):
        Pool(name="mail").full_clean()


def test_the_repair_finishes_a_renaming_by_sql(pool: Pool) -> None:
    enqueue(pool="mail")
    Pool.objects.filter(pk=pool.pk).update(name="letters")
    shards.forget()
    sync.repair()
    assert shards.pools() == {"letters": pool_code("mail")}


def test_the_repair_takes_back_a_renaming_whose_row_was_not_saved(pool: Pool) -> None:
    enqueue(pool="mail")
    shards.rename(pool.code, "letters")
    sync.repair()
    assert shards.pools()["mail"] == pool_code("mail")
    assert "letters" not in shards.pools()


# -- deleting --------------------------------------------------------------------------------------------------------


def test_the_orm_deletes_no_pool_with_jobs(pool: Pool) -> None:
    other = Pool.objects.create(name="other")
    fail(pool="mail")
    with pytest.raises(ProtectedError, match="still has 1 job"):
        pool.delete()
    with pytest.raises(ProtectedError, match="still has 1 job"):
        Pool.objects.all().delete()
    assert Pool.objects.count() == 2
    other.delete()
    assert Pool.objects.count() == 1


def test_the_orm_deletes_no_pool_while_nobody_can_say_and_does_not_hang(silent: SilentStore) -> None:
    for number in range(4):
        Pool.objects.create(name=f"p{number}")
    with pytest.raises(ProtectedError, match="nobody can say whether it has jobs"):
        Pool.objects.all().delete()
    assert silent.asked == 1
    assert Pool.objects.count() == 4


@pytest.mark.parametrize("way", ["page", "action"])
def test_a_job_that_comes_between_question_and_deletion_keeps_the_pool(
    pool: Pool, admin_client: Client, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    enqueue(pool="mail")
    monkeypatch.setattr(pools_admin, "_kept", lambda pools: iter(()))
    if way == "page":
        answer = admin_client.post(reverse("admin:queueapp_pool_delete", args=[pool.pk]), {"post": "yes"}, follow=True)
    else:
        form = {"action": "delete_selected", "_selected_action": [pool.pk], "post": "yes"}
        answer = admin_client.post(reverse("admin:queueapp_pool_changelist"), form, follow=True)
    assert "still has 1 job" in str(next(iter(answer.context["messages"])))
    assert Pool.objects.filter(pk=pool.pk).exists()
    assert not LogEntry.objects.exists()
