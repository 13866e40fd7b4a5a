"""The Serve application: options and binding of the three deployments. `serve run configs/local.yaml` calls `build`."""

from collections.abc import Mapping
from typing import Any

from ray import serve
from ray.serve import Application

from serve_app.config import DeploymentSettings, Settings, load_settings
from serve_app.deployments.chunker import Chunker
from serve_app.deployments.gateway import Gateway
from serve_app.deployments.kokoro import Kokoro
from serve_app.deployments.listening import listen_on_node_address
from serve_app.deployments.telemetry import RayRecorder, log_through_serve, open_tracer


class ChunkerReplica(Chunker):
    def __init__(self, settings: Settings) -> None:
        from serve_app.text.phonemes import FrontEnd  # spaCy and the dictionaries, in this replica only

        log_through_serve()
        listen_on_node_address()
        tracer = open_tracer(settings.tracing, "kokoro-chunker")
        super().__init__(lambda: FrontEnd(settings.text), tracer, RayRecorder())


class KokoroReplica(Kokoro):
    def __init__(self, settings: Settings) -> None:
        from serve_app.engine.engine import KokoroEngine  # torch, in this replica only

        log_through_serve()
        listen_on_node_address()
        engine = KokoroEngine.load(settings.engine, settings.weights, RayRecorder())
        super().__init__(engine, open_tracer(settings.tracing, "kokoro-engine"))


def build(args: Mapping[str, Any]) -> Application:
    """Compose the application from a config file's `args` and the environment. Raises SettingsError."""
    return compose(load_settings(args), ChunkerReplica, KokoroReplica)


def compose(settings: Settings, chunker_class: type, kokoro_class: type) -> Application:
    """Bind the gateway to the classes that make phonemes and audio; each is constructed with the settings."""
    chunker = serve.deployment(chunker_class, name="Chunker", **_options(settings.chunker)).bind(settings)
    kokoro = serve.deployment(kokoro_class, name="Kokoro", **_options(settings.kokoro)).bind(settings)
    gateway = serve.deployment(
        serve.ingress()(Gateway),
        name="Gateway",
        user_config={},  # what a configuration file says in its place reaches running replicas, and so does its absence
        **_options(settings.gateway),
    )
    return gateway.bind(settings, chunker, kokoro)


def _options(settings: DeploymentSettings) -> dict[str, Any]:
    options: dict[str, Any] = {
        "max_ongoing_requests": settings.max_ongoing_requests,
        "health_check_period_s": settings.health_check_period_s,
        "health_check_timeout_s": settings.health_check_timeout_s,
        "graceful_shutdown_timeout_s": settings.graceful_shutdown_timeout_s,
        "max_surge_percent": settings.max_surge_percent,
        "max_replicas_per_node": settings.max_replicas_per_node,
        "ray_actor_options": {"num_cpus": settings.num_cpus, "num_gpus": settings.num_gpus},
    }
    if settings.autoscaling is not None:
        options["autoscaling_config"] = settings.autoscaling.model_dump()
    else:
        options["num_replicas"] = settings.num_replicas or 1
    return options
