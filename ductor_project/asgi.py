"""The ASGI entry point of the example project."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ductor_project.settings")

application = get_asgi_application()
