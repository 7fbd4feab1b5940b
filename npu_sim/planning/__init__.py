"""From a checked call to its :class:`~npu_sim.plan_model.Plan`: path, buffers, ranges, workspace and the reasons, one operator a file."""
