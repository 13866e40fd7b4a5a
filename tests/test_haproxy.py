"""serve_app/haproxy, which Ray Serve starts for HAProxy, on the configuration that this version of Ray writes."""

import subprocess
from pathlib import Path

from ray.serve._private.haproxy_templates import HAPROXY_CONFIG_TEMPLATE

SCRIPT = Path(__file__).resolve().parent.parent / "serve_app" / "haproxy"


def test_three_lines_are_mended_the_port_of_the_product_is_not_touched_and_haproxy_gets_rays_arguments(tmp_path):
    config = tmp_path / "haproxy.cfg"
    config.write_text(HAPROXY_CONFIG_TEMPLATE)
    environment = {"SERVE_APP_HAPROXY": "/bin/echo", "PATH": "/usr/bin:/bin"}
    command = [SCRIPT, "-db", "-f", config, "-sf", "17"]
    started = subprocess.run(command, env=environment, capture_output=True, check=True, text=True)
    assert started.stdout == f"-db -f {config} -sf 17\n"
    before, after = HAPROXY_CONFIG_TEMPLATE.splitlines(), config.read_text().splitlines()
    changed = [(old.strip(), new.strip()) for old, new in zip(before, after, strict=True) if old != new]
    assert changed == [
        (
            "stats socket {{ config.socket_path }} mode 666 level admin expose-fd listeners",
            "stats socket {{ config.socket_path }} mode 600 level admin expose-fd listeners",
        ),
        ("bind :{{ config.metrics_port }}", "bind 127.0.0.1:{{ config.metrics_port }}"),
        ("bind *:{{ config.stats_port }}", "bind 127.0.0.1:{{ config.stats_port }}"),
    ]
