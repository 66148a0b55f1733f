"""The machine a screening runs on: what it is, what it has left, who else used it."""

from harness.host.contention import Contention, ContentionProbe
from harness.host.facts import host_facts
from harness.host.gpu import Gpu, gpus, memory_in_use
from harness.host.memory import memory_available

__all__ = ["Contention", "ContentionProbe", "Gpu", "gpus", "host_facts", "memory_available", "memory_in_use"]
