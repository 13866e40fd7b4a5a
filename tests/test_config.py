import re
from pathlib import Path

import pytest
import yaml

from serve_app.config import (
    AutoscalingSettings,
    DeploymentSettings,
    Settings,
    SettingsError,
    load_settings,
    with_limits,
)

ROOT = Path(__file__).resolve().parent.parent
OF_NO_SERVER = ("deploy.yaml", "kuberay.yaml")
CONFIGS = [path for path in sorted((ROOT / "configs").glob("*.yaml")) if path.name not in OF_NO_SERVER]


def leaves(section, prefix=""):
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, DeploymentSettings):
            continue
        if hasattr(type(value), "model_fields"):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def test_the_environment_wins_over_the_file_and_is_read_as_yaml():
    settings = load_settings(
        {"weights": {"source": "hub"}, "limits": {"max_sessions": 3}},
        {"KOKORO_WEIGHTS__SOURCE": "packaged", "KOKORO_ENGINE__WARMUP": "false", "HOME": "/root"},
    )
    assert settings.weights.source == "packaged"
    assert settings.limits.max_sessions == 3
    assert settings.engine.warmup is False


@pytest.mark.parametrize(
    ("args", "environ", "named"),
    [
        ({"limit": {}}, {}, ["limit ", "limits"]),
        ({"limits": {"max_session": 3}}, {}, ["limits.max_session ", "max_sessions"]),
        ({}, {"KOKORO_ENGINE__TREADS": "2"}, ["engine.treads", "threads"]),
        ({"engine": {"max_queue": 0}}, {}, ["engine.max_queue"]),
        ({"kokoro": {"max_ongoing_requests": 1}}, {}, ["kokoro.max_ongoing_requests"]),
        ({"kokoro": {"num_replicas": 1, "autoscaling": {}}}, {}, ["num_replicas or autoscaling"]),
        (
            {"kokoro": {"max_ongoing_requests": 8, "autoscaling": {"target_ongoing_requests": 8}}},
            {},
            ["target_ongoing_requests must be below"],
        ),
        ({"limits": {"max_sessions": 5000}}, {}, ["gateway.max_ongoing_requests must be above"]),
    ],
)
def test_unknown_names_and_values_out_of_range_are_named(args, environ, named):
    with pytest.raises(SettingsError) as refused:
        load_settings(args, environ)
    for part in named:
        assert part in str(refused.value)


def test_other_limits_are_checked_as_those_at_the_start_and_leave_the_rest_alone():
    settings = load_settings({"limits": {"max_requests": 7, "max_sessions": 8}}, {})
    changed = with_limits(settings, {"max_sessions": 9})
    assert (changed.limits.max_requests, changed.limits.max_sessions) == (7, 9)
    assert changed.model_copy(update={"limits": settings.limits}) == settings
    with pytest.raises(SettingsError, match="limits.max_session is not a setting; known here: .*max_sessions"):
        with_limits(settings, {"max_session": 9})
    with pytest.raises(SettingsError, match="gateway.max_ongoing_requests must be above"):
        with_limits(settings, {"max_sessions": 5000})


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_shipped_configurations_let_requests_in_and_scale_out(path):
    config = yaml.safe_load(path.read_text())
    for application in config["applications"]:
        settings = load_settings(application["args"], {})
        for deployment in (settings.gateway, settings.chunker, settings.kokoro):
            assert deployment.max_ongoing_requests > 1
            if deployment.autoscaling:
                assert deployment.autoscaling.target_ongoing_requests < deployment.max_ongoing_requests


def test_the_local_configuration_fits_two_cores_with_its_replacement_and_listens_on_loopback():
    config = yaml.safe_load((ROOT / "configs" / "local.yaml").read_text())
    assert config["http_options"] == {"host": "127.0.0.1", "port": 8000}
    settings = load_settings(config["applications"][0]["args"], {})
    assert 2 * sum(part.num_cpus for part in (settings.gateway, settings.chunker, settings.kokoro)) <= 2


DOCUMENT = (ROOT / "docs" / "configuration.md").read_text()


def test_the_documented_settings_are_the_real_ones():
    table = DOCUMENT[DOCUMENT.index("## Settings") : DOCUMENT.index("## Deployments")]
    rows = dict(re.findall(r"^\| `([a-z_.]+)` \| ([^|]+) \|", table, re.MULTILINE))
    for name, value in leaves(Settings()):
        shown = rows.pop(name).strip(" `")
        if value is not None:
            assert yaml.safe_load(shown) == value, name
    assert rows == {}


def test_the_documented_deployments_are_the_real_ones():
    section = DOCUMENT[DOCUMENT.index("## Deployments") : DOCUMENT.index("## Ray's environment")]
    of_each, of_autoscaling = (
        {name: yaml.safe_load(f"[{cells.strip().replace(' |', ',')}]") for name, cells in rows}
        for rows in (
            re.findall(r"^\| `(\w+)` \| ((?:[\w.]+ \| ){2}[\w.]+) \|", section, re.MULTILINE),
            re.findall(r"^\| `(\w+)` \| ([\d.]+) \| [^|]*\|?$", section, re.MULTILINE),
        )
    )
    settings = Settings()
    deployments = [settings.gateway.model_dump(), settings.chunker.model_dump(), settings.kokoro.model_dump()]
    assert of_each == {name: [one[name] for one in deployments] for name in DeploymentSettings.model_fields}
    assert {name: value for name, [value] in of_autoscaling.items()} == AutoscalingSettings().model_dump()
