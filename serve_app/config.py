"""Settings: the one typed model behind the `args` of configs/*.yaml and the KOKORO_* environment.

This module is the sole reader of either. Unknown names are refused: a misspelt limit must not be a silent default.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

ENV_PREFIX = "KOKORO_"

Seconds = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


class SettingsError(ValueError):
    """A setting is unknown or out of range. The message names it and says what is allowed."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class WeightsSettings(_Section):
    """Where the model and the voices come from.

    source: `auto` (official hub files if reachable, else the packages), `hub`, `packaged`, a folder in the official
        layout (also one folder deeper), or `s3://bucket/prefix`.
    cache_dir: where dequantized weights and fetched files are kept; default: the user's cache folder.
    """

    source: str = "auto"
    cache_dir: Path | None = None


class EngineSettings(_Section):
    """One engine.

    device: `auto` takes a GPU where there is one.
    threads: CPU threads of one forward pass; null: all cores this process may use.
    max_batch: segments in one forward pass; null: what suits the device (`default_batch`).
    max_wait_s: how long a listener may be kept in silence; a new utterance that would begin later, as measured, is
        refused (`queue_saturated`) with the time after which it would not be.
    max_queue: segments that may wait, whatever their listeners still have to hear; a bound on memory.
    job_overdue_s: a forward pass that takes longer means that the worker is wedged; Serve replaces the replica.
    warmup: speak one sentence before the replica is ready.
    """

    device: str = "auto"
    threads: Count | None = None
    max_batch: Count | None = None
    max_wait_s: Seconds = 30.0
    max_queue: Count = 1024
    job_overdue_s: Seconds = 30.0
    warmup: bool = True


class TextSettings(_Section):
    """The text front end.

    espeak: use espeak-ng (GPL) for words outside the dictionaries and for languages e, f, h, i, p. Without it English
        words are spelt or approximated and those languages are refused.
    first_cut_above: phoneme tokens past which a sentence that is waited for in silence is cut at a clause, so that its
        first audio comes early; null: never.
    """

    espeak: bool = True
    first_cut_above: Count | None = 80


class TracingSettings(_Section):
    """Spans of utterances, by OpenTelemetry.

    endpoint: where they are sent, OTLP over HTTP, as in http://127.0.0.1:4318/v1/traces; null: tracing is off.
    share: of all utterances, those that are traced.
    """

    endpoint: str | None = None
    share: Annotated[float, Field(ge=0, le=1)] = 1.0


class LimitSettings(_Section):
    """Bounds on what one client may ask, and what happens at each: see docs/api.md."""

    max_text_chars: Count = 50_000
    max_request_age_s: Seconds = 56.0
    max_body_bytes: Count = 1_000_000
    max_sessions: Count = 500
    max_requests: Count = 200
    inbox_messages: Count = 1024
    inbox_bytes: Count = 1 << 20
    session_idle_timeout_s: Seconds = 600.0
    send_stall_timeout_s: Seconds = 30.0
    lookahead_segments: Count = 2


Origin = Annotated[str, Field(pattern=r"^https?://[^/?#@\s]+$")]


class AccessSettings(_Section):
    """Who may ask for speech, and how much: see docs/security.md.

    keys_file: API keys by their hashes, written by `python -m serve_app.access`; null: everybody may ask.
    allowed_origins: of web pages, beside the server's own: `https://app.example.com`.
    sessions_per_key: open WebSockets; null: no bound of a key's own.
    requests_per_key: over HTTP, in hand at a time; null: no bound of a key's own.
    characters_per_minute: that one key may have spoken, with a minute's worth at once; null: no bound.
    """

    keys_file: Path | None = None
    allowed_origins: list[Origin] = []
    sessions_per_key: Count | None = None
    requests_per_key: Count | None = None
    characters_per_minute: Count | None = None

    @model_validator(mode="after")
    def _bounds_have_keys(self) -> "AccessSettings":
        if self.keys_file is None and (self.sessions_per_key or self.requests_per_key or self.characters_per_minute):
            raise ValueError(
                "sessions_per_key, requests_per_key and characters_per_minute are a key's: they want a keys_file"
            )
        return self


class AutoscalingSettings(_Section):
    """When replicas are added and taken away; names and defaults of the times as in Ray Serve's documentation."""

    min_replicas: Annotated[int, Field(ge=0)] = 1
    max_replicas: Count = 1
    target_ongoing_requests: Annotated[float, Field(gt=0)] = 8
    upscale_delay_s: Annotated[float, Field(ge=0)] = 30.0
    downscale_delay_s: Annotated[float, Field(ge=0)] = 600.0
    metrics_interval_s: Seconds = 10.0
    look_back_period_s: Seconds = 30.0


