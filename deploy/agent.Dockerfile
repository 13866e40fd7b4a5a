# The agent's image for Bedrock AgentCore, the alternative to the zip of deploy/agentcore.py: docs/image.md.
#   docker build --platform linux/arm64 --provenance=false -f deploy/agent.Dockerfile -t kokoro-agent .
# No torch and no Ray: the client of the speech server, the chunker, and the agent's own packages.

FROM python:3.12-slim-bookworm
ENV PYTHONUNBUFFERED=1 PYTHONPATH=/opt/agent
WORKDIR /opt/agent
COPY deploy/agent-requirements.txt deploy/
# Wheels alone, each by its hash. The secret, where one is given, is a pip.conf with another index.
RUN --mount=type=cache,target=/root/.cache/pip --mount=type=secret,id=pip,target=/etc/pip.conf \
    python -m pip install --disable-pip-version-check --root-user-action=ignore \
    --require-hashes --no-deps --only-binary=:all: -r deploy/agent-requirements.txt
COPY serve_app serve_app
COPY agent agent
EXPOSE 8080
ENTRYPOINT ["python", "-m", "agent", "--host", "0.0.0.0", "--port", "8080"]
