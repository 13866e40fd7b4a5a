"""The options by which every command of deploy/ says what it is about, and the settings and session behind them.

Nothing heavy is imported until a command runs: `--help` answers at once.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deploy.aws.session import Aws
    from deploy.settings import Settings

DEFAULT_FILE = Path(__file__).resolve().parent.parent / "configs" / "deploy.yaml"


def add_setting_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", type=Path, default=DEFAULT_FILE, metavar="FILE", help="settings; default: configs/deploy.yaml"
    )
    parser.add_argument("--name", help="of the deployment and its endpoint")
    parser.add_argument("--region", help="such as us-east-1; must stand here or in the file")
    parser.add_argument("--profile", help="of the AWS configuration; default: the usual chain of credentials")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="overrides",
        metavar="NAME=VALUE",
        help="one setting, such as autoscaling.max_instances=4; may be repeated",
    )


def settings_from(arguments: argparse.Namespace) -> "Settings":
    """Raises SettingsError."""
    from deploy.settings import load_settings

    return load_settings(
        arguments.config,
        arguments.overrides,
        name=arguments.name,
        region=arguments.region,
        profile=arguments.profile,
    )


def session_for(settings: "Settings", pause: Callable[[float], None] = time.sleep) -> "Aws":
    """Raises DeployError: no credentials, or no way to AWS."""
    from deploy.aws.session import open_session

    return open_session(settings.region, settings.profile, settings.name, pause)
