"""The addresses of the example project."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path
from drf_spectacular.views import SpectacularJSONAPIView

urlpatterns = [
    path("admin/", admin.site.urls),
    path("api/ductor/", include("queueapp.api.urls")),
    path("api/ductor/", include("flows.api.urls")),
    path("api/schema.json", SpectacularJSONAPIView.as_view(), name="api-schema"),
    path("ductor/", include("queueapp.monitoring.urls")),
    path("", include("ductor_project.demo.urls")),
]