class DeploymentSettings(_Section):
    """Size and health of one Serve deployment; names as in Ray Serve's documentation."""

    num_replicas: Count | None = None
    autoscaling: AutoscalingSettings | None = None
    max_replicas_per_node: Count | None = None
    num_cpus: Annotated[float, Field(ge=0)] = 0.25
    num_gpus: Annotated[float, Field(ge=0)] = 0
    max_ongoing_requests: Annotated[int, Field(ge=2)] = 64
    health_check_period_s: Seconds = 5.0
    health_check_timeout_s: Seconds = 10.0
    graceful_shutdown_timeout_s: Annotated[float, Field(ge=0)] = 20.0
    max_surge_percent: Annotated[int, Field(ge=0, le=100)] = 100

    @model_validator(mode="after")
    def _consistent(self) -> "DeploymentSettings":
        if self.num_replicas is not None and self.autoscaling is not None:
            raise ValueError("give num_replicas or autoscaling, not both")
        if self.autoscaling is not None and self.autoscaling.target_ongoing_requests >= self.max_ongoing_requests:
            raise ValueError("target_ongoing_requests must be below max_ongoing_requests, else it never scales out")
        return self


class Settings(_Section):
    """Everything that can be set, with the defaults that are in force where a file is silent."""

    weights: WeightsSettings = WeightsSettings()
    engine: EngineSettings = EngineSettings()
    text: TextSettings = TextSettings()
    limits: LimitSettings = LimitSettings()
    access: AccessSettings = AccessSettings()
    tracing: TracingSettings = TracingSettings()
    gateway: DeploymentSettings = DeploymentSettings(max_ongoing_requests=1000)
    chunker: DeploymentSettings = DeploymentSettings()
    kokoro: DeploymentSettings = DeploymentSettings(num_cpus=1, max_ongoing_requests=1000)

    @model_validator(mode="after")
    def _refuses_before_ray_queues(self) -> "Settings":
        # Past its own limit Ray Serve queues in silence, /ping included; ours answers 503 at once.
        ours = self.limits.max_sessions + self.limits.max_requests
        if ours >= self.gateway.max_ongoing_requests:
            raise ValueError(
                f"gateway.max_ongoing_requests must be above limits.max_sessions + limits.max_requests, {ours}"
            )
        return self


def load_settings(args: Mapping[str, Any] | None = None, environ: Mapping[str, str] = os.environ) -> Settings:
    """Merge a config file's `args` with KOKORO_* variables (which win) and check the whole.

    A variable names its setting by sections: KOKORO_WEIGHTS__SOURCE=packaged, KOKORO_LIMITS__MAX_SESSIONS=20. Its value
    is read as YAML.

    Raises:
        SettingsError: an unknown name or a value out of range, all of them in one message.
    """
    merged: dict[str, Any] = _copy(args or {})
    for name, value in environ.items():
        if name.startswith(ENV_PREFIX):
            *sections, leaf = name.removeprefix(ENV_PREFIX).lower().split("__")
            node = merged
            for section in sections:
                node = node.setdefault(section, {})
            node[leaf] = yaml.safe_load(value)
    return _checked(merged)


def with_limits(settings: Settings, limits: Mapping[str, Any]) -> Settings:
    """The settings with other values for some of their limits.

    Raises:
        SettingsError: as `load_settings`.
    """
    values = settings.model_dump()
    return _checked({**values, "limits": {**values["limits"], **limits}})


def user_cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where this product keeps files of this user (XDG Base Directory Specification)."""
    return Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kokoro-serve"


def _copy(node: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copy(value) if isinstance(value, Mapping) else value for key, value in node.items()}


def _checked(values: Mapping[str, Any]) -> Settings:
    try:
        return Settings.model_validate(values)
    except ValidationError as exc:
        raise SettingsError("; ".join(_sentence(error) for error in exc.errors())) from exc


def _sentence(error: Any) -> str:
    name = ".".join(str(part) for part in error["loc"]) or "settings"
    if error["type"] == "extra_forbidden":
        section: Any = Settings
        for part in error["loc"][:-1]:
            section = section.model_fields[part].annotation
        known = ", ".join(getattr(section, "model_fields", {}))
        return f"{name} is not a setting; known here: {known}"
    return f"{name}: {error['msg']}"
