"""Whose work it is: the current tenant, what may stand for a tenant, and what a host enters around a tenant's work.

A job belongs to the tenant that its task names (`.using(tenant=...)`), else to the current one, else to
`TENANT_DEFAULT`. The current tenant is a context variable: each thread and each asyncio task has its own.
`with queueapp.tenant("acme")` sets it; `TenantMiddleware` sets it for a request (`of_request`); a worker, and the test
helpers that stand in for one, enter it around each body (`entered`), so that nested jobs stay with their tenant.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from inspect import isawaitable
from time import monotonic
from typing import TYPE_CHECKING, Any
from uuid import UUID

from asgiref.sync import async_to_sync, iscoroutinefunction, sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.db.models import Model
from django.utils.module_loading import import_string

from queueapp.conf import settings
from queueapp.errors import InvalidOption, TenantContextError
from queueapp.names import SYSTEM_TENANT, TENANT_FORM

if TYPE_CHECKING:
    from django.http import HttpRequest

logger = logging.getLogger(__name__)

WARN_EVERY_S = 60.0

_warned: dict[str, float] = {}
"""Task → when it was last said that nobody named its tenant. No lock: at worst it is said twice."""


@contextmanager
def tenant(value: object) -> Iterator[str]:
    """Every job enqueued inside belongs to this tenant: text, an integer, a UUID, or a model instance.

    Raises InvalidOption for what cannot be a tenant's id. Nested, the inner one holds.
    """
    name = tenant_id(value)
    with belonging_to(name):
        yield name


def current_tenant() -> str | None:
    """The id of the tenant entered last, or None outside of every `tenant()` and request.

    In a request whose resolvers were not asked yet this asks them; in asynchronous code they must not need the
    database then (`aenqueue` asks them in a way that may).
    """
    held = _current.get()
    return held.get() if isinstance(held, RequestTenant) else held


def resolve_tenant(named: str | None, task: str = "") -> str:
    """The tenant of a job: the one named by the task, else the current one, else `TENANT_DEFAULT`.

    A project with resolvers has tenants, so a job without one is told in the log, once a minute for each task: it may
    be one that a foreign tool enqueued anew without its tenant. Who means the default names it.
    """
    found = named or current_tenant()
    if found:
        return found
    if settings.tenant_resolvers:
        _warn(task)
    return settings.tenant_default


async def settle() -> None:
    """Ask the resolvers of an asynchronous request now: awaits those that are `async def`, and calls the others in
    Django's thread for synchronous code, where they may use the database. Called before an `aenqueue`."""
    held = _current.get()
    if isinstance(held, RequestTenant):
        await held.aget()


def tenant_id(value: object) -> str:
    """The id for which a value stands; a model instance stands for its `ductor_tenant`, else its primary key."""
    match value:
        case bool() | None:
            pass
        case str():
            return _checked(str.__str__(value), value)
        case int() | UUID():
            return _checked(str(value), value)
        case Model():
            named = getattr(value, "ductor_tenant", None)
            if named is not None:
                return tenant_id(named() if callable(named) else named)
            if value.pk is None:
                raise InvalidOption(
                    f"tenant is an unsaved {type(value).__name__} without a primary key: save it first, "
                    "or pass the id as text."
                )
            return _checked(str(value.pk), value)
    raise InvalidOption(
        f"tenant is {value!r} ({type(value).__name__}): pass text, an integer, a UUID or a model instance."
    )


def _checked(name: str, value: object) -> str:
    if not TENANT_FORM.fullmatch(name):
        raise InvalidOption(
            f"tenant is {value!r}: an id has 1 to 64 of A-Z a-z 0-9 . _ : @ - and does not begin with _. "
            "Use a key of that form, for example the primary key."
        )
    return name


def _warn(task: str) -> None:
    now = monotonic()
    if now - _warned.get(task, -WARN_EVERY_S) < WARN_EVERY_S:
        return
    if len(_warned) > 1000:
        _warned.clear()
    _warned[task] = now
    logger.warning(
        "A job of %s without a tenant goes to TENANT_DEFAULT: neither option nor current tenant, no resolver answered",
        task,
        extra={"task": task, "tenant": settings.tenant_default},
    )


# -- around a body -----------------------------------------------------------------------------------------------


