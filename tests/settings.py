"""The settings of the tests: the example project's, deaf to the addresses that the environment names.

Tests run on servers and databases of their own; only DUCTOR_TEST_REDIS_URL and DUCTOR_TEST_DATABASE_URL name others.
DUCTOR_TEST_USE_TZ=0 runs them with naive moments.
"""

import os
import tempfile
from pathlib import Path

from queueapp.bench.ground import OURS

for _name, _for_tests in (("REDIS_URL", "DUCTOR_TEST_REDIS_URL"), ("DATABASE_URL", "DUCTOR_TEST_DATABASE_URL")):
    os.environ.pop(_name, None)
    if _given := os.environ.get(_for_tests):
        os.environ[_name] = _given
for _name in OURS - {"REDIS_URL", "DATABASE_URL"}:
    os.environ.pop(_name, None)

from ductor_project.settings import *  # noqa: E402, F403  (all, once the environment is that of tests)
from ductor_project.settings import DATABASES, INSTALLED_APPS  # noqa: E402, F401  (by name, for type checkers)

for _name in ("REDIS_URL", "DATABASE_URL"):
    os.environ.pop(_name, None)

SECRET_KEY = "for tests only"
USE_TZ = os.environ.get("DUCTOR_TEST_USE_TZ") != "0"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    # A file, not SQLite's shared memory: threads and child processes of a test use it as they would in earnest.
    DATABASES["default"]["TEST"] = {"NAME": str(Path(tempfile.gettempdir()) / f"ductor-test-{os.getpid()}.sqlite3")}
