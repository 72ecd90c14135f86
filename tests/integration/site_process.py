"""A web process of a site, for tests: `python -m tests.integration.site_process`. Each line that comes is a request.

`metrics` answers with the page as a user with every permission gets it; `fail` refuses a job after its commit.
The answer is one line of JSON.
"""

from __future__ import annotations

import json
import sys

import django

django.setup()

from django.contrib.auth.models import User  # noqa: E402  (Django is set up first)
from django.test import RequestFactory  # noqa: E402  (Django is set up first)

from queueapp import metrics  # noqa: E402  (Django is set up first)
from queueapp.monitoring import views  # noqa: E402  (Django is set up first)

for line in sys.stdin:
    if line.strip() == "fail":
        metrics.enqueue_failed("default", "conflict")
        answer = ""
    else:
        request = RequestFactory().get("/ductor/metrics")
        request.user = User(is_active=True, is_superuser=True)
        answer = views.metrics(request).content.decode()
    print(json.dumps(answer), flush=True)
