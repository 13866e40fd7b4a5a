"""The files that make the images, without building any: scripts/image_check.py does that."""

import ast
import json
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml

from scripts.renew_pins import IMAGES

ROOT = Path(__file__).resolve().parent.parent
SERVER, AGENT = ROOT / "Dockerfile", ROOT / "deploy" / "agent.Dockerfile"


def instructions(dockerfile):
    """(instruction, rest) pairs, continuation lines joined, comments left out."""
    lines = [line for line in dockerfile.read_text().splitlines() if line and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [tuple(line.split(maxsplit=1)) for line in joined.splitlines()]


def packages(requirements):
    return set(re.findall(r"^([a-z0-9.-]+)==", (ROOT / "deploy" / requirements).read_text(), re.MULTILINE))


def test_the_label_that_sagemaker_opens_web_sockets_by_is_set():
    assert ("LABEL", "com.amazonaws.sagemaker.capabilities.bidirectional-streaming=true") in instructions(SERVER)


@pytest.mark.parametrize("dockerfile", [SERVER, AGENT])
def test_the_entry_point_is_a_process_and_no_shell(dockerfile):
    found = dict(instructions(dockerfile))
    assert json.loads(found["ENTRYPOINT"])[:2] == ["python", "-m"]
    assert found["EXPOSE"] == "8080"
    assert "USER" not in found


@pytest.mark.parametrize("dockerfile", [SERVER, AGENT])
def test_packages_are_installed_by_hash_as_wheels_before_any_code_is_copied(dockerfile):
    steps = instructions(dockerfile)
    installs = [index for index, (step, rest) in enumerate(steps) if step == "RUN" and "pip install" in rest]
    for index in installs:
        assert {"--require-hashes", "--no-deps", "--only-binary=:all:"} <= set(steps[index][1].split())
    copied = [rest for step, rest in steps[: installs[0]] if step == "COPY"]
    assert [rest.split()[0].partition("/")[0] for rest in copied] == ["deploy"]
    assert all("requirements.txt" in rest for rest in copied)


def test_code_is_what_the_last_layers_hold():
    steps = instructions(SERVER)
    last_stage = steps[max(index for index, (step, _) in enumerate(steps) if step == "FROM") :]
    copied = [rest for step, rest in last_stage if step == "COPY"]
    assert [rest.split()[0] for rest in copied[:2]] == ["--from=weights", "--from=kernels"]
    assert copied[-1] == "serve_app serve_app"


def test_the_kernels_are_compiled_where_a_compiler_is_and_by_files_that_need_no_package():
    steps = instructions(SERVER)
    start = steps.index(("FROM", "python:3.12-bookworm AS kernels"))
    stage = steps[start : next(at for at in range(start + 1, len(steps)) if steps[at][0] == "FROM")]
    assert stage[-1] == ("RUN", "python -m serve_app.engine.cpu kernels")
    copied = {source for step, rest in stage if step == "COPY" for source in rest.split()[:-1]}
    seen: set[str] = set()
    assert imported("serve_app.engine.cpu.__main__", seen) == set()
    needed = {name.replace(".", "/") + ".py" for name in seen}
    assert needed <= copied
    assert {"serve_app/__init__.py", "serve_app/engine/__init__.py", "serve_app/engine/cpu/kernels.cpp"} <= copied
    debian = dict(reversed(steps))["FROM"].split()[0].rpartition("-")[2]
    assert stage[0][1].split()[0].endswith(f"-{debian}")  # one C library


def test_both_images_are_of_the_python_that_the_project_pins():
    version = (ROOT / ".python-version").read_text().strip()
    for dockerfile in (SERVER, AGENT):
        assert dict(reversed(instructions(dockerfile)))["FROM"].startswith(f"python:{version}-slim")


def test_every_path_that_is_copied_is_let_into_the_context():
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = [line.removeprefix("!") for line in ignored if line.startswith("!")]
    for dockerfile in (SERVER, AGENT):
        for step, rest in instructions(dockerfile):
            if step == "COPY" and not rest.startswith("--from"):
                for source in rest.split()[:-1]:
                    assert any(Path(source).match(pattern) or source.startswith(f"{pattern}/") for pattern in allowed)


@pytest.mark.parametrize("requirements", IMAGES)
def test_every_requirement_has_a_version_and_a_hash_and_names_no_registry(requirements):
    text = (ROOT / "deploy" / requirements).read_text()
    entries = re.split(r"\n(?=\S)", text.strip())
    assert all(re.match(r"[a-z0-9.-]+==\S+", entry) and "--hash=sha256:" in entry for entry in entries)
    assert "://" not in text


def test_the_servers_image_holds_torch_and_ray_and_nothing_of_the_deploy_tools():
    server = packages("requirements.txt")
    assert {"torch", "ray", "kokoro", "espeakng-loader"} <= server
    assert [name for name in server if "sagemaker" in name or name.startswith(("boto", "moto", "strands"))] == []
    assert not {"pytest", "ruff", "faster-whisper", "onnx"} & server


def test_torch_is_new_enough_for_the_drivers_of_the_endpoints_machines():
    (version,) = re.findall(r"^torch==(\d+)\.(\d+)", (ROOT / "deploy/requirements.txt").read_text(), re.MULTILINE)
    assert tuple(map(int, version)) >= (2, 10)
    assert {"nvidia-cublas", "nvidia-cudnn-cu13"} <= packages("requirements.txt")


def test_the_agents_image_holds_the_extra_of_the_agent_and_no_model():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    group = project["dependency-groups"]["agent-image"]
    assert set(project["project"]["optional-dependencies"]["agent"]) <= set(group)
    agent = packages("agent-requirements.txt")
    assert {"strands-agents", "bedrock-agentcore", "httpx", "websockets", "pydantic", "starlette", "uvicorn"} <= agent
    assert not {"torch", "ray", "numpy", "kokoro", "spacy"} & agent


def imported(module, seen):
    """Names of the packages that a module of the project imports, itself or through others of the project."""
    file = ROOT / (module.replace(".", "/") + ".py")
    if module in seen or not file.is_file():
        return set()
    seen.add(module)
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            top = name.partition(".")[0]
            found |= imported(name, seen) if top in ("agent", "serve_app") else {top}
    return found - sys.stdlib_module_names


def test_every_package_that_the_agent_imports_is_in_its_image():
    agent, seen = packages("agent-requirements.txt"), set()
    modules = [f"agent.{file.stem}" for file in (ROOT / "agent").glob("*.py")]
    providers = packages_distributions()
    for package in set().union(*(imported(module, seen) for module in modules)):
        names = {re.sub(r"[-_.]+", "-", name).lower() for name in providers[package]}
        assert names & agent, f"{package} is imported by one of {sorted(seen)}"


def test_the_configuration_in_the_image_listens_where_sagemaker_asks():
    config = yaml.safe_load((ROOT / "configs/sagemaker.yaml").read_text())
    assert config["http_options"] == {"host": "0.0.0.0", "port": 8080}
    assert len(config["applications"]) == 1
