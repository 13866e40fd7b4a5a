"""What a caller is told of a failure: a sentence, never a repr, a traceback, an address or a secret."""

import logging

from botocore.eventstream import ParserError
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError
from strands.types.exceptions import ContextWindowOverflowException, MaxTokensReachedException, ModelThrottledException
from urllib3.exceptions import HTTPError

from agent.models import AnswerBrokeOff
from serve_app.errors import SpeechError

log = logging.getLogger(__name__)

_OF_BEDROCK = {
    "AccessDeniedException": "the agent may not use its language model; its role or account lacks access to it",
    "ResourceNotFoundException": "the agent's language model does not exist in its region",
    "ValidationException": "the language model refused the request",
    "ThrottlingException": "the language model is over its limit; try again in a moment",
    "ServiceQuotaExceededException": "the language model's quota is used up",
    "ModelNotReadyException": "the language model is not ready; try again in a moment",
    "ServiceUnavailableException": "the language model is not available; try again in a moment",
    "ModelTimeoutException": "the language model took too long",
    "ModelStreamErrorException": "the language model broke off its answer",
    "InternalServerException": "the language model failed",
    "ExpiredTokenException": "the agent's credentials have expired",
    "UnrecognizedClientException": "the agent's credentials are not valid",
}


def sentence_for(exc: BaseException, request_id: str) -> str:
    """What to tell; the log gets the cause, with its traceback where it may be a defect of ours."""
    exc = _cause(exc)
    sentence = _sentence(exc)
    if sentence is None:
        log.error("request_id=%s failed", request_id, exc_info=exc)
        return "the agent failed on this request; its log has the cause under the request_id"
    log.warning("request_id=%s failed: %s: %s", request_id, type(exc).__name__, sentence)
    return sentence


def _cause(exc: BaseException) -> BaseException:
    """The first failure of a group: what failed next, failed because of it."""
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    return exc


def _sentence(exc: BaseException) -> str | None:
    match exc:
        case SpeechError():
            return f"speech: {exc.message}"
        case ModelThrottledException():
            return _OF_BEDROCK["ThrottlingException"]
        case ContextWindowOverflowException():
            return "the conversation is longer than the language model can take"
        case MaxTokensReachedException():
            return "the language model's answer is longer than its max_tokens allows"
        case ClientError():  # botocore's EventStreamError is one: a failure in the middle of an answer
            code = exc.response.get("Error", {}).get("Code", "")
            code = code[:1].upper() + code[1:]  # in a stream the codes begin in lower case
            return _OF_BEDROCK.get(code, "the language model refused the request")
        case AnswerBrokeOff() | ParserError() | HTTPError():
            return _OF_BEDROCK["ModelStreamErrorException"]
        case NoCredentialsError():
            return "the agent has no AWS credentials for its language model"
        case BotoCoreError():
            return "the agent's language model cannot be reached"
    return None
