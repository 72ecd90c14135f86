"""Stored definitions in the admin: which versions of a flow there are, and each as a graph. Nobody edits them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from flows import versions
from flows.admin.picture import kind_in_words, picture
from flows.admin.showing import list_url
from flows.definition import Definition, StepDefinition, from_json
from flows.errors import InvalidValue, UnknownFlow
from flows.models import FlowVersion
from flows.permissions import VIEW_VERSION, full
from flows.values import describe
from queueapp.admin.pages import draw, guarded
from queueapp.admin.showing import breakable, span

if TYPE_CHECKING:
    VersionBase = admin.ModelAdmin[FlowVersion]
else:
    VersionBase = admin.ModelAdmin


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFacts:
    """A step of a definition as a line of a table."""

    name: str
    kind: str
    target: str
    after: str
    options: str


@admin.register(FlowVersion)
class FlowVersionAdmin(VersionBase):
    """The newest first. Rows are made when a run first begins with a definition."""

    list_display = ("flow", "version", "created")
    search_fields = ("flow", "version__exact")
    search_help_text = _("A part of a flow's name, or a version.")
    ordering = ("-id",)
    sortable_by = ()
    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: FlowVersion | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: FlowVersion | None = None) -> bool:
        # Runs that began with it could not go on.
        return False

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        return lookup.partition("__")[0] in {"flow", "version"}

    def get_queryset(self, request: HttpRequest) -> QuerySet[FlowVersion]:
        return super().get_queryset(request).defer("definition")

    def get_urls(self) -> list[Any]:
        # Before Django's own of the same name, and in place of it.
        page: URLPattern = path(
            "<path:object_id>/change/",
            guarded(self, self.version_page, needs=(full(VIEW_VERSION),)),
            name="ductor_flows_flowversion_change",
        )
        return [page, *super().get_urls()]

    def version_page(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The steps of a definition, drawn and listed."""
        text = unquote(object_id)
        is_number = text.isascii() and text.isdigit() and len(text) < 19
        row = FlowVersion.objects.filter(pk=int(text)).first() if is_number else None
        if row is None:
            raise Http404(gettext("There is no stored definition of this number."))
        context: dict[str, Any] = {"row": row, "runs_url": list_url(request, flow=row.flow)}
        try:
            definition = from_json(row.definition)
        except InvalidValue as error:
            context["fault"] = str(error)
        else:
            context |= {
                "definition": definition,
                "is_current": _is_current(definition),
                "gone": sorted(versions.gone(definition)),
                "picture": picture(definition),
                "steps": [_facts(definition, definition.by_name[name]) for name in definition.order],
            }
        return draw(self, request, "version.html", str(row), context)


def _is_current(definition: Definition) -> bool:
    """Whether the code of this process declares it so today."""
    try:
        return versions.current(definition.name).definition.version == definition.version
    except UnknownFlow:
        return False


def _facts(definition: Definition, step: StepDefinition) -> StepFacts:
    options = [
        (gettext("when"), describe(step.when) if step.when is not None else ""),
        (gettext("seconds"), describe(step.seconds) if step.seconds is not None else ""),
        (gettext("timeout"), span(timedelta(milliseconds=step.timeout_ms)) if step.timeout_ms else ""),
        (gettext("retries"), "" if step.retries is None else str(step.retries)),
        (gettext("at once"), str(step.max_parallel or "")),
        (gettext("tenant"), step.tenant or ""),
        (gettext("pool"), step.pool or ""),
        (gettext("priority"), "" if step.priority is None else str(step.priority)),
        (gettext("cost"), "" if step.cost is None else f"{step.cost:g}"),
        (gettext("undone by"), step.undo),
    ]
    said = [f"{name}: {value}" for name, value in options if value]
    if step.may_fail:
        said.append(gettext("may fail"))
    return StepFacts(
        name=step.name,
        kind=kind_in_words(step),
        target=breakable(step.target),
        after=", ".join(definition.before[step.name]),
        options=" · ".join(said),
    )
