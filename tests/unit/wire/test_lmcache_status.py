import pytest

from harness.wire.lmcache_status import StatusError, read_status


def test_what_a_version_does_not_say_is_none_and_not_zero() -> None:
    status = read_status(b'{"is_healthy": true}')
    assert status.healthy
    assert (status.write_locked, status.objects, status.usage_ratio, status.idle) == (None, None, None, None)


@pytest.mark.parametrize("part", ["write_locked_count", "read_locked_count"])
def test_a_held_lock_is_not_idle(part: str) -> None:
    locks = {"write_locked_count": 0, "read_locked_count": 0, part: 1}
    body = str({"storage_manager": {"l1_manager": locks}}).replace("'", '"')
    assert read_status(body).idle is False


def test_queued_stores_are_not_idle_either() -> None:
    body = b"""{"storage_manager": {"l1_manager": {"write_locked_count": 0, "read_locked_count": 0},
        "store_controller": {"pending_keys_count": 0, "in_flight_task_count": 2}}}"""
    assert read_status(body).idle is False
    assert read_status(body).queued_stores == 2


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]"])
def test_a_body_that_is_no_object_is_an_error(body: bytes) -> None:
    with pytest.raises(StatusError):
        read_status(body)
