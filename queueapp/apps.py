"""The Django app of the queue."""

from __future__ import annotations

from django.apps import AppConfig, apps
from django.utils.translation import gettext_lazy as _


class QueueAppConfig(AppConfig):
    """Installs the models, the admin and the checks. Starting the app touches neither the store nor the database."""

    name = "queueapp"
    label = "queueapp"
    verbose_name = _("Ductor")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from queueapp import checks, database_checks, schedules, sync  # noqa: F401  (importing `checks` registers them)

        sync.connect()
        schedules.connect()
        if apps.is_installed("django_prometheus"):
            from queueapp.inspection.collector import STORE
            from queueapp.monitoring.page import register

            register(STORE)  # so that its page shows how the pools stand; asked only when it is looked at
