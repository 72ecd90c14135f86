"""The addresses of the example project."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("api/ductor/", include("queueapp.api.urls")),
    path("", include("ductor_project.demo.urls")),
]
