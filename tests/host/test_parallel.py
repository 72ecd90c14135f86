"""`manage.py test --parallel`: its processes end without `atexit`, and leave no server behind all the same."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.packaging.steps import ROOT

SCRIPT = """
import multiprocessing

import django

django.setup()
from queueapp.testing.server import server_url


def ask(_):
    return server_url()


if __name__ == "__main__":
    pool = multiprocessing.get_context("fork").Pool(1)
    print(pool.map(ask, [1])[0])
    pool.close()
    pool.join()
"""


@pytest.mark.compat  # from Python 3.13 on a forked child runs atexit
@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_the_server_of_a_child_ends_with_it() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "DUCTOR_TEST_REDIS_URL"}
    environment |= {"DJANGO_SETTINGS_MODULE": "tests.settings", "PYTHONPATH": str(ROOT)}

    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=60, cwd=ROOT
    )

    assert done.returncode == 0, done.stderr
    socket = done.stdout.strip().removeprefix("unix://").partition("?")[0]
    assert socket.endswith(".sock")
    assert not os.path.exists(os.path.dirname(socket)), "the directory of a server that still runs"
