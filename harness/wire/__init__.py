"""Pure decoding of what servers send: SSE, chat chunks, Prometheus text, cache-service status. No clock, no I/O."""
