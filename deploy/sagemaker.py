"""Put the speech server on a SageMaker endpoint: plan | deploy | status | check | update | destroy.

    python deploy/sagemaker.py deploy --region us-east-1

docs/deploy.md says what is made, what it costs and how to undo it. Progress goes to stderr, results to stdout.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    # This file is named like the SDK, and Python puts its folder first on the path: everything comes from the root.
    _HERE = Path(__file__).resolve().parent
    sys.path[:] = [str(_HERE.parent), *(entry for entry in sys.path if Path(entry or ".").resolve() != _HERE)]

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deploy import check
from deploy.options import add_setting_arguments, session_for, settings_from
from deploy.progress import say
from deploy.terminal import confirm_removal, print_json, run_command

if TYPE_CHECKING:
    from deploy.aws.session import Aws
    from deploy.lifecycle import Step
    from deploy.plan import Plan
    from deploy.settings import Settings


@dataclass(frozen=True)
class Command:
    """A subcommand: `run` returns the exit status, and raises DeployError for a person to read."""

    name: str
    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def main(arguments: Sequence[str] | None = None, pause: Callable[[float], None] = time.sleep) -> int:
    """`pause` waits between two looks at something that takes its time."""
    parser = argparse.ArgumentParser(prog="deploy/sagemaker.py", description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        subparser = commands.add_parser(command.name, help=command.help, description=command.help)
        command.add_arguments(subparser)
        subparser.set_defaults(run=command.run, pause=pause)
    options = parser.parse_args(arguments)
    return run_command(options)


def _plan_arguments(parser: argparse.ArgumentParser) -> None:
    add_setting_arguments(parser)
    parser.add_argument("--json", action="store_true", help="every field of every resource")
    parser.add_argument("--permissions", action="store_true", help="only the IAM policy that the deployer needs")


def _plan(options: argparse.Namespace) -> int:
    from deploy.plan import as_json, as_table, names_of
    from deploy.policies import deployer_policy

    settings = settings_from(options)
    aws = session_for(settings)
    if options.permissions:
        print_json(deployer_policy(names_of(settings, aws.account, aws.partition)))
        return 0
    plan = _planned(settings, aws)
    if options.json:
        print_json(as_json(plan))
    else:
        print(f"{settings.name} in {settings.region}, account {aws.account}, as {aws.caller}\n\n{as_table(plan)}\n")
        print(
            f"Costs {plan.cost}.\nTakes {plan.quota.needed} of the quota `{plan.quota.name}`, twice as many to update."
        )
    return 0


def _deploy_arguments(parser: argparse.ArgumentParser) -> None:
    add_setting_arguments(parser)
    parser.add_argument("--dry-run", action="store_true", help="look at what is there, and say what would be done")
    parser.add_argument("--json", action="store_true", help="the result as JSON")


def _deploy(options: argparse.Namespace) -> int:
    def deploy(aws: "Aws", plan: "Plan", steps: "list[Step]") -> None:
        from deploy import lifecycle

        lifecycle.deploy(aws, plan, steps)

    return _change(options, deploy)


def _update_arguments(parser: argparse.ArgumentParser) -> None:
    _deploy_arguments(parser)
    parser.add_argument(
        "--ignore-alarms", action="store_true", help="no rollback by alarms: where one rings and the update is the cure"
    )


def _update(options: argparse.Namespace) -> int:
    def update(aws: "Aws", plan: "Plan", steps: "list[Step]") -> None:
        from deploy import lifecycle

        lifecycle.update(aws, plan, steps, options.ignore_alarms)

    return _change(options, update)


def _change(options: argparse.Namespace, change: "Callable[[Aws, Plan, list[Step]], None]") -> int:
    settings = settings_from(options)
    aws = session_for(settings, options.pause)
    plan = _planned(settings, aws)
    from deploy import lifecycle  # seconds, for the SDK: only after what can be refused without it

    say(f"{settings.name} in {settings.region}, account {aws.account}: {plan.cost}")
    if not options.dry_run:
        lifecycle.settle(aws, plan.names)
    steps = lifecycle.survey(aws, plan)
    if options.dry_run:
        _print_steps(steps, options.json)
        lifecycle.refuse_clashes(aws, steps)
        return 0
    change(aws, plan, steps)
    _print_status(lifecycle.status(aws, plan.names), options.json)
    return 0


def _status_arguments(parser: argparse.ArgumentParser) -> None:
    add_setting_arguments(parser)
    parser.add_argument("--json", action="store_true")


def _status(options: argparse.Namespace) -> int:
    """1 where nothing serves."""
    settings = settings_from(options)
    aws = session_for(settings)
    from deploy import lifecycle
    from deploy.plan import names_of

    status = lifecycle.status(aws, names_of(settings, aws.account, aws.partition))
    _print_status(status, options.json)
    return 0 if status["endpoint"] == "InService" else 1


def _destroy_arguments(parser: argparse.ArgumentParser) -> None:
    add_setting_arguments(parser)
    parser.add_argument("--dry-run", action="store_true", help="say what would be removed")
    parser.add_argument("--yes", action="store_true", help="don't ask")
    parser.add_argument("--keep-weights", action="store_true", help="leave the bucket with the weights for next time")
    parser.add_argument("--json", action="store_true", help="what was, or would be, removed as JSON")


def _destroy(options: argparse.Namespace) -> int:
    settings = settings_from(options)
    aws = session_for(settings, options.pause)
    from deploy import lifecycle
    from deploy.plan import names_of

    names = names_of(settings, aws.account, aws.partition)
    there = lifecycle.inventory(aws, names, options.keep_weights)
    if not there:
        say(f"nothing of {settings.name} is left in {settings.region}, account {aws.account}")
    elif not options.dry_run:
        if not options.yes:
            confirm_removal(settings.name, f"{settings.region}, account {aws.account}", there)
        lifecycle.destroy(aws, names, options.keep_weights)
    if options.json:
        print_json({"removed": [] if options.dry_run else there, "found": there})
    elif options.dry_run:
        print("\n".join(there))
    return 0


def _planned(settings: "Settings", aws: "Aws") -> "Plan":
    from deploy.plan import Facts, build_plan
    from deploy.sources import choose_builder, image_sources, weights_files

    weights = weights_files(settings.weights, settings.profile)
    if settings.image.uri:
        return build_plan(settings, Facts(aws.account, aws.partition, weights))
    builder = choose_builder(settings.image.builder)
    return build_plan(settings, Facts(aws.account, aws.partition, weights, image_sources(), builder))


def _print_steps(steps: "list[Step]", as_json: bool) -> None:
    if as_json:
        print_json(
            [
                {
                    "kind": step.resource.kind,
                    "name": step.resource.name,
                    "found": step.found.presence.value,
                    "detail": step.found.detail,
                }
                for step in steps
            ]
        )
        return
    for step in steps:
        print(f"{step.resource.kind:<18}{step.resource.name}: {step.intention}")


def _print_status(status: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(status)
        return
    if status["endpoint"] is None:
        print(f"{status['name']} in {status['region']}: there is no endpoint")
        return
    counts, scaling = status["instances"], status["scaling"]
    bounds = f"scales from {scaling['min']} to {scaling['max']}" if scaling else "does not scale"
    print(f"{status['name']} in {status['region']}: {status['endpoint']}")
    if status["failure"]:
        print(f"  failure    {status['failure']}")
    print(f"  config     {status['config']}")
    print(f"  image      {status['image']}")
    print(f"  instances  {counts['current']} of {counts['desired']}, {bounds}")
    for alarm, state in status["alarms"].items():
        print(f"  alarm      {alarm}: {state}")


COMMANDS = (
    Command("plan", "print every resource, what it costs, and change nothing", _plan_arguments, _plan),
    Command("deploy", "make what is missing, reuse what is there, wait until it speaks", _deploy_arguments, _deploy),
    Command("status", "one look at what runs; exit status 1 where nothing serves", _status_arguments, _status),
    Command("check", "try every promise over the live endpoint", check.add_arguments, check.run),
    Command("update", "lead the endpoint to the plan, blue/green, with rollback", _update_arguments, _update),
    Command("destroy", "remove what was made, after asking", _destroy_arguments, _destroy),
)


if __name__ == "__main__":
    sys.exit(main())
