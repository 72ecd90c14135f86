# The example project with Ductor, for every role: web, scheduler, worker (docker-compose.yml names the commands).
# Two stages: the first has what installing needs, the second only what runs, as a user who owns nothing but its state.

FROM python:3.13-slim AS build
WORKDIR /build
RUN python -m venv /venv
COPY tools/image-requirements.txt ./
RUN /venv/bin/pip install --no-cache-dir -r image-requirements.txt
COPY pyproject.toml README.md ./
COPY queueapp queueapp
COPY flows flows
# What it needs is installed above, by exact versions: a version that does not fit is found here and not at night.
RUN /venv/bin/pip install --no-cache-dir --no-deps . && /venv/bin/pip check

FROM python:3.13-slim
ENV PATH=/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    DEBUG=0 \
    STATE_DIR=/var/lib/ductor \
    STATIC_ROOT=/srv/static
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/ductor --shell /usr/sbin/nologin ductor
WORKDIR /srv/ductor
COPY --from=build /venv /venv
COPY manage.py ./
COPY ductor_project ductor_project
COPY templates templates
COPY static static
# The key signs nothing here and stays in no layer's environment.
RUN SECRET_KEY=only-while-building REDIS_URL=redis://nowhere python manage.py collectstatic --noinput
USER ductor
EXPOSE 8000 9100 9101
# Exec form: the process itself gets SIGTERM, not a shell.
CMD ["gunicorn", "ductor_project.wsgi:application", "--bind", "0.0.0.0:8000", "--worker-class", "gthread", "--threads", "4", "--worker-tmp-dir", "/dev/shm", "--no-control-socket", "--access-logfile", "-"]
