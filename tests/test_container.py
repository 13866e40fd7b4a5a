import logging
import os
import signal

import pytest
import yaml

from serve_app.config import SettingsError, load_settings
from serve_app.container import (
    CONFIG,
    MIN_MEMORY_BYTES,
    CannotStart,
    cause,
    main,
    memory_bytes,
    require_cpus,
    require_memory,
    weights_source,
)
from serve_app.engine.files import WeightsError
from serve_app.engine.sources import MODEL_FILE

SETTINGS = load_settings(yaml.safe_load(CONFIG.read_text())["applications"][0]["args"], {})

# The life of the process


class FakeStack:
    """Starts as it is told to, and notes what is asked of it."""

    def __init__(self, at_start=lambda: None):
        self._at_start = at_start
        self.calls = []

    def start(self, on_signals_taken):
        self.calls.append("start")
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # as Ray does with its own handler
        on_signals_taken()
        self._at_start()

    def drain(self, within_s):
        self.calls.append("drain")
        assert within_s < 30

    def stop(self):
        self.calls.append("stop")


@pytest.fixture(autouse=True)
def handlers():
    """The signal handlers of the tests, put back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def fail(error):
    def at_start():
        raise error

    return at_start


class StopsWhenReady(logging.Handler):
    """Sends SIGTERM once the log says that the container is ready."""

    def emit(self, record):
        if record.getMessage() == "ready":
            os.kill(os.getpid(), signal.SIGTERM)


def test_sigterm_drains_and_then_stops_with_exit_code_0(caplog):
    caplog.set_level("INFO")
    stack, stopper = FakeStack(), StopsWhenReady()
    logger = logging.getLogger("serve_app.container")
    logger.addHandler(stopper)
    try:
        assert main(["serve"], stack) == 0
    finally:
        logger.removeHandler(stopper)
    assert stack.calls == ["start", "drain", "stop"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_the_start_ends_it_at_once(number):
    stack = FakeStack(lambda: os.kill(os.getpid(), number))
    assert main(["serve"], stack) == 0
    assert stack.calls == ["start", "stop"]


def test_a_signal_that_rays_own_handler_hears_ends_the_start_just_the_same():
    stack = FakeStack(fail(SystemExit(15)))
    assert main(["serve"], stack) == 0
    assert stack.calls == ["start", "stop"]


@pytest.mark.parametrize(
    "error", [CannotStart("too small"), WeightsError("no such folder"), SettingsError("kokoro.x is not a setting")]
)
def test_what_cannot_start_ends_with_1_and_the_cause_on_the_last_line(error, caplog):
    stack = FakeStack(fail(error))
    assert main([], stack) == 1
    assert stack.calls == ["start", "stop"]
    assert caplog.messages[-1] == f"cannot start: {error}"


def test_sagemakers_argument_is_known_and_others_are_refused(capsys):
    assert main(["train"], FakeStack()) == 2
    assert "`serve`" in capsys.readouterr().err


# Where the weights come from


@pytest.fixture
def folders(tmp_path):
    model, baked = tmp_path / "model", tmp_path / "baked"
    model.mkdir()
    baked.mkdir()
    return model, baked


def put_model(folder):
    folder.mkdir(exist_ok=True)
    (folder / MODEL_FILE).touch()


@pytest.mark.parametrize("between", [".", "kokoro"])
def test_the_endpoints_model_comes_first_flat_or_one_folder_deeper(folders, between):
    model, baked = folders
    put_model(model / between)
    put_model(baked)
    assert weights_source(str(model), model, baked) == str(model / between)


def test_a_model_folder_without_the_model_is_named(folders):
    model, baked = folders
    put_model(baked)
    (model / "something-else").touch()
    with pytest.raises(WeightsError, match=f"{MODEL_FILE} in {model} nor one folder below"):
        weights_source(str(model), model, baked)


def test_without_a_model_of_the_endpoint_the_images_own_is_used_and_else_the_hub(folders):
    model, baked = folders
    assert weights_source(str(model), model, baked) == "hub"
    assert weights_source(str(model / "missing"), model / "missing", baked / "missing") == "hub"
    put_model(baked)
    assert weights_source(str(model), model, baked) == str(baked)


def test_what_the_operator_set_is_left_alone(folders):
    model, baked = folders
    put_model(model)
    assert weights_source("s3://bucket/prefix", model, baked) == "s3://bucket/prefix"


# Does it fit


@pytest.mark.parametrize(
    ("file", "content", "expected"),
    [
        ("sys/fs/cgroup/memory.max", "max", 8 << 30),
        ("sys/fs/cgroup/memory.max", str(4 << 30), 4 << 30),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", str(2 << 30), 2 << 30),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712", 8 << 30),
    ],
)
def test_memory_is_the_machines_or_the_control_groups(tmp_path, file, content, expected):
    for name, text in (("proc/meminfo", f"MemTotal: {8 << 20} kB\nMemFree: 1 kB\n"), (file, f"{content}\n")):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    assert memory_bytes(tmp_path) == expected


def test_too_little_memory_says_what_to_raise():
    require_memory(MIN_MEMORY_BYTES)
    with pytest.raises(CannotStart, match=r"has 2\.0 GiB of memory and needs 3: raise `docker run --memory`"):
        require_memory(2 << 30)


def test_the_shipped_configuration_fits_two_cpus_and_says_what_to_raise_on_one():
    require_cpus(2, SETTINGS)
    with pytest.raises(CannotStart, match=r"has 1 CPUs and its replicas ask for .*: raise `docker run --cpus`"):
        require_cpus(1, SETTINGS)


def test_the_cause_of_a_failed_start_is_the_last_sentence_of_its_traceback():
    message = """The deployment failed to start 3 times in a row. Error:
ray::ServeReplica:kokoro:Kokoro.initialize_and_get_metadata() (pid=1, ip=127.0.0.1)
  File "serve_app/engine/weights.py", line 58, in load_weights
serve_app.engine.files.WeightsError: voices/af_heart.pt is damaged; fetch it again
"""
    assert (
        cause(["", message, "Deploying application kokoro failed"]) == "voices/af_heart.pt is damaged; fetch it again"
    )
    assert cause(["", "Deploying application kokoro failed"]) == "Deploying application kokoro failed"
