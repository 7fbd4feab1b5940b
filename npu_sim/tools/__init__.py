"""Tools that stand on the core, for people with a device, a log, a profile or a browser."""
