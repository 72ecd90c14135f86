"""A host without `flows` in INSTALLED_APPS: the queue knows nothing of it, and misses nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import django

ROOT = Path(__file__).resolve().parents[2]
HOST = """
import importlib, pkgutil, sys
import django
from django.conf import settings
from django.core.management import call_command, load_command_class

settings.configure(
    INSTALLED_APPS=[
        "django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes", "django.contrib.messages",
        "django.contrib.sessions", "rest_framework", "drf_spectacular", *extra, "queueapp",
    ],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    TASKS={"default": {"BACKEND": "queueapp.backend.DuctorBackend"}},
    DUCTOR={"REDIS_URL": "redis://127.0.0.1:1/0"},
    ROOT_URLCONF="queueapp.api.urls",
    SECRET_KEY="for a test",
    USE_TZ=True,
)
django.setup()
"""
EVERYTHING = """
import queueapp
from queueapp import extensions

elsewhere = ("queueapp.bench.", "queueapp.testing.pytest_plugin")  # settings of its own processes, and pytest
for module in pkgutil.walk_packages(queueapp.__path__, "queueapp."):
    if not module.name.startswith(elsewhere):
        importlib.import_module(module.name)
print(sorted(name for name in sys.modules if name.partition(".")[0] == "flows"))
print(extensions.duties, extensions.verbs)
call_command("migrate", verbosity=0)
call_command("makemigrations", check=True, dry_run=True, verbosity=0)
print("start-flow" in load_command_class("queueapp", "ductor").create_parser("manage.py", "ductor").format_help())
"""


def host(code: str) -> str:
    """What such a project prints."""
    head = f"extra = {['django_tasks'] if django.VERSION < (6, 0) else []}\n"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", head + HOST + code],
        cwd=ROOT,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": ""},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_nothing_of_the_queue_imports_flows_and_no_duty_nor_verb_is_there() -> None:
    assert host(EVERYTHING).split("\n")[:3] == ["[]", "{} {}", "False"]
