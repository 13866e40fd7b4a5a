"""The plain design, as a yardstick: the official `kokoro` pipeline behind one lock, under uvicorn.

    uv run python scripts/baseline_server.py --port 8001
    uv run python -m scripts.loadtest --server ours=http://127.0.0.1:8000 --against plain=http://127.0.0.1:8001

Pipeline and model are the package's own, used as its README shows, over the weights that this project's settings name,
so that both servers speak with the same. Whoever has the lock has it for all of a text; the next text waits. It gives
24 kHz PCM only: `POST /invocations` streams it, and a WebSocket answers each text with start, audio and complete.
"""

import argparse
import asyncio
import json
import sys
import time
import warnings
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from serve_app.audio.pcm import to_s16le
from serve_app.engine.files import WeightsError

Speak = Callable[[str], Iterator[bytes]]
"""A text's PCM, a segment at a time; blocks."""

BYTES_PER_S = 48_000
SENTENCES = r"(?<=[.!?])\s+"
"""The package splits at line ends unless told otherwise: then a text of one line would be heard when all is made."""


def official_speech(split_pattern: str, voice: str = "af_heart") -> Speak:
    """The package's pipeline over our weights; takes seconds. Raises WeightsError."""
    import spacy
    import torch
    from kokoro import KModel, KPipeline

    from scripts.fetch_weights import write_folder
    from serve_app.config import load_settings
    from serve_app.engine.weights import load_weights
    from serve_app.text.english import TAGGER

    load = spacy.load
    with TemporaryDirectory() as made, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, on how the package builds its model
        weights = load_weights(load_settings({}).weights)
        folder = weights.folder or Path(made)
        if weights.folder is None:
            write_folder(weights, folder)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        model = KModel("hexgrad/Kokoro-82M", str(folder / "config.json"), str(folder / "kokoro-v1_0.pth"))
        # The package would download spaCy's model under its own name.
        with (
            patch.object(spacy.util, "is_package", lambda name: True),
            patch.object(spacy, "load", lambda name, **options: load(TAGGER, **options)),
        ):
            pipeline = KPipeline("a", "hexgrad/Kokoro-82M", model.to(device).eval())
        pack = pipeline.load_voice(str(folder / "voices" / f"{voice}.pt"))

    def speak(text: str) -> Iterator[bytes]:
        for result in pipeline(text, voice=pack, split_pattern=split_pattern):
            yield to_s16le(result.audio.numpy())

    return speak


def create_app(speak: Speak) -> Starlette:
    """The routes around one lock."""
    lock = asyncio.Lock()

    async def pcm(text: str) -> AsyncGenerator[bytes, None]:
        async with lock:
            segments = speak(text)
            while (audio := await asyncio.to_thread(next, segments, None)) is not None:
                yield audio

    async def ping(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def invocations(request: Request) -> Response:
        text = _asked(await request.body()).get("text")
        if not text:
            return JSONResponse({"error": "text is missing", "code": "bad_request"}, 400)
        return StreamingResponse(pcm(text), media_type="audio/pcm;rate=24000")

    async def session(socket: WebSocket) -> None:
        await socket.accept()
        try:
            while (message := await socket.receive())["type"] == "websocket.receive":
                await answer(socket, message.get("text") or message.get("bytes") or b"")
        except WebSocketDisconnect:
            pass  # while it was being answered

    async def answer(socket: WebSocket, message: str | bytes) -> None:
        asked = _asked(message)
        text, request_id = asked.get("text"), asked.get("request_id", "unknown")
        if not text:
            error = {"type": "error", "request_id": request_id, "message": "text is missing", "code": "bad_request"}
            return await socket.send_json(error)
        began_s, size_bytes = time.monotonic(), 0
        await socket.send_json({"type": "synthesis_start", "request_id": request_id})
        async with aclosing(pcm(text)) as segments:
            async for audio in segments:
                await socket.send_bytes(audio)
                size_bytes += len(audio)
        times = {"total_duration_s": round(size_bytes / BYTES_PER_S, 3), "elapsed_s": time.monotonic() - began_s}
        await socket.send_json({"type": "synthesis_complete", "request_id": request_id, **times})

    return Starlette(
        routes=[
            Route("/ping", ping),
            Route("/invocations", invocations, methods=["POST"]),
            WebSocketRoute("/invocations-bidirectional-stream", session),
        ]
    )


def _asked(message: str | bytes) -> dict[str, Any]:
    """A request's fields; {}: it is none."""
    try:
        fields = json.loads(message)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--host", default="127.0.0.1", help="(default: %(default)s)")
    parser.add_argument("--port", type=int, default=8001, help="(default: %(default)s)")
    parser.add_argument("--split-pattern", default=SENTENCES, help="where the pipeline splits a text: %(default)s")
    options = parser.parse_args()
    try:
        speak = official_speech(options.split_pattern)
    except WeightsError as exc:
        sys.exit(str(exc))
    # uvicorn's own pings hang up on a session whose next message waits while the one before is spoken: it reads no pong
    # before that message. Who is cut off is in no percentile, and that would flatter this server.
    uvicorn.run(create_app(speak), host=options.host, port=options.port, ws_ping_interval=None)


if __name__ == "__main__":
    main()
