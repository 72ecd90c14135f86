"""The settings of the benchmarks' own processes: the queue alone, on what `ground.enter` named."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import django

from queueapp.bench import MARK, OWN

SECRET_KEY = "the benchmarks serve nobody"
DEBUG = False
USE_TZ = True

INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "queueapp"]
if django.VERSION < (6, 0) and importlib.util.find_spec("django_tasks"):
    INSTALLED_APPS.append("django_tasks")

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": Path(os.environ[MARK]) / "db.sqlite3",
        "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20, "init_command": "PRAGMA journal_mode=WAL"},
        "CONN_MAX_AGE": 60,
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

TASKS = {"default": {"BACKEND": "queueapp.backend.DuctorBackend"}}
DUCTOR: dict[str, Any] = {
    "REDIS_URL": os.environ["REDIS_URL"],
    "POOLS": {
        name: {} for name in ("bench", "bench-async", "bench-held", "bench-match", "bench-scripts", "bench-start")
    },
    **json.loads(os.environ.get(OWN, "{}")),
}
