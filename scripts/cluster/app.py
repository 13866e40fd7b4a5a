"""The real routes over an engine that takes as long as a GPU's: `import_path: scripts.cluster.app:build`."""

from collections.abc import Mapping
from typing import Any

from ray.serve import Application

from scripts.fake_app import FakeChunkerReplica, FakeKokoroReplica
from serve_app.app import compose
from serve_app.config import load_settings

GPU_SENTENCE_S = 0.056
"""A sentence on ml.g5.xlarge, one at a time, as published (docs/capacity.md)."""


class TimedKokoroReplica(FakeKokoroReplica):
    cost_s = GPU_SENTENCE_S


def build(args: Mapping[str, Any]) -> Application:
    return compose(load_settings(args), FakeChunkerReplica, TimedKokoroReplica)
