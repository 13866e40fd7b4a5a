"""configs/kuberay.yaml: what can be held without a Kubernetes. Its fields are those of KubeRay's API, ray.io/v1."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from serve_app.app import build
from serve_app.config import load_settings
from tests.test_app import options_of

ROOT = Path(__file__).resolve().parent.parent
RAY_SERVICE, SERVICE = yaml.safe_load_all((ROOT / "configs" / "kuberay.yaml").read_text())
CONFIG = yaml.safe_load((ROOT / "configs" / "cluster.yaml").read_text())
[APPLICATION] = CONFIG["applications"]
SETTINGS = load_settings(APPLICATION["args"], {})
CLUSTER = RAY_SERVICE["spec"]["rayClusterConfig"]
GATEWAYS, ENGINES = CLUSTER["workerGroupSpecs"]
PODS = {
    "head": CLUSTER["headGroupSpec"]["template"]["spec"],
    "gateways": GATEWAYS["template"]["spec"],
    "engines": ENGINES["template"]["spec"],
}

CLUSTER_FIELDS = {
    "rayVersion",
    "authOptions",
    "enableInTreeAutoscaling",
    "autoscalerOptions",
    "gcsFaultToleranceOptions",
    "headGroupSpec",
    "workerGroupSpecs",
}
HEAD_FIELDS = {"rayStartParams", "template"}
GROUP_FIELDS = HEAD_FIELDS | {"groupName", "replicas", "minReplicas", "maxReplicas"}
POD_FIELDS = {"containers", "terminationGracePeriodSeconds", "tolerations", "topologySpreadConstraints"}
CONTAINER_FIELDS = {"name", "image", "env", "ports", "resources", "readinessProbe", "livenessProbe", "lifecycle"}


def container(pod):
    [only] = pod["containers"]
    return only


def cpus(pod):
    return float(container(pod)["resources"]["requests"]["cpu"])


def test_it_serves_the_configuration_of_a_cluster():
    assert yaml.safe_load(RAY_SERVICE["spec"]["serveConfigV2"]) == CONFIG


def test_every_field_is_one_that_the_api_knows():
    assert (RAY_SERVICE["apiVersion"], RAY_SERVICE["kind"]) == ("ray.io/v1", "RayService")
    assert set(RAY_SERVICE["spec"]) <= {"serveConfigV2", "rayClusterConfig"}
    assert set(CLUSTER) <= CLUSTER_FIELDS
    assert set(CLUSTER["headGroupSpec"]) <= HEAD_FIELDS
    for group in (GATEWAYS, ENGINES):
        assert set(group) <= GROUP_FIELDS
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    for group in (CLUSTER["headGroupSpec"], GATEWAYS, ENGINES):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
    for pod in PODS.values():
        assert set(pod) <= POD_FIELDS
        assert set(container(pod)) <= CONTAINER_FIELDS


def test_ray_is_the_version_that_is_pinned():
    pins = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"]["constraint-dependencies"]
    assert f"ray=={CLUSTER['rayVersion']}" in pins


def test_every_pod_runs_the_same_image():
    assert len({container(pod)["image"] for pod in PODS.values()}) == 1


def test_every_pod_is_told_that_it_is_one_of_several_machines():
    for pod in PODS.values():
        assert {"name": "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "value": "1"} in container(pod)["env"]


def test_the_head_carries_no_replica():
    assert CLUSTER["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"


def test_every_replica_that_is_there_from_the_start_finds_its_place():
    for deployment in (SETTINGS.gateway, SETTINGS.chunker):
        assert deployment.num_replicas == GATEWAYS["minReplicas"]
        assert deployment.max_replicas_per_node == 1
    assert SETTINGS.gateway.num_cpus + SETTINGS.chunker.num_cpus <= cpus(PODS["gateways"])
    scaling, gpus = SETTINGS.kokoro.autoscaling, container(PODS["engines"])["resources"]["limits"]["nvidia.com/gpu"]
    assert SETTINGS.kokoro.num_gpus == gpus
    assert (scaling.min_replicas, scaling.max_replicas) == (ENGINES["minReplicas"], ENGINES["maxReplicas"])


def test_pods_with_a_gpu_have_room_for_engines_alone():
    """A gateway in one would keep the autoscaler from ever giving it back."""
    assert ENGINES["rayStartParams"]["num-cpus"] == "0"
    assert SETTINGS.kokoro.num_cpus == 0
    assert min(SETTINGS.gateway.num_cpus, SETTINGS.chunker.num_cpus) > 0


def test_sessions_reach_gateways_that_can_speak():
    assert SERVICE["spec"]["selector"] == {"ray.io/group": GATEWAYS["groupName"]}
    [port] = container(PODS["gateways"])["ports"]
    assert port == {"name": SERVICE["spec"]["ports"][0]["targetPort"], "containerPort": CONFIG["http_options"]["port"]}
    assert container(PODS["gateways"])["readinessProbe"]["httpGet"] == {"path": "/ping", "port": port["name"]}
    assert CONFIG["proxy_location"] == "EveryNode"


@pytest.mark.parametrize("name", ["gateways", "engines"])
def test_a_pod_that_ends_is_drained_before(name):
    [script] = [
        part for part in container(PODS[name])["lifecycle"]["preStop"]["exec"]["command"] if "drain-node" in part
    ]
    [within_s] = set(map(int, re.findall(r"(?:seconds|sleep) (\d+)", script)))
    assert within_s < PODS[name]["terminationGracePeriodSeconds"]
    for deployment in (SETTINGS.gateway, SETTINGS.chunker, SETTINGS.kokoro):
        assert deployment.graceful_shutdown_timeout_s < within_s


def test_a_cluster_takes_every_option_from_the_file():
    deployments = options_of(build(APPLICATION["args"]))
    for name in ("Gateway", "Chunker"):
        assert deployments[name].num_replicas == 2
        assert deployments[name]._replica_config.max_replicas_per_node == 1
    kokoro = deployments["Kokoro"]
    assert kokoro._replica_config.max_replicas_per_node is None
    assert (kokoro.ray_actor_options["num_cpus"], kokoro.ray_actor_options["num_gpus"]) == (0, 1)
    scaling = kokoro._deployment_config.autoscaling_config
    assert (scaling.min_replicas, scaling.max_replicas, scaling.target_ongoing_requests) == (2, 8, 8)
    assert (scaling.upscale_delay_s, scaling.downscale_delay_s) == (5, 300)
    assert kokoro.max_ongoing_requests == 1000
    for deployment in deployments.values():  # no machine is to spare for a second replica
        assert deployment._deployment_config.max_surge_percent == 0


def test_the_lines_for_keys_fit_together_once_they_are_no_comment():
    text = (ROOT / "configs" / "kuberay.yaml").read_text()
    of_keys = r"^( *)# (access:|  keys_file:|volumes:|volumeMounts:|  - \{ name: keys)"
    service, _ = yaml.safe_load_all(re.sub(of_keys, r"\1\2", text, flags=re.MULTILINE))
    [application] = yaml.safe_load(service["spec"]["serveConfigV2"])["applications"]
    pod = service["spec"]["rayClusterConfig"]["workerGroupSpecs"][0]["template"]["spec"]
    [volume], [mount] = pod["volumes"], container(pod)["volumeMounts"]
    assert load_settings(application["args"], {}).access.keys_file.parent == Path(mount["mountPath"])
    assert (volume["name"], list(volume["secret"])) == (mount["name"], ["secretName"])
