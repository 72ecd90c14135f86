"""What every view of runs has in common: which runs there are for whoever asks, and what becomes of the errors."""

from __future__ import annotations

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from rest_framework import status
from rest_framework.response import Response

from flows import declaring, models, versions
from flows.declaring import Flow
from flows.definition import Definition
from flows.errors import InvalidValue, RunBusy, UnknownFlow, UnknownRun
from queueapp.api import faults
from queueapp.api.faults import Refused
from queueapp.api.requests import ID_FORM
from queueapp.api.view import DuctorView

RUN_ID = {"run_id": gettext_lazy("Id of the run.")}
BUSY_S = 1
"""When to ask again about a run that others changed each time."""


class FlowsView(DuctorView):
    """See `DuctorView`; for runs of flows of the API."""

    own_parts = frozenset({"flow_name", "run_id", "step_name"})

    def run(self, run_id: str) -> models.Run:
        """The run of this id. 404 for every other: unknown, another tenant's, or of a flow that is not for the API."""
        # PostgreSQL cannot even be asked for some of the texts that are no ids.
        found = models.Run.objects.filter(pk=run_id).first() if ID_FORM.fullmatch(run_id) else None
        if found is None or not self.may_see_run(found):
            raise faults.not_found()
        return found

    def may_see_run(self, run: models.Run) -> bool:
        """Whether a run may be told: of one's own tenant, and not of a flow that is not for the API."""
        return run.tenant in self.tenants and is_told(run.flow)

    def run_url(self, run_id: str) -> str:
        """The address of the run."""
        return self.url("run", run_id=run_id)

    def handle_exception(self, exc: Exception) -> Response:
        match exc:
            case UnknownRun():
                # Retention removed it between two looks.
                return super().handle_exception(faults.not_found())
            case RunBusy():
                text = _("The run was changed by others at the same time. Nothing was changed; ask again.")
                return super().handle_exception(
                    Refused(status.HTTP_503_SERVICE_UNAVAILABLE, exc.code, text, wait=BUSY_S)
                )
        return super().handle_exception(exc)


def is_told(name: str) -> bool:
    """Whether runs of this flow are told: those of the API, and of a flow that is gone, which may have been one."""
    flow = declared(name)
    return flow is None or flow.api


def declared(name: str) -> Flow[...] | None:
    """The flow of this name that the project declares. Imports nothing but the apps' `tasks` and `flows` modules."""
    try:
        return versions.current(name)
    except UnknownFlow:
        return None


def hidden() -> list[str]:
    """The flows that are not for the API."""
    versions.load_flows()
    return [name for name, flow in declaring.registry.items() if not flow.api]


def definition_of(run: models.Run) -> Definition | None:
    """The one that it began with; None where it is not stored any more, or by a later release."""
    try:
        return versions.definition_of(run.flow, run.definition)
    except (UnknownFlow, InvalidValue):
        return None
