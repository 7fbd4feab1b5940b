"""Lower bounds and estimates of time, from a plan and the work of its kernel tile by tile."""
