"""`path("ductor/", include("queueapp.monitoring.urls"))` in a host's urls: metrics, healthz, readyz."""

from __future__ import annotations

from django.urls import path

from queueapp.monitoring import views

app_name = "ductor_monitoring"

urlpatterns = [
    path("metrics", views.metrics, name="metrics"),
    path("healthz", views.healthz, name="healthz"),
    path("readyz", views.readyz, name="readyz"),
]
