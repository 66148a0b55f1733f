"""Declarations: `blocks/*.toml` to frozen `Screening`, with every problem reported at once."""

from harness.config.canonical import from_json, to_json
from harness.config.loading import BLOCKS, Available, available, from_document, load, loads

__all__ = ["BLOCKS", "Available", "available", "from_document", "from_json", "load", "loads", "to_json"]
