"""Pools in the admin: what they may do, their names, and what keeps one from being deleted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.db import transaction
from django.db.models import ProtectedError, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from queueapp import sync
from queueapp.admin.pages import FORM, allowed, draw, guarded
from queueapp.admin.records import record
from queueapp.admin.widgets import NARROW_NUMBERS
from queueapp.conf import known_pools, settings
from queueapp.errors import DuctorError
from queueapp.models import Pool
from queueapp.permissions import VIEW_OPERATIONS

if TYPE_CHECKING:
    PoolBase = admin.ModelAdmin[Pool]
else:
    PoolBase = admin.ModelAdmin


class RenameForm(forms.Form):
    """The new name; refused names show why beside the field."""

    name = forms.CharField(
        label=_("New name"),
        max_length=64,
        widget=forms.TextInput(attrs={"class": "vTextField", "autofocus": True, "autocomplete": "off"}),
    )

    def __init__(self, pool: Pool, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._pool = pool

    def clean_name(self) -> str:
        """Renames: only the store and the table can say whether the name is free; what they refuse is shown here."""
        name: str = self.cleaned_data["name"]
        try:
            sync.rename(self._pool, name)
        except DuctorError as error:
            raise forms.ValidationError(
                gettext("The pool keeps its name: the store must know the new one first. %(reason)s")
                % {"reason": str(error)}
            ) from error
        return name


@admin.register(Pool)
class PoolAdmin(PoolBase):
    """A pool is renamed on a page of its own; one that holds jobs cannot be deleted."""

    list_display = ("name", "policy_shown", "max_in_flight", "paused", "code", "updated")
    list_editable = ("max_in_flight", "paused")
    list_filter = ("policy", "dispatch", "paused")
    search_fields = ("name", "code")
    formfield_overrides: ClassVar = NARROW_NUMBERS
    readonly_fields = ("code", "created", "updated")
    fieldsets = (
        (None, {"fields": ("name", "policy", "max_in_flight", "paused")}),
        (
            _("Waiting jobs"),
            {
                "fields": ("backlog_limit", "continue_weight"),
                "description": _("How many may wait, and which of the parked ones go on first."),
            },
        ),
        (
            _("Dispatch"),
            {
                "fields": ("dispatch", "dispatch_window"),
                "description": _(
                    "drr, lottery and policies of your own are Python, and need scheduled dispatch; the others can "
                    "have either."
                ),
            },
        ),
        (
            _("Parameters of policies"),
            {
                "fields": ("edf_by", "aging_step_seconds"),
                "description": _("Each is for one policy; with every other it is kept and ignored."),
            },
        ),
        (
            _("Weights and costs"),
            {
                "fields": ("default_weight", "cost_unit", "default_cost"),
                "description": _("What holds for tenants and tasks of which nothing else is known."),
            },
        ),
        (_("Record"), {"fields": ("code", "created", "updated")}),
    )

    @admin.display(description=_("policy"), ordering="policy")
    def policy_shown(self, pool: Pool) -> str:
        """With its parameter, in a few letters; the form's choices say what each does."""
        scheduled = pool.dispatch == Pool.Dispatch.SCHEDULED
        return gettext("%(policy)s, scheduled") % {"policy": pool.rule} if scheduled else pool.rule

    def get_readonly_fields(self, request: HttpRequest, obj: Pool | None = None) -> tuple[str, ...]:
        return self.readonly_fields if obj is None else ("name", *self.readonly_fields)

    def get_fieldsets(self, request: HttpRequest, obj: Pool | None = None) -> Any:
        # A pool to be has no record yet.
        return self.fieldsets[:-1] if obj is None else self.fieldsets

    def get_urls(self) -> list[Any]:
        rename: URLPattern = path(
            "<int:pk>/rename/",
            guarded(self, self.rename_page, needs=("change_pool",), methods=FORM),
            name="queueapp_pool_rename",
        )
        return [rename, *super().get_urls()]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        context = {**(extra_context or {}), "may_look": allowed(request, VIEW_OPERATIONS)}
        return super().change_view(request, object_id, form_url, context)

    def rename_page(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Says what a new name means, takes it, and leads back to the pool."""
        pool = Pool.objects.filter(pk=pk).first()
        if pool is None:
            raise Http404(gettext("There is no pool with this number."))
        before = pool.name
        change_url = reverse("admin:queueapp_pool_change", args=[pk], current_app=self.admin_site.name)
        form = RenameForm(pool, request.POST if request.method == "POST" else None)
        if form.is_valid():
            what = f"renamed from {before} to {pool.name}"
            record(request, Pool, pool.name, what, object_id=str(pk))
            messages.success(
                request, gettext("The pool “%(before)s” is now “%(name)s”.") % {"before": before, "name": pool.name}
            )
            return HttpResponseRedirect(change_url)
        context = {"form": form, "before": before, "fixed": before in known_pools(), "change_url": change_url}
        return draw(self, request, "rename.html", gettext("Rename the pool %(pool)s") % {"pool": before}, context)

    def get_deleted_objects(
        self, objs: QuerySet[Pool] | Iterable[Pool], request: HttpRequest
    ) -> tuple[list[Any], dict[Any, Any], set[Any], list[Any]]:
        """Both ways to delete come through here. What is protected is listed on the page and is not deleted."""
        pools = list(objs)
        found, counts, lacking, protected = super().get_deleted_objects(pools, request)
        for kept in _kept(pools):
            messages.error(request, kept.remedy)
            protected.append(kept.jobs)
        return found, counts, lacking, protected

    def delete_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> Any:
        return self._deleting(request, lambda: PoolBase.delete_view(self, request, object_id, extra_context))

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        view = PoolBase.changelist_view
        if request.POST.get("action") == "delete_selected":
            return self._deleting(request, lambda: view(self, request, extra_context))
        return view(self, request, extra_context)

    def _deleting(self, request: HttpRequest, view: Any) -> Any:
        """`view`, taken back when a job came between the question and the deletion."""
        try:
            with transaction.atomic(), transaction.atomic(using=settings.database):
                return view()
        except ProtectedError as error:
            messages.error(request, str(error.args[0]))
            return HttpResponseRedirect(reverse("admin:queueapp_pool_changelist", current_app=self.admin_site.name))


def _kept(pools: Iterable[Pool]) -> Iterator[sync.Kept]:
    for pool in pools:
        kept = sync.kept(pool)
        if kept is not None:
            yield kept
            if kept.away:
                # With the store away every further question would take its second as well.
                return
