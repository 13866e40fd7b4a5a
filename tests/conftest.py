"""All tests in two processes: running stacks in one, where much is waited for, and everything else in the other."""

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

FIRST = "running"
"""The folder that takes longest. Its tests share one stack and the ports of Ray's dashboard and HAProxy."""


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Chosen files are run in this process, where they start at once and can be debugged."""
    return 2 if config.args_source is pytest.Config.ArgsSource.TESTPATHS else 0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: folder_of(item.nodeid) != FIRST)


class ByFolder(LoadScopeScheduling):
    """A folder, whose tests share what is slow to start, stays in one process."""

    def _split_scope(self, nodeid: str) -> str:
        return folder_of(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFolder:
    return ByFolder(config, log)


def folder_of(nodeid: str) -> str:
    """`engine` of tests/engine/test_engine.py::test_name, `test_app.py` of tests/test_app.py::test_name."""
    return nodeid.partition("::")[0].split("/")[1]
