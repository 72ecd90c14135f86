"""The system checks of flows. Every id is stable; `tests/flows/test_checks.py` has one test for each.

They read settings and modules, never the store and never a table. `FlowsConfig.ready` imports this module.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Error, register

from flows.versions import load_flows

NAMES = {"flows", "flows.apps.FlowsConfig"}


@register("ductor_flows")
def check_flows_modules(**_: Any) -> list[CheckMessage]:
    """E001: a `flows` module that cannot be imported, because of a fault in a definition, for one."""
    return [
        Error(
            f"{broken.module} cannot be imported: {type(broken.error).__name__}: {broken.error}",
            hint=f"Correct the module of the app {broken.app!r}; none of its flows can be started by name.",
            id="ductor_flows.E001",
        )
        for broken in load_flows()
    ]


@register("ductor_flows")
def check_shared_app(**_: Any) -> list[CheckMessage]:
    """E002: with schemas per tenant (django-tenants) the tables of flows belong into the shared schema."""
    shared = getattr(django_settings, "SHARED_APPS", None)
    if shared is None or (NAMES & set(shared) and not NAMES & set(getattr(django_settings, "TENANT_APPS", ()))):
        return []
    return [
        Error(
            "flows must stand in SHARED_APPS and not in TENANT_APPS: runs of every schema are swept by one scheduler.",
            hint="Move it there, then run migrate_schemas --shared.",
            id="ductor_flows.E002",
        )
    ]
