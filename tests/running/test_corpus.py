"""A corpus on Ray Data with the real model, beside the running stack: the same bytes by both ways."""

import json
import os
import subprocess
import sys

import httpx
import pyarrow.parquet as pq

from scripts.running import ROOT
from serve_app.engine.model import available_cores
from tests.running.conversation import HANG_S

ROWS = [
    {"id": "greeting", "text": "Hello there."},
    {"id": "three", "text": "This is a check. It has three sentences! The last one, Dr. Smith says, costs $5."},
    {"id": "emma", "text": "A little faster.", "voice": "bf_emma", "speed": 1.3},
    {"id": "long", "text": "When the river rose, " * 7 + "they left, and nobody came back."},
]


def test_a_row_s_audio_is_the_body_of_the_answer_to_the_same_text(stack, tmp_path):
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    command = [sys.executable, "scripts/synthesize_corpus.py", str(tmp_path / "in.jsonl"), str(tmp_path / "out")]
    done = subprocess.run(
        [*command, "--format", "flac", "--threads", str(available_cores())],  # as many as the stack's engine
        cwd=ROOT,
        env=os.environ | {"KOKORO_WEIGHTS__SOURCE": "packaged"},
        capture_output=True,
        text=True,
        timeout=HANG_S * 5,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    spoken = {row["id"]: row for row in pq.read_table(tmp_path / "out" / "parts").to_pylist()}
    assert spoken.keys() == {row["id"] for row in ROWS}
    for row in ROWS:
        asked = {name: value for name, value in row.items() if name != "id"}
        answer = httpx.post(
            f"{stack.http}/invocations", json={**asked, "format": "flac", "stream": False}, timeout=HANG_S
        )
        assert answer.status_code == 200
        assert spoken[row["id"]]["audio"] == answer.content, row["id"]
        assert spoken[row["id"]]["words"]
        assert spoken[row["id"]]["provenance"]["weights"] == "packaged int8"
