"""What every page of ours in the admin shares: who may open it, how it asks the store, how it is drawn.

A page that is read from the store belongs to a model without a table (`Operations`, `Jobs`, `DeadLetters`), which gives
it a place in the admin's index. Each view is wrapped by `guarded`: the method first, then the permissions, whatever the
buttons of other pages show. No page waits for the store longer than it takes to learn that nobody answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseNotAllowed
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext

from queueapp import sync
from queueapp.conf import DEFAULT_POOL
from queueapp.errors import DuctorError, InvalidOption, StoreUnavailable
from queueapp.inspection.pools import declared_pools
from queueapp.models import Operations
from queueapp.permissions import VIEW_OPERATIONS, full

if TYPE_CHECKING:
    PagesBase = admin.ModelAdmin[Operations]
else:
    PagesBase = admin.ModelAdmin

T = TypeVar("T")
View = Callable[..., HttpResponseBase]

READ = ("GET", "HEAD")
POST = ("POST",)
FORM = ("GET", "HEAD", "POST")


def allowed(request: HttpRequest, *permissions: str) -> bool:
    """Whether the user has all of these permissions of ours."""
    return all(request.user.has_perm(full(name)) for name in permissions)


def guarded(
    owner: admin.ModelAdmin[Any],
    view: View,
    *,
    needs: Sequence[str] = (VIEW_OPERATIONS,),
    methods: Sequence[str] = READ,
) -> View:
    """`view` for staff with all of `needs`, by these methods only.

    Anybody else is sent to the login; staff meet 405 for a wrong method and 403 for a lacking right. It runs outside
    of the transaction of a request: what the store has done cannot be rolled back, so neither can its record.
    """

    def enter(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.method not in methods:
            return HttpResponseNotAllowed(methods)
        if not allowed(request, *needs):
            raise PermissionDenied
        request.current_app = owner.admin_site.name
        return view(request, *args, **kwargs)

    entered: View = owner.admin_site.admin_view(enter)
    for alias in connections:  # not what DUCTOR says: addresses are made before a faulty setting is reported
        entered = transaction.non_atomic_requests(alias)(entered)
    return entered


def draw(
    owner: admin.ModelAdmin[Any], request: HttpRequest, template: str, title: object, context: Mapping[str, object]
) -> HttpResponse:
    """The page `<app>/admin/<template>` of the owner's app inside the admin's frame."""
    return TemplateResponse(
        request,
        f"{owner.opts.app_label}/admin/{template}",
        {**owner.admin_site.each_context(request), "opts": owner.opts, "title": title, "media": owner.media, **context},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(Generic[T]):
    """What the store said, or why it said nothing."""

    value: T | None = None
    fault: str = ""


def ask(question: Callable[[], T]) -> Answer[T]:
    """The answer to `question`, once the store has shown within a second that it is there."""
    return _answer(lambda: (sync.seen_pools(), question())[1])


def _answer(question: Callable[[], T]) -> Answer[T]:
    try:
        return Answer(value=question())
    except DuctorError as error:
        return Answer(fault=str(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolChoice:
    """The pools that a page can be about, and the one that it is about."""

    names: Sequence[str]
    chosen: str
    fault: str
    """Why the store could not be asked for its pools; `names` are then those that settings and rows know."""

    def ask(self, question: Callable[[str], T]) -> Answer[T]:
        """What the store says to a question about the chosen pool. Who did not answer before is not asked again."""
        return Answer(fault=self.fault) if self.fault else _answer(lambda: question(self.chosen))


def choose_pool(request: HttpRequest) -> PoolChoice:
    """For a page that shows: by the parameter `pool`, else `default`, with a message where nobody knows the name."""
    asked, choice = request.GET.get("pool", ""), _pools()
    if not asked or asked in choice.names:
        return replace(choice, chosen=asked or DEFAULT_POOL)
    messages.warning(request, _no_pool(asked))
    return choice


def acting_pool(request: HttpRequest) -> str:
    """For a form that acts: the pool of its field `pool`, else `default`. Raises InvalidOption for one that nobody
    knows, and StoreUnavailable where the store does not answer.
    """
    asked, choice = request.POST.get("pool", "") or DEFAULT_POOL, _pools()
    if choice.fault:
        raise StoreUnavailable(choice.fault)
    if asked not in choice.names:
        raise InvalidOption(_no_pool(asked))
    return asked


def _pools() -> PoolChoice:
    seen = _answer(sync.seen_pools)
    names = sorted({*declared_pools(), *(seen.value or ())})
    return PoolChoice(names=names, chosen=DEFAULT_POOL, fault=seen.fault)


def _no_pool(name: str) -> str:
    return gettext("There is no pool “%(name)s”.") % {"name": name[:64]}


class Pages(PagesBase):
    """The admin's entry for pages that are read from the store. It has no form and no row."""

    def has_module_permission(self, request: HttpRequest) -> bool:
        return allowed(request, VIEW_OPERATIONS)

    def has_view_permission(self, request: HttpRequest, obj: Operations | None = None) -> bool:
        return allowed(request, VIEW_OPERATIONS)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Operations | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Operations | None = None) -> bool:
        return False

    def route(
        self,
        route: str,
        view: View,
        name: str,
        *,
        needs: Sequence[str] = (VIEW_OPERATIONS,),
        methods: Sequence[str] = READ,
    ) -> URLPattern:
        """One address of ours: `admin:queueapp_<model>_<name>`."""
        entered = guarded(self, view, needs=needs, methods=methods)
        return path(route, entered, name=f"queueapp_{self.opts.model_name}_{name}")
