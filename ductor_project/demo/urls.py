"""The addresses of the demonstration."""

from __future__ import annotations

from django.urls import path, re_path

from ductor_project.demo import views

TENANT = r"^tenants/(?P<tenant>[a-z0-9][a-z0-9-]{0,62})/uploads/"

app_name = "demo"
urlpatterns = [
    path("", views.start, name="start"),
    re_path(TENANT + r"$", views.uploads, name="uploads"),
    re_path(TENANT + r"(?P<pk>\d{1,18})/$", views.upload, name="upload"),
    re_path(TENANT + r"(?P<pk>\d{1,18})/summary/$", views.summary, name="summary"),
]
