import ast
import re
import subprocess
import sys
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from deploy import runtime_artefact
from deploy.errors import DeployError
from deploy.runtime_artefact import REQUIREMENTS, ROOT, build_artefact, install_packages, sources


def install(into: Path) -> None:
    """What uv leaves behind, in small, with what differs from one machine to the next."""
    for name, content in {
        "six.py": "x = 1",
        "one-1.0.dist-info/RECORD": "bin/one,sha256=differs,1",
        "one-1.0.dist-info/METADATA": "Name: one",
        "one/__pycache__/a.cpython-312.pyc": "",
        "bin/one": "#!/of/this/machine",
        ".lock": "",
    }.items():
        path = into / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def names_in(zip_file: Path) -> set[str]:
    with zipfile.ZipFile(zip_file) as archive:
        return set(archive.namelist())


def test_the_zip_holds_the_agent_what_it_imports_its_packages_and_the_entry_point(tmp_path):
    held = names_in(build_artefact(tmp_path, install).path)
    assert {"main.py", "agent/__main__.py", "agent/tools.py", "serve_app/client/bidirectional.py", "six.py"} <= held
    assert "serve_app/__init__.py" in held
    assert {"one-1.0.dist-info/METADATA"} == {name for name in held if name.startswith(("one", "bin", "."))}


def test_neither_the_engine_nor_the_page_nor_a_deployment_goes_along(tmp_path):
    parts = {name.split("/")[1] for name in sources() if name.startswith("serve_app/") and name.count("/") > 1}
    assert not parts & {"engine", "deployments", "page", "audio"}


def test_what_the_zip_imports_is_in_it_or_in_its_requirements():
    pinned = {
        re.sub(r"[-_.]+", "-", name).lower() for name in re.findall(r"^([\w.-]+)==", REQUIREMENTS.read_text(), re.M)
    }
    distributions = packages_distributions()
    strangers = set()
    for name in sources():
        if not name.endswith(".py"):
            continue
        for node in ast.walk(ast.parse((ROOT / name).read_text())):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for module in {module.split(".")[0] for module in modules} - set(sys.stdlib_module_names):
                if module in ("agent", "serve_app"):
                    continue
                found = {re.sub(r"[-_.]+", "-", one).lower() for one in distributions.get(module, [module])}
                if not found & pinned:
                    strangers.add((name, module))
    assert not strangers


def test_the_same_inputs_give_the_same_bytes(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    second.mkdir()
    one, other = build_artefact(first, install), build_artefact(second, install)
    assert one.sha256 == other.sha256
    assert one.path.read_bytes() == other.path.read_bytes()
    assert one.size_bytes == one.path.stat().st_size


def test_the_zip_s_entry_point_starts_the_agent(tmp_path):
    """Its sources alone, with the packages of this environment: a wrong option ends it with the agent's own usage."""
    with zipfile.ZipFile(build_artefact(tmp_path, install).path) as archive:
        archive.extractall(tmp_path / "code")
    code = (
        "import runpy, sys; import agent.__main__ as it; it.main = lambda: print(sys.argv[1:]);"
        "runpy.run_path('main.py', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, '.'); {code}"],
        cwd=tmp_path / "code",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "['--host', '0.0.0.0', '--port', '8080']"


@pytest.mark.parametrize(("limit", "says"), [("MAX_ZIP_BYTES", "zipped"), ("MAX_UNPACKED_BYTES", "unpacked")])
def test_a_zip_that_agentcore_would_refuse_is_refused_here(tmp_path, monkeypatch, limit, says):
    monkeypatch.setattr(runtime_artefact, limit, 1000)
    with pytest.raises(DeployError, match=f"{says}.*--image"):
        build_artefact(tmp_path, install)


def test_without_uv_the_way_out_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DeployError, match="uv is not installed"):
        install_packages(tmp_path)


def test_a_failing_uv_is_quoted(tmp_path, monkeypatch):
    uv = tmp_path / "uv"
    uv.write_text("#!/bin/sh\necho no such package >&2\nexit 2\n")
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(DeployError, match="no such package"):
        install_packages(tmp_path / "into")
