"""Build the images and hold them to their promises: `uv run python scripts/image_check.py` (as root, Linux).

    apt-get install buildah debootstrap     # no Docker engine is needed; about 20 GB of disk while it runs

The base image is a stand-in, made with debootstrap and this machine's CPython 3.12 and tagged like the public one. The
image is started as SageMaker would start it: process 1 of its own container, read-only weights, 2 CPUs, 4 GiB of
memory, 64 MB of /dev/shm, and no network but loopback, so that nothing can be fetched. What stays unproven: the true
base, and CUDA.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from scripts.fetch_weights import write_folder
from scripts.running import ROOT, Running
from serve_app.config import WeightsSettings
from serve_app.engine.cpu.build import supported_targets
from serve_app.engine.sources import MODEL_FILE
from serve_app.engine.weights import load_weights

IMAGE, CHANGED = "localhost/kokoro-serve", "localhost/kokoro-serve-changed"
BAKED, AGENT = "localhost/kokoro-serve-baked", "localhost/kokoro-agent"
BASE_LIBRARIES = "ca-certificates,netbase,tzdata,libssl3,libffi8,libsqlite3-0,libbz2-1.0,liblzma5,libreadline8,zlib1g,\
libncursesw6,libuuid1,libexpat1"  # what a CPython wants; the public base has them too
CACHE = Path.home() / ".cache" / "kokoro-serve" / "image-check"
LABEL = "com.amazonaws.sagemaker.capabilities.bidirectional-streaming"
PORT = 8080
MEMORY_BYTES, SHM_BYTES = 4 << 30, 64 << 20
CGROUP = Path("/sys/fs/cgroup/memory/kokoro-image-check")
MAY_BE_WRITTEN = ("tmp/", "root/", "dev/", "opt/kokoro/", "usr/local/lib/python3.12/")  # the last one: byte code
STARTS_WITHIN_S, EXITS_WITHIN_S, CODE_CHANGE_BYTES = 300.0, 30.0, 20_000_000

AGENT_ENVIRONMENT = ("VOICE_AGENT_PROVIDER=reader", f"VOICE_AGENT_TTS_ENDPOINT=http://127.0.0.1:{PORT}")

SENTENCES = {  # bytes of PCM that the 8-bit weights of the package registries give
    "Hello there.": 74_400,
    "This is a post deployment check.": 105_600,
    "It has three sentences.": 98_400,
}
LONG = "The order to stop comes in this sentence. This is the end of the message."


class Broken(Exception):
    """A promise that did not hold. The message says what was seen."""


def require(condition: object, seen: str) -> None:
    if not condition:
        raise Broken(seen)


# Building


def buildah(*arguments: str | Path, quiet: bool = False) -> str:
    """Run buildah and return its output, which is also shown unless `quiet`."""
    lines = []
    environment = {"STORAGE_DRIVER": "overlay", "BUILDAH_ISOLATION": "chroot", **os.environ}
    command = ["buildah", *map(str, arguments)]
    with subprocess.Popen(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if not quiet and line.startswith(("STEP", "-->", "Error", "error", "ERROR")):
                print(f"  {line}", end="", flush=True)
    if process.returncode:
        raise Broken(f"{' '.join(command[:2])} failed:\n{''.join(lines[-20:])}")
    return "".join(lines)


def base_references() -> list[str]:
    """The public images that the Dockerfile takes: the one that it begins with, and the one with a compiler."""
    first_words = [line.split()[1] for line in (ROOT / "Dockerfile").read_text().splitlines() if line[:5] == "FROM "]
    return [f"docker.io/library/{name}" for name in first_words if ":" in name]


def make_base(reference: str) -> None:
    """Tag a Debian of the Dockerfile's release with this CPython in /usr/local like a public image."""
    if reference in buildah("images", "--format", "{{.Name}}:{{.Tag}}", quiet=True).split():
        return
    with tempfile.TemporaryDirectory() as folder:
        root, python = Path(folder) / "root", Path(sys.base_prefix)
        suite = reference.rpartition("-")[2]
        compiler = "" if "-slim-" in reference else ",g++"
        run("debootstrap", "--variant=minbase", f"--include={BASE_LIBRARIES}{compiler}", suite, root)
        shutil.copy("/etc/ssl/certs/ca-certificates.crt", root / "etc/ssl/certs/")  # a local authority among them
        leave_out = shutil.ignore_patterns("__pycache__", "test", "config-3*", "*.pth", "uv", "uv-*", "uvx")
        for part in ("bin", "lib", "include"):
            shutil.copytree(
                python / part, root / "usr/local" / part, symlinks=True, ignore=leave_out, dirs_exist_ok=True
            )
        python_link = root / "usr/local/bin/python"
        python_link.unlink(missing_ok=True)
        python_link.symlink_to("python3.12")
        run("chroot", root, "ldconfig")
        container = buildah("from", "scratch", quiet=True).strip()
        buildah("add", "--quiet", container, root, "/", quiet=True)
        path = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
        buildah("config", "--env", f"PATH={path}", "--env", "LANG=C.UTF-8", "--cmd", "python3", container, quiet=True)
        buildah("commit", "--rm", container, reference, quiet=True)


