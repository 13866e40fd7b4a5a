"""All tests in two processes: running stacks in one, where much is waited for, and everything else in the other."""

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
FIRST = "running"
"""The folder that takes longest. Its tests share one stack and the ports of Ray's dashboard and HAProxy."""


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Chosen files are run in this process, where they start at once and can be debugged."""
    return 2 if config.args_source is pytest.Config.ArgsSource.TESTPATHS else 0


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks for groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A folder, whose tests share what is slow to start, stays in one process."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_folder(item)))
    items.sort(key=lambda item: _folder(item) != FIRST)


def _folder(item: pytest.Item) -> str:
    return item.path.relative_to(TESTS).parts[0]
