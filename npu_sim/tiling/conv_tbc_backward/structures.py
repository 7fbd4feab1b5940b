"""Byte layout of the tiling structures of the two cube kernels (page ``tiling_bytes``)."""

from npu_sim.tiling.fields import Run, Structure

STRUCTURES = (
    Structure(
        "Conv3DBackpropFilterV2",
        "8.5",
        (
            Run("uint64_t", "batchDim", "params"),
            Run("uint32_t", "groupDim mDim kDim nDim dkDim totalL1Size", "params"),
            Run(
                "uint32_t",
                "batch cin cout cin1G cout1G dout ho wo di hi wi dk hk wk group strideD strideH "
                "strideW padFront padBack padUp padDown padLeft padRight dilationD dilationH "
                "dilationW channelSize al0Pbuffer bl0Pbuffer cl0Pbuffer al1Pbuffer bl1Pbuffer "
                "baseM baseK baseN m0 k0 n0 stepM stepN stepKa stepKb iterateOrder bl1Bound "
                "hf32Flag singleCoreDk singleCoreGroup singleCoreCout singleCoreHo",
                "dwTiling",
            ),
            Run("uint64_t", "singleCoreBatch singleCoreCin", "dwTiling"),
            Run(
                "uint32_t", "coreBindOrder usedCoreNum singleCoreM singleCoreN", "basicBlockTiling"
            ),
            Run("uint64_t", "singleCoreK", "basicBlockTiling"),
            Run("uint32_t", "streamKType coreStreamK", "basicBlockTiling", since="9.1"),
        ),
    ),
    Structure(
        "Conv3DBackpropInputV2",
        "8.5",
        (
            Run("uint32_t", "batchDim groupDim mDim kDim nDim dDim", "params"),
            Run("uint64_t", "coreNum", "params"),
            Run(
                "uint32_t",
                "batch cin cout cout1 cin1 cout1G cin1G c0 c0Bits dout ho wo di hi wi dk hk wk "
                "group strideD strideH strideW padFront padBack padUp padDown padLeft padRight "
                "backpropPadTail backpropPadUp backpropPadDown backpropPadLeft backpropPadRight "
                "dilationD dilationH dilationW al0Pbuffer bl0Pbuffer cl0Pbuffer al1Pbuffer "
                "bl1Pbuffer singleCoreGroup singleCoreCout singleCoreCout1 singleCoreCin1 "
                "singleCoreDin singleCoreHo baseM baseK baseN baseD baseBatch baseGroup stepM "
                "stepN stepKa stepKb stepBatch stepGroup iterateOrder",
                "conv3DDxTiling",
            ),
            Run("int32_t", "hf32Flag initOutputFlag reserved", "conv3DDxTiling"),
            Run("uint64_t", "singleCoreBatch singleCoreM singleCoreCin", "conv3DDxTiling"),
        ),
    ),
)
"""gradWeight and gradInput; planners know some of their fields only."""
