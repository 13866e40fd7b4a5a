"""What the documents tell a reader to type, typed: Python blocks and curl lines, against the running product."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = ("README.md", "docs/api.md")


def blocks(language):
    for document in DOCUMENTS:
        text = (ROOT / document).read_text()
        for number, block in enumerate(re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)):
            yield pytest.param(block, id=f"{document}-{number}")


def curl_lines():
    for parameter in blocks("sh"):
        for number, line in enumerate(re.findall(r"^curl .*", parameter.values[0], re.MULTILINE)):
            yield pytest.param(line, id=f"{parameter.id}-{number}")


@pytest.mark.parametrize("snippet", blocks("python"))
def test_python_of_the_documents_runs(stack, tmp_path, snippet):
    code = snippet.replace("127.0.0.1:8000", f"127.0.0.1:{stack.port}")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    for written in tmp_path.iterdir():
        assert written.stat().st_size > 5000


@pytest.mark.parametrize("line", curl_lines())
def test_curl_lines_of_the_documents_are_answered(stack, tmp_path, line):
    command = line.replace("127.0.0.1:8000", f"127.0.0.1:{stack.port}").replace("curl ", "curl --fail ", 1)
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout or all(file.stat().st_size > 5000 for file in tmp_path.iterdir())