@contextmanager
def belonging_to(name: str) -> Iterator[None]:
    """Set the current tenant alone, unchecked: for an id that the store gave."""
    token = _current.set(name)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def entered(name: str) -> Iterator[None]:
    """What surrounds a task's body: the current tenant, and the host's `TENANT_CONTEXT` entered with its id.

    Not around what is no tenant's: the host has no schema, and no name, for `_ductor`.
    Raises TenantContextError when the host's context manager cannot be entered, or fails while a body that went well
    is left. It may turn the body's exception into another, but it cannot swallow one: a job whose body raised failed.
    """
    with belonging_to(name):
        source = settings.tenant_context
        if source is None or name == SYSTEM_TENANT:
            yield
            return
        try:
            manager: AbstractContextManager[Any] = _imported("TENANT_CONTEXT", source)(name)
            manager.__enter__()
        except Exception as error:
            raise TenantContextError(
                f'DUCTOR["TENANT_CONTEXT"] ({_called(source)}) could not enter the tenant {name!r}: {error!r}'
            ) from error
        try:
            yield
        except BaseException as error:
            manager.__exit__(type(error), error, error.__traceback__)
            raise
        try:
            manager.__exit__(None, None, None)
        except Exception as error:
            raise TenantContextError(
                f'DUCTOR["TENANT_CONTEXT"] ({_called(source)}) failed on leaving the tenant {name!r}: {error!r}'
            ) from error


# -- the tenant of a request -------------------------------------------------------------------------------------


@contextmanager
def of_request(request: HttpRequest) -> Iterator[None]:
    """The current tenant is the one that `TENANT_RESOLVERS` find for this request, asked when it is first needed."""
    token = _current.set(RequestTenant(request, _current.get()))
    try:
        yield
    finally:
        _current.reset(token)


class RequestTenant:
    """What the resolvers say of one request: asked at the first enqueue, then remembered.

    Late, because asking often means loading the session and its user: a page that enqueues nothing pays nothing for
    it, and stays cacheable (whoever reads the session makes the answer vary by cookie). Threads of one request that
    race here get the same answer.
    """

    def __init__(self, request: HttpRequest, outer: str | RequestTenant | None) -> None:
        self._request = request
        self._outer = outer
        self._asked = False
        self._found: str | None = None

    def get(self) -> str | None:
        """The first resolver's answer that is not None; else the tenant that was current around the request."""
        if not self._asked:
            for source in settings.tenant_resolvers:
                resolver = _imported("TENANT_RESOLVERS", source)
                value = resolver(self._request)
                if isawaitable(value):
                    value = _wait_for(value, source)
                if value is not None:
                    self._found = _answer(value, source)
                    break
            self._asked = True
        return self._found or (self._outer.get() if isinstance(self._outer, RequestTenant) else self._outer)

    async def aget(self) -> str | None:
        """See `get`."""
        if not self._asked:
            for source in settings.tenant_resolvers:
                resolver = _imported("TENANT_RESOLVERS", source)
                asynchronous = iscoroutinefunction(resolver)
                value = await resolver(self._request) if asynchronous else await sync_to_async(resolver)(self._request)
                if isawaitable(value):
                    value = await value
                if value is not None:
                    self._found = _answer(value, source)
                    break
            self._asked = True
        if isinstance(self._outer, RequestTenant):
            return self._found or await self._outer.aget()
        return self._found or self._outer


_current: ContextVar[str | RequestTenant | None] = ContextVar("queueapp.tenant", default=None)


def _answer(value: object, source: object) -> str:
    try:
        return tenant_id(value)
    except InvalidOption as error:
        raise InvalidOption(
            f'DUCTOR["TENANT_RESOLVERS"]: {_called(source)} returned what is no tenant. {error}'
        ) from None


def _wait_for(value: Any, source: object) -> object:
    try:
        asyncio.get_running_loop()
    except RuntimeError:

        async def awaited() -> object:
            found: object = await value
            return found

        return async_to_sync(awaited)()
    if asyncio.iscoroutine(value):
        value.close()
    raise InvalidOption(
        f'DUCTOR["TENANT_RESOLVERS"]: {_called(source)} is asynchronous and cannot be waited for inside an event loop: '
        "use `await task.aenqueue(...)` there."
    )


def _imported(setting: str, source: Any) -> Any:
    """The callable that a setting names. Its check (`queueapp.checks`) tells the same before a process works."""
    if not isinstance(source, str):
        return source
    try:
        return import_string(source)
    except ImportError as error:
        raise ImproperlyConfigured(
            f'DUCTOR["{setting}"] names {source!r}, which cannot be imported: {error}'
        ) from error


def _called(source: Any) -> str:
    """How a message names a callable."""
    if isinstance(source, str):
        return source
    qualname = getattr(source, "__qualname__", None)
    return f"{source.__module__}.{qualname}" if qualname else repr(source)
