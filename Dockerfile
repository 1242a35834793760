# One image for all services and, for trying things, the fake GPU cloud: `docker run overspill overspill_sampler`.
# Works with a read-only root; writes nowhere but in its working folder (the recorder's ledger), which is a volume there.
# What is installed is pinned by hash. The base may be any image with Python 3.11 or newer, pip and venv.
ARG BASE_IMAGE=python:3.11-slim

FROM ${BASE_IMAGE} AS base
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PYTHONSAFEPATH=1 PATH=/opt/overspill/bin:$PATH

# Tools that build, in a place of their own; then every package that runs, as a wheel: nothing is fetched after this.
FROM base AS packages
# Where pip asks, when not where it asks by itself: a mirror, a certificate. Part of a build step's environment only.
ARG PIP_INDEX_URL
ARG PIP_CERT
COPY requirements.lock requirements-build.lock /build/
RUN python3 -m venv /build/tools \
 && /build/tools/bin/pip install --no-cache-dir --require-hashes -r /build/requirements-build.lock \
 && /build/tools/bin/pip wheel --no-cache-dir --require-hashes --no-build-isolation -r /build/requirements.lock --wheel-dir /build/wheels \
 && python3 -m venv --without-pip /opt/overspill \
 && /build/tools/bin/pip --python /opt/overspill/bin/python install --no-deps --no-index /build/wheels/*.whl

FROM packages AS build
COPY pyproject.toml README.md LICENSE /build/source/
COPY services /build/source/services
COPY libs /build/source/libs
RUN /build/tools/bin/pip wheel --no-deps --no-index --no-build-isolation /build/source --wheel-dir /build/own \
 && /build/tools/bin/pip --python /opt/overspill/bin/python install --no-deps --no-index /build/own/*.whl

# For Tilt: the sources where they are synchronised to, found by an editable install, all of it the running user's own.
FROM packages AS dev
WORKDIR /app
COPY --chown=10001:10001 pyproject.toml README.md LICENSE /app/
COPY --chown=10001:10001 services /app/services
COPY --chown=10001:10001 libs /app/libs
# An editable install is a wheel that points to /app; hatchling, which makes it, stays outside of what runs.
RUN mkdir /build/own \
 && /build/tools/bin/python -c "import hatchling.build as b; b.build_editable('/build/own')" \
 && /build/tools/bin/pip --python /opt/overspill/bin/python install --no-deps --no-index /build/own/*.whl \
 && mkdir -p /var/lib/overspill && chown 10001:10001 /app /var/lib/overspill
USER 10001:10001
WORKDIR /var/lib/overspill
ENTRYPOINT ["/opt/overspill/bin/python", "-m"]

# The last stage is what is built when none is asked for.
FROM base AS production
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="overspill" \
      org.opencontainers.image.description="Keeps GPU work at home while there is room, overflows it to external providers when there is none, and brings it home." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/overspill /opt/overspill
RUN mkdir -p /var/lib/overspill && chown 10001:10001 /var/lib/overspill
USER 10001:10001
WORKDIR /var/lib/overspill
ENTRYPOINT ["/opt/overspill/bin/python", "-m"]
