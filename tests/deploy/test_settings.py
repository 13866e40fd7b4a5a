"""One file, overrides and flags become settings; what is misspelt or impossible is refused with its name."""

from pathlib import Path

import pytest

from deploy.options import DEFAULT_FILE
from deploy.settings import Autoscaling, SettingsError, load_settings


def test_the_shipped_file_states_the_defaults():
    shipped = load_settings(DEFAULT_FILE, region="us-east-1")
    assert shipped == load_settings(None, region="us-east-1")


def test_a_flag_wins_over_an_override_and_an_override_over_the_file(tmp_path):
    file = tmp_path / "deploy.yaml"
    file.write_text("name: first\nregion: eu-west-1\nautoscaling:\n  max_instances: 3\n")
    assert load_settings(file).name == "first"
    settings = load_settings(file, ["name=second", "autoscaling.min_instances=2"], region="us-west-2", name=None)
    assert (settings.name, settings.region) == ("second", "us-west-2")
    assert (settings.autoscaling.min_instances, settings.autoscaling.max_instances) == (2, 3)
    assert load_settings(file, ["name=second"], name="third").name == "third"


def test_scaling_values_may_stand_in_a_file_of_their_own_beside_it(tmp_path):
    (tmp_path / "capacity.yaml").write_text("q_max: 20\ntarget_concurrency: 12\nmax_instances: 6\n")
    file = tmp_path / "deploy.yaml"
    file.write_text("region: us-east-1\nautoscaling: capacity.yaml\n")
    assert load_settings(file).autoscaling == Autoscaling(q_max=20, target_concurrency=12, max_instances=6)
    overridden = load_settings(file, ["autoscaling.max_instances=9"]).autoscaling
    assert (overridden.q_max, overridden.max_instances) == (20, 9)


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("nmae=x", "nmae is not a setting; known here: name, region"),
        ("autoscaling.max=4", "autoscaling.max is not a setting; known here: q_max, target_concurrency"),
        ("name=Kokoro_1", "name: "),
        ("name=a-name-that-is-far-too-long-to-go-into-others", "name: "),
        ("region=america", "region: "),
        ("instance_type=g5.xlarge", "instance_type: "),
        ("timeouts.startup_s=30", "timeouts.startup_s: "),
        ("autoscaling.min_instances=3", "min_instances is above max_instances"),
        ("autoscaling.target_concurrency=9", "target_concurrency is above q_max"),
        ("autoscaling.step_in.below_concurrency=4", "step_in.below_concurrency must be below target_concurrency"),
        ("alarms.first_audio_s", "write it as NAME=VALUE"),
        ("alarms.periods=[", "is not YAML"),
    ],
)
def test_what_no_deployment_can_have_is_refused_by_name(override, sentence):
    with pytest.raises(SettingsError) as refusal:
        load_settings(None, ["region=us-east-1", override])
    assert sentence in str(refusal.value)


def test_a_region_is_never_guessed():
    with pytest.raises(SettingsError, match="pass --region"):
        load_settings(None)


def test_a_file_that_is_not_there_or_holds_no_settings_is_named(tmp_path: Path):
    with pytest.raises(SettingsError, match="missing.yaml is not readable"):
        load_settings(tmp_path / "missing.yaml")
    (tmp_path / "list.yaml").write_text("- 1")
    with pytest.raises(SettingsError, match="holds no settings"):
        load_settings(tmp_path / "list.yaml")
