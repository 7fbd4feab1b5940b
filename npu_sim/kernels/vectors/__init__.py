"""Vector code for kernels: lanes, blocks of lanes, whole cache lines, sums and exponentials."""
