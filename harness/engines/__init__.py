"""Start, watch and end the processes of an arm."""

from harness.engines.device_memory import DeviceMemory
from harness.engines.events import LaunchEvent
from harness.engines.fingerprint import ProcessFingerprint
from harness.engines.launching import launch
from harness.engines.running import Endpoint, RunningArm
from harness.engines.teardown import StopReport

__all__ = ["DeviceMemory", "Endpoint", "LaunchEvent", "ProcessFingerprint", "RunningArm", "StopReport", "launch"]
