"""The settings of `manage.py demo` and of its processes: the example project's, with two pools to compare.

Database and server are those that `ground.enter` named; mails go to the same private directory.
"""

from __future__ import annotations

import os
from pathlib import Path

import django

from ductor_project.settings import *  # noqa: F403  (all of them, with the changes below)
from ductor_project.settings import DATABASES, DUCTOR, STATE_DIR
from queueapp.bench import MARK

# Also imported by tools that look at every module, outside of a demonstration.
DIRECTORY = Path(os.environ.get(MARK) or STATE_DIR)
MAILS = str(DIRECTORY / "mails")
if django.VERSION >= (6, 1):
    MAILERS = {
        "default": {"BACKEND": "django.core.mail.backends.filebased.EmailBackend", "OPTIONS": {"file_path": MAILS}}
    }
else:
    EMAIL_FILE_PATH = MAILS

# A worker's thread keeps its connection from job to job.
DATABASES["default"]["CONN_MAX_AGE"] = 60

DUCTOR |= {
    "POOLS": {"imports-fifo": {"POLICY": "fifo"}, "imports-tiered": {"POLICY": "tiered"}},
    # How soon the jobs of a killed worker run again: its leases have to end first.
    "LEASE_SECONDS": 4,
}
