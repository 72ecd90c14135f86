"""The Django app of flows."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class FlowsConfig(AppConfig):
    """Puts into the queue what flows need of it. Starting the app touches neither the store nor the database."""

    name = "flows"
    label = "ductor_flows"
    verbose_name = _("Ductor flows")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from flows import checks  # noqa: F401  (importing it registers them)
        from flows.dispatch import WRAPPER
        from flows.erasure import RunsOf
        from flows.steps import StepWrapper
        from flows.sweep import Sweep
        from queueapp import extensions

        extensions.wrap(WRAPPER, StepWrapper())
        extensions.duties["flows"] = Sweep
        extensions.labels.add(self.label)
        extensions.owned["runs of flows"] = RunsOf
        extensions.verbs.update(
            {"flow": "flows.cli.flow", "flows": "flows.cli.listing", "start-flow": "flows.cli.start"}
        )
