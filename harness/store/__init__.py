"""Results folders: explicit Parquet schemas, atomic commits with the manifest last, archives, and the reader."""

from harness.store.folder import RunFolder
from harness.store.reader import read_run
from harness.store.writer import BlockWriter

__all__ = ["BlockWriter", "RunFolder", "read_run"]
