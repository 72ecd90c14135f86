"""Users with some rights, stores that are away or silent, and jobs in every state."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.utils import timezone

from queueapp.codec import encode_arguments
from queueapp.models import OutboxEntry
from queueapp.store import shards
from queueapp.store.ids import new_id
from queueapp.store.records import Failed, NewJob

SECRET = "hunter2-is-secret"
IN_AN_ARGUMENT = "invoice-of-acme"
IN_A_TRACEBACK = "line-in-a-traceback"

Login = Callable[..., Client]


@pytest.fixture(autouse=True)
def _urls(settings: object, request: pytest.FixtureRequest) -> None:
    settings.ROOT_URLCONF = "tests.unit.admin.urls"  # type: ignore[attr-defined]  # pytest-django's settings take any name


@pytest.fixture
def login(db: None) -> Login:
    """A client of a user of the staff with these permissions of ours and no others."""

    def make(*permissions: str, staff: bool = True) -> Client:
        user = User.objects.create_user(f"user-{User.objects.count()}", password="x", is_staff=staff)
        found = Permission.objects.filter(content_type__app_label="queueapp", codename__in=permissions)
        assert found.count() == len(permissions), permissions
        user.user_permissions.set(found)
        client = Client()
        client.force_login(user)
        return client

    return make


def enqueue(count: int = 1, *, pool: str = "default", tenant: str = "acme", delay_ms: int = 0) -> list[str]:
    """Inner ids of new jobs whose arguments hold something to see and something to mask."""
    payload = encode_arguments([IN_AN_ARGUMENT], {"password": SECRET, "amount": 3}, {})
    jobs = [
        NewJob(
            id=new_id(),
            task="shop.tasks.send",
            tenant=tenant,
            payload=payload,
            fingerprint="0" * 16,
            delay_ms=delay_ms,
            max_attempts=1,
        )
        for _ in range(count)
    ]
    shards.store(pool).enqueue(jobs)
    return [job.id for job in jobs]


def lease(pool: str = "default", count: int = 1) -> list[tuple[str, int]]:
    """(inner id, attempts) of what a worker takes next."""
    leases = shards.store(pool).check_and_lease("w1", next(_calls), want=count, begin=count, lease_ms=30_000)
    return [(job.id, job.attempts) for job in leases.jobs]


def _numbers() -> Iterator[int]:
    number = 0
    while True:
        number += 1
        yield number


_calls = _numbers()


def fail(count: int = 1, *, pool: str = "default", tenant: str = "acme", group: str = "aaaaaaaaaaaa") -> list[str]:
    """Public ids of jobs that raised and are dead letters."""
    enqueue(count, pool=pool, tenant=tenant)
    error = json.dumps({"class": "shop.Refused", "message": f"no: {IN_A_TRACEBACK}", "traceback": IN_A_TRACEBACK})
    failed = [
        Failed(id=job_id, attempts=attempts, run_ms=5, error=error.encode(), fingerprint=group)
        for job_id, attempts in lease(pool, count)
    ]
    words = shards.store(pool).fail(failed)
    assert set(words) == {"dead"}, words
    return public([letter.id for letter in failed], pool)


def public(ids: list[str], pool: str = "default") -> list[str]:
    """Public ids of inner ones."""
    return [shards.keys(pool).public_id(job_id) for job_id in ids]


def keep(**values: object) -> OutboxEntry:
    """An outbox entry whose arguments hold something to see and something to mask."""
    entry: dict[str, Any] = {
        "job_id": shards.keys("default").public_id(new_id()),
        "pool": "default",
        "tenant": "acme",
        "task": "shop.tasks.send",
        "job": {},
        "payload": encode_arguments([IN_AN_ARGUMENT], {"password": SECRET, "amount": 3}, {}),
        "due": timezone.now() + timedelta(hours=1),
    }
    return OutboxEntry.objects.create(**entry | values)
