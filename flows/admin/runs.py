"""Runs in the admin: the list, a page for each, and the addresses of what people do to them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.admin.utils import quote, unquote
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext as _

from flows import models
from flows.admin import acting, showing
from flows.admin.picture import picture
from flows.admin.steps import ITEMS_SHOWN, Looker, failed_items, step_lines, step_rows
from flows.contents import shown_input, shown_output
from flows.permissions import RETRY_STEP, VIEW_RUN, VIEW_VERSION, full
from queueapp.admin.choosing import PAGE_SIZES, address, page_size, word
from queueapp.admin.pages import POST, READ, View, allowed, draw, guarded
from queueapp.admin.showing import pretty
from queueapp.moments import now_ms
from queueapp.permissions import VIEW_OPERATIONS, VIEW_PAYLOAD

if TYPE_CHECKING:
    RunBase = admin.ModelAdmin[models.Run]
else:
    RunBase = admin.ModelAdmin

FLOWS_LISTED = 200
FILTERS = ("state", "flow", "tenant", "parent")


@admin.register(models.Run)
class RunAdmin(RunBase):
    """Read only, but for what the buttons of a run's page do. Nothing is counted: pages are turned by the last row."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: models.Run | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: models.Run | None = None) -> bool:
        # A worker may be at one of its steps. Retention removes runs that have ended.
        return False

    def get_urls(self) -> list[URLPattern]:
        return [
            self._route("", self.list_page, "changelist"),
            self._route("<str:run_id>/", self.run_page, "change"),
            self._route("<str:object_id>/history/", self.history_view, "history"),
            *(
                self._route(
                    f"<str:run_id>/{verb.name}/", partial(self.act, verb=verb), verb.name, full(verb.needs), POST
                )
                for verb in acting.VERBS
            ),
        ]

    def _route(self, route: str, view: View, name: str, needs: str = "", methods: tuple[str, ...] = READ) -> URLPattern:
        needed = (full(VIEW_RUN), *([needs] if needs else ()))
        return path(route, guarded(self, view, needs=needed, methods=methods), name=f"ductor_flows_run_{name}")

    # -- the list --------------------------------------------------------------------------------------------------

    def list_page(self, request: HttpRequest) -> HttpResponse:
        """The newest first. With the id of a run in the search field, its page; with a key, the runs that have it."""
        sought = word(request.GET, "q")
        if sought and models.Run.objects.filter(pk=sought).exists():
            return HttpResponseRedirect(showing.run_url(request, sought))
        chosen = {name: word(request.GET, name) for name in FILTERS}
        if chosen["state"] and chosen["state"] not in models.Run.State.values:
            messages.warning(request, _("There is no state “%(state)s”.") % {"state": chosen["state"][:60]})
            chosen["state"] = ""
        per, cursor, now = page_size(request.GET), word(request.GET, "cursor"), now_ms()
        rows = list(_after(_matching(chosen, sought), cursor)[: per + 1])
        shown, parameters = rows[:per], {**chosen, "q": sought, "per": str(per)}
        last = f"{shown[-1].started_ms},{shown[-1].id}" if len(rows) > per else ""
        context = {
            "chosen": chosen,
            "sought": sought,
            "per": per,
            "sizes": PAGE_SIZES,
            "states": models.Run.State.choices,
            "flows": _flows(chosen["flow"]),
            "rows": [showing.run_line(request, run, now) for run in shown],
            "first_page": address("", parameters) if cursor else "",
            "next": address("", {**parameters, "cursor": last}) if last else "",
        }
        return draw(self, request, "runs.html", _("Runs"), context)

    # -- one run ---------------------------------------------------------------------------------------------------

    def run_page(self, request: HttpRequest, run_id: str) -> HttpResponse:
        """What is known of a run; input, output and texts of errors for those who may see contents."""
        public_id = unquote(run_id).replace("\0", "")
        contents = allowed(request, VIEW_PAYLOAD)
        found = models.Run.objects.filter(pk=public_id)
        run = (found if contents else found.defer("input", "output")).first()
        if run is None:
            response = draw(self, request, "run.html", public_id, {"id": public_id, "run": None})
            response.status_code = 404
            return response
        definition, fault = showing.stored_definition(run)
        looker = Looker(
            request=request,
            contents=contents,
            jobs=allowed(request, VIEW_OPERATIONS),
            retries=allowed(request, full(RETRY_STEP)),
        )
        now, rows = now_ms(), step_rows(run)
        lines = [*step_lines(run, definition, rows, looker, now)]
        items = failed_items(run, definition, rows, looker)
        subs, more_subs = showing.sub_runs(request, run, now)
        events, more_events = showing.events(run, contents=contents)
        context: dict[str, Any] = {
            "id": run.id,
            "run": run,
            "fault": fault,
            "facts": showing.facts(run, now),
            "flow_url": showing.list_url(request, flow=run.flow),
            "version_url": showing.version_url(request, run.flow, run.definition)
            if allowed(request, full(VIEW_VERSION))
            else "",
            "parent_url": showing.run_url(request, run.parent_run) if run.parent_run else "",
            "picture": picture(definition, lines) if definition is not None else None,
            "lines": [(line, showing.run_url(request, line.sub_run) if line.sub_run else "") for line in lines],
            "items": items[:ITEMS_SHOWN],
            "more_items": len(items) > ITEMS_SHOWN,
            "subs": subs,
            "subs_url": showing.list_url(request, parent=run.id) if more_subs else "",
            "events": events,
            "more_events": more_events,
            "contents": contents,
            "verbs": [
                (verb, self._url(verb.name, run.id))
                for verb in acting.VERBS
                if verb.fits(run, definition) and allowed(request, full(verb.needs))
            ],
            "retry_url": self._url(acting.RETRY.name, run.id),
            "history_url": self._url("history", run.id),
        }
        if contents and definition is not None:
            context["input"] = pretty(shown_input(run, definition))
            if run.state == models.Run.State.COMPLETED:
                context["output"] = pretty(shown_output(run, definition))
        return draw(self, request, "run.html", f"{run.flow} {run.id}", context)

    def act(self, request: HttpRequest, run_id: str, verb: acting.Verb) -> HttpResponse:
        """One of the buttons: a page that asks, then the act."""
        return acting.confirm_or_act(self, request, verb, unquote(run_id).replace("\0", ""))

    def _url(self, name: str, run_id: str) -> str:
        return reverse(f"admin:ductor_flows_run_{name}", args=[quote(run_id)], current_app=self.admin_site.name)


def _matching(chosen: dict[str, str], key: str) -> QuerySet[models.Run]:
    """The runs of these filters, without their contents, the newest first."""
    found = models.Run.objects.defer("input", "output").order_by("-started_ms", "-id")
    columns = {"state": "state", "flow": "flow", "tenant": "tenant", "parent": "parent_run"}
    found = found.filter(**{columns[name]: value for name, value in chosen.items() if value})
    return found.filter(key=key) if key else found


def _after(found: QuerySet[models.Run], cursor: str) -> QuerySet[models.Run]:
    """What follows the run at which the page before ended; all of it for what is no cursor."""
    moment, _comma, run_id = cursor.partition(",")
    if not (moment.isascii() and moment.isdigit() and len(moment) < 19):
        return found
    at_ms = int(moment)
    return found.filter(Q(started_ms__lt=at_ms) | Q(started_ms=at_ms, id__lt=run_id), started_ms__lte=at_ms)


def _flows(chosen: str) -> list[str]:
    """The flows that have had runs, and the one that is asked for."""
    stored = models.FlowVersion.objects.order_by("flow").values_list("flow", flat=True).distinct()
    return sorted({*stored[:FLOWS_LISTED], *([chosen] if chosen else ())})
