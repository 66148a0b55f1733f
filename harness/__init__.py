"""kvabba: paired ON/OFF experiments on LLM serving with shared KV caches."""

__version__ = "0.1.0"
