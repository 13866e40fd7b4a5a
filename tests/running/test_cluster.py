"""Two machines that are namespaces, a real Ray cluster on them, and one of them killed."""

import subprocess
import sys

import pytest

from scripts.check_cluster import CANNOT_ISOLATE
from scripts.running import ROOT
from tests.running.conversation import HANG_S


def test_a_machine_that_is_killed_takes_its_own_sessions_and_no_other_and_is_replaced():
    command = [sys.executable, "scripts/check_cluster.py", "--short"]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=5 * HANG_S)
    if checked.returncode == CANNOT_ISOLATE:
        pytest.skip(checked.stderr)
    assert checked.returncode == 0, checked.stdout + checked.stderr
