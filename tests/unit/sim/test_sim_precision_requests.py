"""What a replica asks of its machine, and that a refusal is no error."""

import os
import struct
import threading
from contextlib import suppress
from pathlib import Path

from harness.sim import precision


def descriptors(path):
    """Numbers under which this process holds the file open."""
    held = []
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the listing's own descriptor is gone by now
            if entry.readlink() == path:
                held.append(int(entry.name))
    return held


def test_cores_are_kept_awake_by_a_request_for_zero_microseconds_that_stays_open(tmp_path):
    file = tmp_path / "cpu_dma_latency"
    file.touch()
    assert precision.stay_awake(file)
    assert struct.unpack("=i", file.read_bytes()) == (0,)
    (held,) = descriptors(file)
    os.close(held)


def test_a_machine_without_latency_requests_is_no_error(tmp_path):
    assert not precision.stay_awake(tmp_path / "missing")


def test_a_latency_request_that_is_refused_leaves_nothing_open():
    refusing = Path("/dev/full")
    assert not precision.stay_awake(refusing)
    assert not descriptors(refusing)


def test_the_log_says_what_was_granted():
    assert str(precision.Granted(realtime=True, awake=False)) == (
        "real-time scheduling granted, cores kept awake not permitted"
    )


def test_helpers_come_after_the_loop_and_before_ordinary_threads_where_that_is_permitted():
    def policy():
        thread = threading.get_native_id()
        return os.sched_getscheduler(thread) & ~os.SCHED_RESET_ON_FORK, os.sched_getparam(thread).sched_priority

    with precision.helpers() as pool:
        kind, priority = pool.submit(policy).result()
    assert (kind, priority) in {(os.SCHED_RR, precision.HELPER_PRIORITY), (os.SCHED_OTHER, 0)}
    assert 0 < precision.HELPER_PRIORITY < precision.REALTIME_PRIORITY


def test_cores_are_kept_awake_only_where_that_was_asked_for(tmp_path):
    file = tmp_path / "cpu_dma_latency"
    file.touch()
    granted = precision.ask(realtime=False, awake=False, latency_request=file)
    assert not descriptors(file)
    assert str(granted) == "real-time scheduling not asked for, cores kept awake not asked for"
