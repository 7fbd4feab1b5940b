"""Random hostile use of npu_sim, run before a release: ``python -m benchmarks.hostile``."""
