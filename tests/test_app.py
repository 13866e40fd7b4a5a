import pytest

from serve_app.app import build
from serve_app.config import SettingsError


def options_of(application):
    """Options of the deployments of a bound application, by name."""
    gateway = application._bound_deployment
    bound = [gateway, *(argument._bound_deployment for argument in gateway.init_args[1:])]
    return {deployment.name: deployment for deployment in bound}


def test_three_deployments_take_their_options_from_the_settings():
    application = build(
        {
            "gateway": {"num_replicas": 2, "num_cpus": 0.5, "max_ongoing_requests": 900},
            "kokoro": {
                "autoscaling": {"min_replicas": 1, "max_replicas": 3, "target_ongoing_requests": 4},
                "num_gpus": 1,
            },
        }
    )
    deployments = options_of(application)
    assert set(deployments) == {"Gateway", "Chunker", "Kokoro"}
    assert deployments["Gateway"].num_replicas == 2
    assert deployments["Gateway"].max_ongoing_requests == 900
    assert deployments["Gateway"].ray_actor_options["num_cpus"] == 0.5
    assert deployments["Kokoro"].ray_actor_options["num_gpus"] == 1
    config = deployments["Kokoro"]._deployment_config.autoscaling_config
    assert (config.max_replicas, config.target_ongoing_requests) == (3, 4)


def test_a_misspelt_setting_stops_the_build_with_its_name():
    with pytest.raises(SettingsError, match="kokoro.num_gpu is not a setting; known here: .*num_gpus"):
        build({"kokoro": {"num_gpu": 1}})
