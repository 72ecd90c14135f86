"""For which tenants a request may speak."""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.utils.module_loading import import_string
from django.utils.translation import gettext_lazy as _

from queueapp.conf import settings
from queueapp.names import TENANT_FORM
from queueapp.permissions import VIEW_ALL_TENANTS, full

if TYPE_CHECKING:
    from django.contrib.auth.base_user import AbstractBaseUser


class Everyone(Enum):
    """The type of `ALL`; one value, so that no set of tenants can be mistaken for it."""

    ALL = "all"

    def __contains__(self, tenant: object) -> bool:
        return True


ALL: Final = Everyone.ALL
Tenants = frozenset[str] | Everyone
PERMISSION = full(VIEW_ALL_TENANTS)
CLOSED = _(
    'The API is closed: DUCTOR["API_TENANTS"] names no callable that says for which tenants a request may speak, and '
    "this user does not have the permission {permission}."
)


class Closed(Exception):
    """Nobody said for whom this request may speak."""


def tenants_of(request: HttpRequest) -> Tenants:
    """The tenants for which `request` may speak. Raises Closed, or whatever the host's callable raises."""
    source = settings.api_tenants
    if source is None:
        user = getattr(request, "user", None)
        if user is not None and user.has_perm(PERMISSION):
            return ALL
        raise Closed(CLOSED.format(permission=PERMISSION))
    answer: object = _callable(source)(request)
    if answer is ALL:
        return ALL
    # A bare text is a collection of its letters, and `in` would find parts of it: refused, not guessed. So is what is
    # no tenant's id: an empty one ("no tenant", to a careless host) would be no condition in a filter.
    if isinstance(answer, Collection) and not isinstance(answer, (str, bytes)) and all(_is_tenant(t) for t in answer):
        return frozenset(answer)
    raise ImproperlyConfigured(
        f'DUCTOR["API_TENANTS"] returned {answer!r} for a request. '
        "Return a set of tenant ids (text of up to 64 of A-Z, a-z, 0-9 and . _ : @ -), or queueapp.api.ALL."
    )


def signed_in(request: HttpRequest) -> AbstractBaseUser | None:
    """The user of Django's who asks; None for everybody else, also where the host has no users."""
    user = getattr(request, "user", None)
    return user if user is not None and user.is_authenticated else None


def _callable(source: str | Callable[..., Any]) -> Callable[..., Any]:
    found: Callable[..., Any] = import_string(source) if isinstance(source, str) else source
    if not callable(found):
        raise ImproperlyConfigured(f'DUCTOR["API_TENANTS"] is {source!r}, which is not a callable (request).')
    return found


def _is_tenant(tenant: object) -> bool:
    return isinstance(tenant, str) and TENANT_FORM.fullmatch(tenant) is not None
