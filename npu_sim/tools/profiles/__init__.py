"""Profiles of a device: measured times beside bounds and plans, and calibrations."""
