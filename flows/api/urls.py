"""`path("api/ductor/", include("flows.api.urls"))`, under any prefix."""

from __future__ import annotations

from django.urls import path

from flows.api.actions import CancelView, ResumeView, RetryStepView
from flows.api.events import EventsView
from flows.api.runs import RunsView, RunView, StartView, StepsView
from flows.api.view import FlowsView
from queueapp.api.urls import never_atomic

app_name = "ductor_flows"

ROUTES: dict[str, tuple[str, type[FlowsView]]] = {
    "flow-runs": ("flows/<str:flow_name>/runs/", StartView),
    "runs": ("runs/", RunsView),
    "run": ("runs/<str:run_id>/", RunView),
    "run-steps": ("runs/<str:run_id>/steps/", StepsView),
    "run-events": ("runs/<str:run_id>/events/", EventsView),
    "run-cancel": ("runs/<str:run_id>/cancel/", CancelView),
    "run-resume": ("runs/<str:run_id>/resume/", ResumeView),
    "run-step-retry": ("runs/<str:run_id>/steps/<str:step_name>/retry/", RetryStepView),
}
"""Name → path and view."""

urlpatterns = [path(route, never_atomic(view), name=name) for name, (route, view) in ROUTES.items()]
