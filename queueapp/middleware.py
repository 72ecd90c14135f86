"""`TenantMiddleware` and ready-made resolvers: the tenant of a request is that of every job enqueued in it.

```python
from queueapp.middleware import from_attribute, from_header

MIDDLEWARE = [..., "queueapp.middleware.TenantMiddleware"]
DUCTOR = {"TENANT_RESOLVERS": [from_attribute("user.company_id"), from_header("X-Tenant"), "shop.tenants.from_request"]}
```

A resolver is any callable `request -> tenant or None`, `async def` or not. They are asked in turn, and the first answer
that is not None holds. They are asked when a request first enqueues something without naming a tenant, never before: a
page that enqueues nothing does not touch session or user for it. So a faulty resolver shows at that enqueue, as an
error that names it.

The tenant holds until the middleware returns. What a StreamingHttpResponse yields later runs outside of it: name the
tenant there, by `.using(tenant=...)` or `with queueapp.tenant(...)` inside the generator.

Settings files import this module, so it imports nothing of Django's or ours that needs them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponseBase

    Resolver = Callable[[HttpRequest], object]

__all__ = ["TenantMiddleware", "from_attribute", "from_header", "from_subdomain"]


class TenantMiddleware:
    """The current tenant of a request is what `TENANT_RESOLVERS` find. For synchronous and asynchronous projects."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self._get_response = get_response
        self._asynchronous = iscoroutinefunction(get_response)
        if self._asynchronous:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        from queueapp.producer.tenancy import of_request

        if self._asynchronous:
            return self._acall(request)
        with of_request(request):
            response: HttpResponseBase = self._get_response(request)
            return response

    async def _acall(self, request: HttpRequest) -> HttpResponseBase:
        from queueapp.producer.tenancy import of_request

        with of_request(request):
            response: HttpResponseBase = await self._get_response(request)
            return response


def from_attribute(path: str) -> Resolver:
    """What stands at a dotted path on the request, such as `user.company_id`, `user.company` or `tenant.schema_name`.

    `tenant.schema_name` suits django-tenants, whose middleware sets `request.tenant`; for a model instance its
    `ductor_tenant` or its primary key is taken. None where a part of the path is missing, as for an anonymous user.
    """
    return _Attribute(path)


def from_header(name: str) -> Resolver:
    """What a header says, such as `X-Tenant`. None without it.

    A header is the client's word: use it only behind a proxy or a login that sets it, and drops what came from outside.
    """
    return _Header(name)


def from_subdomain(domain: str, *, ignore: Collection[str] = ("www",)) -> Resolver:
    """What stands before the domain: `acme` for acme.example.com under `example.com`. None for other hosts.

    `ignore` names those that are no tenants. The host is `request.get_host()`, so ALLOWED_HOSTS holds.
    """
    return _Subdomain(domain.lower().strip("."), frozenset(ignore))


# Classes, not closures: their repr says in a message which resolver it was.


@dataclass(frozen=True, slots=True)
class _Attribute:
    path: str

    def __call__(self, request: HttpRequest) -> object:
        found: object = request
        for name in self.path.split("."):
            found = getattr(found, name, None)
            if found is None:
                return None
        return found

    def __repr__(self) -> str:
        return f"from_attribute({self.path!r})"


@dataclass(frozen=True, slots=True)
class _Header:
    name: str

    def __call__(self, request: HttpRequest) -> object:
        return request.headers.get(self.name) or None

    def __repr__(self) -> str:
        return f"from_header({self.name!r})"


@dataclass(frozen=True, slots=True)
class _Subdomain:
    domain: str
    ignore: frozenset[str]

    def __call__(self, request: HttpRequest) -> object:
        host = request.get_host().partition(":")[0].lower().rstrip(".")
        name = host.removesuffix(f".{self.domain}")
        return None if name == host or name in self.ignore else name

    def __repr__(self) -> str:
        return f"from_subdomain({self.domain!r})"
