#!/usr/bin/env bash
# Kernel tests without a compiler, for other processors, and with every memory access checked.
set -euo pipefail
cd "$(dirname "$0")/.."
tests=".venv/bin/python -m pytest -q"
by_file="$tests --dist loadfile" # every process compiles its kernels, so a file stays in one process

echo "-- without a compiler"
NUMBA_DISABLE_JIT=1 $tests tests/kernels/test_embedding_dense_backward.py tests/kernels/test_arrival_orders.py \
    tests/kernels/test_reduce_sum.py tests/kernels/test_elementwise.py tests/kernels/test_ulp.py \
    tests/kernels/test_conv_tbc_backward.py

# generic has no fp16 conversions and no fused multiply-add, haswell has no AVX-512: Numba keeps the
# features of this processor where none are named.
for processor in generic: haswell:+avx,+avx2,+f16c,+fma; do
    echo "-- processor $processor"
    NUMBA_CPU_NAME=${processor%%:*} NUMBA_CPU_FEATURES=${processor#*:} $by_file \
        tests/kernels/test_elementwise.py tests/kernels/test_exponential.py tests/kernels/test_conv_tbc_backward.py \
        tests/kernels/test_moe_token_permute_grad.py tests/kernels/test_embedding_dense_backward.py \
        tests/kernels/test_rms_norm.py tests/kernels/test_lanes_edges.py
done

echo "-- every access checked" # where kernels compute; files, caches, forks and sweeps are read in the README's tests
NPU_SIM_CHECK=1 $by_file tests/kernels tests/operators tests/ascend_950 tests/orders \
    --ignore tests/kernels/test_cache.py --ignore tests/kernels/test_threads_and_forks.py \
    --ignore tests/operators/test_broken_packages.py --ignore tests/operators/test_own_operator.py \
    --ignore tests/ascend_950/test_sweeps.py

echo "-- Numba's public interface alone"
NPU_SIM_PLAIN_NUMBA=1 $by_file tests/kernels -m 'long or not long' -k 'golden or sample'
