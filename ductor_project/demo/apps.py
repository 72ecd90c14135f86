"""The Django app of the demonstration."""

from __future__ import annotations

from django.apps import AppConfig


class DemoConfig(AppConfig):
    """Installs the demonstration's models, views and signals."""

    name = "ductor_project.demo"
    label = "demo"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from ductor_project.demo import signals

        signals.connect()
