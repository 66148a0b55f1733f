"""A screening whose client shares its core with CPU hogs says so; it is never just valid."""

import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager

import pytest
from cli_runs import command, declaration, environment

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("taskset") or not shutil.which("setpriv"), reason="needs util-linux"),
]
HOGS = 3
CORE = "0"


@contextmanager
def hogs():
    """Processes that never leave the core."""
    spin = ["taskset", "-c", CORE, sys.executable, "-c", "while True: pass"]
    started = [subprocess.Popen(spin) for _ in range(HOGS)]
    try:
        yield
    finally:
        for hog in started:
            hog.kill()
            hog.wait()


def test_a_screening_beside_cpu_hogs_is_incomplete_and_names_the_client(tmp_path):
    path = declaration(tmp_path, "hogged")
    # Root may ask for real-time priority, which shields the client; what is tested is a client without that right.
    unprivileged = ["setpriv", "--bounding-set=-sys_nice", "--inh-caps=-sys_nice"] if os.geteuid() == 0 else []
    argv = [*unprivileged, "taskset", "-c", CORE, *command("run", path, "--json")]
    with hogs():
        done = subprocess.run(argv, env=environment(tmp_path), capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 1, done.stderr
    verdict = json.loads(done.stdout)
    assert verdict["status"] == "incomplete"
    assert verdict["excluded"] > 0
    assert "row.client_limited" in {finding["rule"] for finding in verdict["findings"]}
