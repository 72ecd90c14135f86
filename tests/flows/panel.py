"""Users of the admin with some rights, flows with something to hide, and the pages' addresses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.contrib.admin.utils import quote
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from flows import flow, map_step, step, wait_for
from queueapp import task
from tests.flows import host

SECRET = "hunter2-is-secret"
CARD = "4111-of-acme"
AMOUNT = "12-pieces-of-silver"
EVERY_ACT = ("cancel_run", "resume_run", "retry_step", "send_event")


@task(max_attempts=1, sensitive=("card",))
def charge(card: str, amount: str) -> str:
    if amount == "0":
        raise ValueError(f"nothing of {AMOUNT}")
    return f"charged {amount}"


@task(max_attempts=1)
def weigh(number: int, password: str) -> int:
    if number % 100 == 99:
        raise ValueError(f"{number} is too heavy")
    return number


@flow
def pay(card: str, amount: str, options: dict[str, Any]) -> object:
    return step(charge, card, amount)


@flow
def weigh_all(numbers: list[int]) -> object:
    return map_step(weigh, numbers, SECRET, max_parallel=100).counts


@flow
def approve(card: str) -> object:
    told = wait_for("approved", timeout=3600)
    return step(charge, card, told["amount"])


@contextmanager
def fresh() -> Iterator[None]:
    """Nothing has run, and nothing fails."""
    host.RAN.clear()
    host.FAIL.clear()
    yield
    host.FAIL.clear()


def client_with(*permissions: str, staff: bool = True) -> Client:
    """A client of a user with these permissions, of the queue or of flows, and no others."""
    user = User.objects.create_user(f"user-{User.objects.count()}", password="x", is_staff=staff)
    found = Permission.objects.filter(content_type__app_label__in=("queueapp", "ductor_flows"))
    found = found.filter(codename__in=permissions)
    assert found.count() == len(permissions), permissions
    user.user_permissions.set(found)
    client = Client()
    client.force_login(user)
    return client


def page_of(run_id: str, act: str = "change") -> str:
    return reverse(f"admin:ductor_flows_run_{act}", args=[quote(run_id)])


def runs() -> str:
    return reverse("admin:ductor_flows_run_changelist")


def text(answer: Any) -> str:
    """The page's content. An answer of another status fails the test."""
    assert answer.status_code == 200, answer
    return str(answer.content.decode())
