"""Settings of the `manage.py` processes that tests start: the example project's, with what `TEST_DUCTOR` adds."""

import json
import os
from pathlib import Path

from ductor_project.settings import *  # noqa: F403  (all of them, with the changes below)
from ductor_project.settings import DUCTOR, INSTALLED_APPS

if "TEST_BASE_DIR" in os.environ:
    BASE_DIR = Path(os.environ["TEST_BASE_DIR"])
USE_TZ = os.environ.get("DUCTOR_TEST_USE_TZ") != "0"
INSTALLED_APPS = [*INSTALLED_APPS, *os.environ.get("TEST_APPS", "").split()]
DUCTOR = {**DUCTOR, **json.loads(os.environ.get("TEST_DUCTOR", "{}"))}
