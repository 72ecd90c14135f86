"""A small host: tasks, views that enqueue them and a signal that does. Its tests stand beside it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from django.utils import timezone

from queueapp import Retry, backoff, enqueue_many, task, tenant
from queueapp.producer.tenancy import current_tenant
from queueapp.worker.context import JobContext

ran: list[tuple[str, Any]] = []
"""(tenant, what) of each body that ran. The tests' fixture empties it."""


def note(what: Any) -> None:
    ran.append((current_tenant() or "", what))


@task
def send_invoice(order_id: int, copies: list[str] | None = None) -> dict[str, Any]:
    note(order_id)
    return {"order": order_id, "copies": copies}


@task(queue_name="default", max_attempts=3, backoff=backoff.fixed(timedelta(hours=1)))
def flaky(failures: int) -> str:
    note("flaky")
    if sum(what == "flaky" for _, what in ran) <= failures:
        raise ConnectionError("the gateway is busy")
    return "done"


@task(max_attempts=2)
def asks_again() -> None:
    note("asked")
    if len(ran) == 1:
        raise Retry("in a minute", delay=60)


@task
def broken(message: str = "no such order") -> None:
    note("broken")
    raise LookupError(message)


@task
def parent(children: int) -> list[str]:
    note("parent")
    return [send_invoice.enqueue(number).id for number in range(children)]


@task
def for_ever() -> None:
    note("again")
    for_ever.enqueue()


@task
def every_hour() -> None:
    note("hour")
    every_hour.using(run_after=timezone.now() + timedelta(hours=1)).enqueue()


@task
def in_one_block(order_id: int) -> None:
    with transaction.atomic():
        note(order_id)
        send_invoice.enqueue(order_id)


@task
async def count_users() -> int:
    note("count")
    return await User.objects.acount()


@task
def count_users_here() -> int:
    return User.objects.count()


@task
async def where_am_i() -> int:
    return await sync_to_async(lambda: id(connection.connection))()


@task(takes_context=True)
def reports(context: JobContext) -> int:
    context.set_progress(1, 2, "half")
    return context.attempt


@task(typed=True)
def typed(when: Any, ids: tuple[uuid.UUID, ...]) -> Any:
    note(ids)
    return ids


@task(aliases=["shop.tasks.former_name"])
def renamed() -> None: ...


@task
def secretive(user: str, password: str) -> None: ...


@task
def interrupted() -> None:
    raise KeyboardInterrupt


def order(request: HttpRequest, number: int) -> HttpResponse:
    """A view as people write it: it saves something and enqueues, all in one transaction."""
    with transaction.atomic():
        User.objects.create(username=f"order-{number}")
        result = send_invoice.using(tenant="acme").enqueue(number)
    return JsonResponse({"job": result.id}, status=202)


def order_that_fails(request: HttpRequest, number: int) -> HttpResponse:
    with transaction.atomic():
        send_invoice.enqueue(number)
        transaction.set_rollback(True)
    return HttpResponse(status=409)


async def aorder(request: HttpRequest, number: int) -> HttpResponse:
    result = await send_invoice.using(tenant="acme").aenqueue(number)
    return JsonResponse({"job": result.id}, status=202)


def month(request: HttpRequest) -> HttpResponse:
    with tenant("acme"):
        outcomes = enqueue_many([send_invoice.bind(number) for number in (1, 2)])
    return JsonResponse({"words": [outcome.word for outcome in outcomes]})


def on_user(sender: type[User], instance: User, created: bool, **_: Mapping[str, Any]) -> None:
    """A receiver of `post_save`, which the tests connect."""
    if created:
        send_invoice.using(tenant=instance).enqueue(instance.pk)


urlpatterns = [
    path("order/<int:number>/", order),
    path("fails/<int:number>/", order_that_fails),
    path("aorder/<int:number>/", aorder),
    path("month/", month),
]


def chosen_options(later: Any) -> Any:
    """`send_invoice` with a bit of everything."""
    return send_invoice.using(
        tenant="acme",
        lane="mail",
        priority=5,
        run_after=later,
        idempotency_key="order-7",
        cost=3,
        max_attempts=4,
        metadata={"from": "test"},
    )
