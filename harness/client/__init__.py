"""The client: one request to one named replica, stamped as close to the wire as this machine allows."""

from harness.client.calibrate import ErrorBar, calibrate
from harness.client.limits import ClientLimits, client_limited
from harness.client.replica_client import RawResult, ReplicaClient, open_client
from harness.client.settings import Call, ClientSettings

__all__ = [
    "Call",
    "ClientLimits",
    "ClientSettings",
    "ErrorBar",
    "RawResult",
    "ReplicaClient",
    "calibrate",
    "client_limited",
    "open_client",
]