def run(*command: str | Path) -> str:
    done = subprocess.run([str(part) for part in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    require(done.returncode == 0, f"{command[0]} failed:\n{done.stdout[-2000:]}")
    return done.stdout


def build(tag: str, context: Path, *, dockerfile: str = "Dockerfile", weights: str = "none") -> None:
    """Build with this machine's settings of the package clients, which reach the build as secrets and no layer."""
    with tempfile.TemporaryDirectory() as folder:
        settings = run(sys.executable, "-m", "pip", "config", "list") if has_pip() else ""
        index = [line.partition("=")[2].strip("'") for line in settings.splitlines() if "index-url=" in line]
        pip = Path(folder) / "pip.conf"
        lines = ["[global]", "cert = /etc/ssl/certs/ca-certificates.crt", *(f"index-url = {url}" for url in index[:1])]
        pip.write_text("\n".join(lines) + "\n")
        npm = Path(folder) / "npmrc"
        npm.write_text("cafile=/etc/ssl/certs/ca-certificates.crt\n")
        buildah(
            "bud", "--layers", "--pull-never", "--secret", f"id=pip,src={pip}", "--secret", f"id=npm,src={npm}",
            "--build-arg", f"WEIGHTS={weights}", "-t", tag, "-f", context / dockerfile, context,
        )  # fmt: skip


def has_pip() -> bool:
    return subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True).returncode == 0


def inspect(tag: str) -> dict[str, Any]:
    """The image's configuration, as Docker writes it."""
    config: dict[str, Any] = json.loads(buildah("inspect", "--type", "image", tag, quiet=True))["Docker"]["config"]
    return config


def layers(tag: str) -> dict[str, int]:
    """The image's layers from the base up: id and bytes, uncompressed."""
    store = Path(json.loads(buildah("info", quiet=True))["store"]["GraphRoot"])
    image_id = json.loads(buildah("inspect", "--type", "image", tag, quiet=True))["FromImageID"]
    images = {image["id"]: image for image in json.loads((store / "overlay-images/images.json").read_text())}
    known = {layer["id"]: layer for layer in json.loads((store / "overlay-layers/layers.json").read_text())}
    found: dict[str, int] = {}
    layer_id = images[image_id]["layer"]
    while layer_id:
        found[layer_id] = known[layer_id].get("diff-size", 0)
        layer_id = known[layer_id].get("parent")
    return dict(reversed(found.items()))


# Running


@dataclass
class Container:
    """A running image: what it prints, its process 1 as this machine numbers it, and what it has written."""

    running: Running
    process: "subprocess.Popen[str]"
    written: Path

    @property
    def first_process(self) -> int:
        (child,) = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(child)

    def terminate(self) -> None:
        os.kill(self.first_process, signal.SIGTERM)

    def await_line(self, words: str) -> None:
        """Wait until it has printed a line with these words. Raises Broken when it ends without one."""
        self.running.wait_for(lambda: any(words in line for line in self.running.lines), STARTS_WITHIN_S)
        if not any(words in line for line in self.running.lines):
            raise Broken(f"it ended without {words!r}:\n{self.tail(20)}")

    def exit_code(self, within_s: float) -> int:
        try:
            return self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise Broken(f"still there after {within_s:g} s:\n{''.join(self.running.lines[-10:])}") from None

    def tail(self, lines: int) -> str:
        """The last lines of a container that has ended."""
        self.running.wait_for_end_of_output()
        return "".join(self.running.lines[-lines:])


@contextmanager
def container(
    tag: str,
    model: Path | None = None,
    *,
    memory_bytes: int = MEMORY_BYTES,
    arguments: Sequence[str] = ("serve",),
    environment: Sequence[str] = (),
) -> Iterator[Container]:
    """Do `docker run IMAGE serve` without Docker: own processes, mounts and memory limit, and a tiny /dev/shm."""
    config = inspect(tag)
    name = buildah("from", "--pull-never", tag, quiet=True).strip()
    root = Path(buildah("mount", name, quiet=True).strip())
    mounts = [
        f"mount --rbind /dev {root}/dev",
        f"mount -t tmpfs -o size={SHM_BYTES} shm {root}/dev/shm",
        f"mount -t proc proc {root}/proc",
        f"mount -t sysfs sys {root}/sys",
    ]
    if CGROUP.parent.is_dir():
        CGROUP.mkdir(exist_ok=True)
        (CGROUP / "memory.limit_in_bytes").write_text(str(memory_bytes))
        (CGROUP / "memory.max_usage_in_bytes").write_text("0")
        mounts += [
            f"echo $$ > {CGROUP}/cgroup.procs",
            f"mount -t tmpfs cgroup {root}/sys/fs/cgroup && mkdir {root}/sys/fs/cgroup/memory",
            f"mount --bind {CGROUP} {root}/sys/fs/cgroup/memory",
        ]
    if model is not None:
        (root / "opt/ml/model").mkdir(parents=True, exist_ok=True)
        mounts += [f"mount --bind {model} {root}/opt/ml/model", f"mount -o remount,bind,ro {root}/opt/ml/model"]
    variables = [*config["Env"], "HOME=/root", *environment]
    command = ["env", "-i", f"--chdir={config['WorkingDir']}", *variables, *config["Entrypoint"], *arguments]
    script = " && ".join(["mount --make-rprivate /", *mounts, f'exec chroot {root} "$@"'])
    process = subprocess.Popen(
        ["taskset", "-c", "0,1", "unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child",
         "sh", "-c", script, "sh", *command],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    upper = json.loads(buildah("inspect", name, quiet=True))["ContainerID"]
    store = Path(json.loads(buildah("info", quiet=True))["store"]["GraphRoot"])
    top = next(
        item["layer"]
        for item in json.loads((store / "overlay-containers/containers.json").read_text())
        if item["id"] == upper
    )
    try:
        yield Container(Running(PORT, process), process, store / "overlay" / top / "diff")
    finally:
        process.kill()  # with it, as --kill-child asks, process 1, and so all of its container
        process.wait()
        buildah("umount", name, quiet=True)
        buildah("rm", name, quiet=True)


def own_network() -> None:
    """Move this process into a network with nothing but loopback: every port is free and nobody can be reached."""
    os.unshare(os.CLONE_NEWNET)
    run("ip", "link", "set", "lo", "up")


def weights_folder() -> Path:
    """The official layout of the packages' 8-bit model, for /opt/ml/model."""
    folder = CACHE / "model"
    write_folder(load_weights(WeightsSettings(source="packaged")), folder)
    return folder


def session() -> ClientConnection:
    return connect(f"ws://127.0.0.1:{PORT}/invocations-bidirectional-stream", open_timeout=10, max_size=None)


def say(socket: ClientConnection, text: str) -> None:
    socket.send(json.dumps({"text": text}).encode())  # as SageMaker delivers it: a binary frame


def heard(socket: ClientConnection) -> int:
    """Bytes of audio up to the end of the utterance."""
    audio_bytes = 0
    while True:
        frame = socket.recv(timeout=120)
        if isinstance(frame, bytes):
            audio_bytes += len(frame)
        elif (message := json.loads(frame))["type"] == "synthesis_complete":
            return audio_bytes
        elif message["type"] == "error":
            raise Broken(f"an error frame: {message}")


# Promises. Each returns what to print beside its name, or raises.


def promise_build() -> str:
    for reference in base_references():
        make_base(reference)
    build(IMAGE, ROOT)
    return f"from stand-ins for {', '.join(base_references())}"


def promise_label() -> str:
    config = inspect(IMAGE)
    require(config["Labels"].get(LABEL) == "true", f"labels are {config['Labels']}")
    require(config["Entrypoint"][0] != "/bin/sh", f"the entry point is a shell: {config['Entrypoint']}")
    return f"{' '.join(config['Entrypoint'])} {' '.join(config['Cmd'])}"


def promise_size() -> str:
    sizes = layers(IMAGE)
    for layer, size in sizes.items():
        print(f"  {size / 1e6:>10,.1f} MB  {layer[:12]}")
    return f"{sum(sizes.values()) / 1e9:.2f} GB in {len(sizes)} layers"


def promise_baked_size() -> str:
    build(BAKED, ROOT, weights="packaged")
    added = {layer: size for layer, size in layers(BAKED).items() if layer not in layers(IMAGE)}
    return f"{sum(added.values()) / 1e6:.1f} MB more or instead"


def promise_agent_size() -> str:
    build(AGENT, ROOT, dockerfile="deploy/agent.Dockerfile")
    return f"{sum(layers(AGENT).values()) / 1e9:.2f} GB"


def promise_code_change() -> str:
    with tempfile.TemporaryDirectory() as folder:
        context = Path(folder)
        for name in run("git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard").splitlines():
            if (ROOT / name).is_file():
                (context / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, context / name)
        with open(context / "serve_app/server/ping.py", "a") as code:
            code.write("# changed\n")
        build(CHANGED, context)
    before = layers(IMAGE)
    new = {layer: size for layer, size in layers(CHANGED).items() if layer not in before}
    require(new, "nothing was rebuilt")
    require(sum(new.values()) < CODE_CHANGE_BYTES, f"{sum(new.values()) / 1e6:.0f} MB were rebuilt")
    return f"{len(new)} layers, {sum(new.values()) / 1e6:.1f} MB rebuilt"


def ping() -> int | str:
    """What /ping says. SageMaker gives it two seconds."""
    try:
        return httpx.get(f"http://127.0.0.1:{PORT}/ping", timeout=2.0).status_code
    except httpx.TimeoutException:
        return "silent for 2 s"
    except httpx.TransportError:
        return "refused"


def promise_start(served: Container) -> str:
    """Before the warm-up: no 200, an early request is refused and does not hang. After it: 200."""
    began_s, seen, refused = time.monotonic(), [], None
    while time.monotonic() - began_s < STARTS_WITHIN_S:
        if served.process.poll() is not None:
            raise Broken(f"it ended:\n{served.tail(20)}")
        status = ping()
        if refused is None and status == 503:
            answer = httpx.post(f"http://127.0.0.1:{PORT}/invocations", json={"text": "Too early."}, timeout=5.0)
            refused = answer.status_code
        if status not in seen:
            seen.append(status)
        if status == 200:
            require(refused in (None, 503, 200), f"an early request got {refused}")  # 200: it came just in time
            ways = " → ".join(map(str, seen))
            return f"{time.monotonic() - began_s:.1f} s; /ping {ways}; an early request: {refused}"
        time.sleep(0.25)
    raise Broken(f"not ready after {STARTS_WITHIN_S:g} s: {seen}\n{''.join(served.running.lines[-20:])}")


def promise_invocations() -> str:
    text, expected = next(iter(SENTENCES.items()))
    body = {"text": text, "format": "pcm"}
    answer = httpx.post(f"http://127.0.0.1:{PORT}/invocations", json=body, timeout=60.0)
    require(answer.status_code == 200, f"{answer.status_code} {answer.text[:200]}")
    require(len(answer.content) == expected, f"{len(answer.content)} bytes instead of {expected}")
    return f"{expected} bytes"


def promise_session() -> str:
    with session() as socket:
        for text, expected in SENTENCES.items():
            say(socket, text)
            audio_bytes = heard(socket)
            require(audio_bytes == expected, f"{text!r}: {audio_bytes} bytes instead of {expected}")
        socket.send(b'{"type": "close"}')
        with contextlib.suppress(ConnectionClosed):
            socket.recv(timeout=10)
        require(socket.close_code == 1000, f"closed with {socket.close_code}")
    return f"{len(SENTENCES)} sentences of {', '.join(map(str, SENTENCES.values()))} bytes, close 1000"


def promise_metrics() -> str:
    deadline_s = time.monotonic() + 60
    while True:
        answer = httpx.get(f"http://127.0.0.1:{PORT}/metrics", timeout=10.0)
        require(answer.status_code == 200, f"{answer.status_code} {answer.text[:200]}")
        if "ray_kokoro_utterances_total{" in answer.text:
            return f"{len(answer.text.splitlines())} lines, {answer.headers['content-type']}"
        require(time.monotonic() < deadline_s, f"no utterances among {len(answer.text)} bytes")
        time.sleep(2)


def promise_written(served: Container) -> str:
    files = [path.relative_to(served.written).as_posix() for path in served.written.rglob("*") if path.is_file()]
    strangers = [name for name in files if not name.startswith(MAY_BE_WRITTEN)]
    require(not strangers, f"written elsewhere: {strangers[:10]}")
    return f"{len(files)} files, below {', '.join(sorted({name.split('/')[0] for name in files}))}"


def promise_kernels(served: Container) -> str:
    """The image has no compiler; the kernels that it brings are chosen by this processor."""
    (best, *_) = [target.name for target in supported_targets()] or [""]
    if not best:
        return "none for this processor"
    words = f"native kernels for {best}"
    require(any(words in line and "no native" not in line for line in served.running.lines), f"no line says {words!r}")
    return best


def promise_memory() -> str:
    if not CGROUP.is_dir():
        return "no control group here: not limited, not measured"
    peak = int((CGROUP / "memory.max_usage_in_bytes").read_text())
    failures = int((CGROUP / "memory.failcnt").read_text())
    return f"peak {peak / 2**30:.2f} GiB of {MEMORY_BYTES >> 30}, page cache included, {failures} times at the limit"


def promise_stop_while_speaking(served: Container) -> str:
    with session() as socket:
        say(socket, LONG)
        while not isinstance(socket.recv(timeout=60), bytes):
            pass
        stopped_s = time.monotonic()
        served.terminate()
        while (refused := refused_status()) == 101:  # let in before the order reached the gateway
            pass
        try:
            heard(socket)
        except ConnectionClosed as exc:
            raise Broken(f"cut in the middle: {exc}\n{served.tail(20)}") from exc
        complete_s = time.monotonic() - stopped_s
        with contextlib.suppress(ConnectionClosed):
            socket.recv(timeout=10)
        require(socket.close_code == 1001, f"the session ended with {socket.close_code}")
    code = served.exit_code(EXITS_WITHIN_S)
    took_s = time.monotonic() - stopped_s
    require(code == 0, f"exit code {code}; last lines:\n{served.tail(10)}")
    require(took_s < EXITS_WITHIN_S, f"it took {took_s:.1f} s")
    require(refused in (None, 503), f"a new session got {refused} while the server stops")
    return f"message complete after {complete_s:.1f} s, close 1001; a new one: {refused}; exit 0 after {took_s:.1f} s"


def refused_status() -> int | None:
    """How a new session is answered: the status of a refusal, 101 if it is let in, None if nobody listens."""
    try:
        with session():
            return 101
    except InvalidStatus as exc:
        return exc.response.status_code
    except OSError:
        return None


def promise_stop_starting(served: Container) -> str:
    served.await_line("Started a local Ray instance")
    return promise_stop_idle(served)


def promise_stop_idle(served: Container) -> str:
    began_s = time.monotonic()
    served.terminate()
    code = served.exit_code(EXITS_WITHIN_S)
    require(code == 0, f"exit code {code}; last lines:\n{served.tail(10)}")
    return f"exit 0 after {time.monotonic() - began_s:.1f} s"


def promise_refusal(served: Container, words: str) -> str:
    """It ends by itself, not with 0, was never ready, and its last line says why."""
    began_s = time.monotonic()
    while served.process.poll() is None:
        require(ping() != 200, "/ping said 200")
        require(time.monotonic() - began_s < STARTS_WITHIN_S, "it neither starts nor ends")
        time.sleep(0.25)
    last = served.tail(1).strip()
    require(served.process.returncode not in (0, None), f"exit code {served.process.returncode}")
    require(words in last, f"its last lines do not tell:\n{served.tail(8)}")
    return f"exit {served.process.returncode} after {time.monotonic() - began_s:.1f} s: {last}"


class Report:
    """Promises in the order they were tried, kept or not."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, bool, str]] = []

    def keep(self, name: str, promise: Callable[[], str]) -> bool:
        print(f"== {name}", flush=True)
        try:
            self.rows.append((name, True, promise()))
        except Exception as exc:  # a promise can break in any way; the others are still worth trying
            if not isinstance(exc, Broken):
                traceback.print_exc()
            self.rows.append((name, False, str(exc) or type(exc).__name__))
        print(f"   {self.rows[-1][2]}", flush=True)
        return self.rows[-1][1]

    def print(self) -> None:
        width = max(len(name) for name, _, _ in self.rows)
        print()
        for name, kept, seen in self.rows:
            print(f"{'kept  ' if kept else 'BROKEN'}  {name:<{width}}  {seen.splitlines()[0]}")


def check_server(report: Report) -> None:
    report.keep("the image is built", promise_build)
    report.keep("label and entry point", promise_label)
    report.keep("size", promise_size)
    report.keep("the agent's image is built", promise_agent_size)
    report.keep("a code change rebuilds megabytes", promise_code_change)
    report.keep("weights are baked in", promise_baked_size)
    flat = weights_folder()
    own_network()
    with container(IMAGE, flat) as served:
        if report.keep("starts, 2 CPUs, 4 GiB, /dev/shm 64 MB, no network", lambda: promise_start(served)):
            report.keep("computes by its native kernels", lambda: promise_kernels(served))
            report.keep("/invocations", promise_invocations)
            report.keep("a session in binary frames", promise_session)
            report.keep("/metrics", promise_metrics)
            report.keep("writes only below its own folders", lambda: promise_written(served))
            report.keep("memory", promise_memory)
            report.keep("SIGTERM while it speaks", lambda: promise_stop_while_speaking(served))
    with tempfile.TemporaryDirectory() as folder:
        nested = Path(folder) / "nested"
        shutil.copytree(flat, nested / "kokoro")
        with container(IMAGE, nested) as served:
            if report.keep("weights one folder deeper", lambda: promise_start(served)):
                report.keep("SIGTERM while idle", lambda: promise_stop_idle(served))
        with container(IMAGE, nested) as served:
            report.keep("SIGTERM while it starts", lambda: promise_stop_starting(served))
        corrupt = nested / "kokoro" / MODEL_FILE
        corrupt.write_bytes(corrupt.read_bytes()[:1_000_000])
        with container(IMAGE, nested) as served:
            report.keep("corrupt weights end it", lambda: promise_refusal(served, MODEL_FILE))
        corrupt.unlink()
        with container(IMAGE, nested) as served:
            report.keep("a model folder without the model ends it", lambda: promise_refusal(served, "/opt/ml/model"))
    with container(BAKED) as served:
        if report.keep("starts with baked weights alone", lambda: promise_start(served)):
            report.keep("/invocations with them", promise_invocations)
    if CGROUP.is_dir():
        with container(IMAGE, flat, memory_bytes=1 << 30) as served:
            report.keep("too little memory ends it", lambda: promise_refusal(served, "--memory"))


def check_agent(report: Report) -> None:
    """Built and started on this machine's kind of processor; on arm64 the same wheels have other names."""
    with container(AGENT, arguments=(), environment=AGENT_ENVIRONMENT) as served:
        if report.keep("the agent's image answers /ping", lambda: promise_start(served)):
            report.keep("SIGTERM ends the agent", lambda: promise_stop_idle(served))


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the images and hold them to their promises.")
    parser.add_argument(
        "--clean", action="store_true", help="only remove what earlier runs left: images, layers, cache"
    )
    if parser.parse_args().clean:
        buildah("rm", "--all")
        buildah("rmi", "--all", "--force")
        shutil.rmtree(CACHE, ignore_errors=True)
        return 0
    if os.geteuid():
        sys.exit("it makes root filesystems and namespaces: run it as root")
    if missing := [tool for tool in ("buildah", "debootstrap", "unshare", "ip") if shutil.which(tool) is None]:
        sys.exit(f"not installed: {', '.join(missing)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # so that the container goes with this process
    report = Report()
    check_server(report)
    check_agent(report)
    report.print()
    broken = [name for name, kept, _ in report.rows if not kept]
    if broken:
        print(f"broken: {'; '.join(broken)}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
