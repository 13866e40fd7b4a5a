"""Start the agent: `python -m agent --local`, or with Bedrock and a SageMaker endpoint, see `--help`."""

import argparse
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

from agent.settings import load_settings, read_text
from serve_app.errors import SpeechError


def main() -> None:
    """Serve the agent until it is stopped."""
    arguments = _parser().parse_args()
    try:
        settings = load_settings(os.environ, _given(arguments), local=arguments.local)
        # What follows imports Strands and the AWS clients; `--help` and a wrong setting need not wait for that.
        from agent.app import create_app
        from agent.models import build_model
        from agent.speech import SpeechSource

        model = build_model(settings.provider, settings.region, settings.options_of_model())
        app = create_app(settings, model, SpeechSource(settings).open)
    except (ValueError, SpeechError) as exc:
        sys.exit(f"agent: {exc}")
    _log_like(app.logger)
    app.run(port=arguments.port, host=arguments.host)


def _given(arguments: argparse.Namespace) -> dict[str, Any]:
    given = {
        "provider": arguments.provider,
        "bedrock_model_id": arguments.bedrock_model_id,
        "region": arguments.region,
        "tts_endpoint": arguments.tts_endpoint,
    }
    options = json.loads(arguments.model_options) if arguments.model_options else {}
    if arguments.reader_text is not None:
        options["text"] = read_text(arguments.reader_text)
    if arguments.tokens_per_second is not None:
        options["tokens_per_second"] = arguments.tokens_per_second
    return {name: value for name, value in {**given, "model_options": options or None}.items() if value is not None}


def _log_like(sdk: logging.Logger) -> None:
    """Our lines beside the SDK's, in its form, which carries the ids of request and session."""
    ours = logging.getLogger("agent")
    ours.setLevel(logging.INFO)
    ours.handlers = sdk.handlers


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m agent",
        description="A voice agent: answers in text and speech on POST /invocations, as Bedrock AgentCore calls it. "
        "What the model and the speech are, and more, can be set in the environment as VOICE_AGENT_NAME.",
    )
    parser.add_argument("--host", default="127.0.0.1", help="0.0.0.0 in a container (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8080, help="(default: %(default)s)")
    parser.add_argument(
        "--local",
        action="store_true",
        help="no cloud: speech from `serve run configs/local.yaml`, text from the reader unless a model is named",
    )
    parser.add_argument("--bedrock-model-id", metavar="ID", help="a model id or inference profile of Amazon Bedrock")
    parser.add_argument("--region", help="of Bedrock and SageMaker (default: AWS_REGION)")
    parser.add_argument("--tts-endpoint", metavar="NAME|URL", help="a SageMaker endpoint, or http://HOST:PORT")
    parser.add_argument("--provider", help="of the model: bedrock, reader, or one of strands.models, such as ollama")
    parser.add_argument("--model-options", metavar="JSON", help='such as \'{"max_tokens": 300, "temperature": 0.2}\'')
    parser.add_argument("--reader-text", type=Path, metavar="FILE", help="what the reader reads")
    parser.add_argument("--tokens-per-second", type=float, metavar="N", help="the reader's pace (default: 40)")
    return parser


if __name__ == "__main__":
    main()
