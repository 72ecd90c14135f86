"""Whose work it is: the current tenant, and what may stand for a tenant.

`with queueapp.tenant("acme")` names the tenant of every job that is enqueued inside, unless `.using(tenant=...)` names
another. A worker enters it around each body, so that nested jobs stay with their tenant. The current tenant is a
context variable: each thread and each asyncio task has its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from uuid import UUID

from django.db.models import Model

from queueapp.conf import settings
from queueapp.errors import InvalidOption
from queueapp.names import TENANT_FORM

_current: ContextVar[str | None] = ContextVar("queueapp.tenant", default=None)


@contextmanager
def tenant(value: object) -> Iterator[str]:
    """Every job enqueued inside belongs to this tenant: text, an integer, a UUID, or a model instance.

    Raises InvalidOption for what cannot be a tenant's id. Nested, the inner one holds.
    """
    name = tenant_id(value)
    token = _current.set(name)
    try:
        yield name
    finally:
        _current.reset(token)


def current_tenant() -> str | None:
    """The id of the tenant entered last, or None outside of every `tenant()`."""
    return _current.get()


def resolve_tenant(named: str | None) -> str:
    """The tenant of a job: the one named by the task, else the current one, else `TENANT_DEFAULT`."""
    return named or _current.get() or settings.tenant_default


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
