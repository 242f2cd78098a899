"""Schedules for processors without vectors or with MVE.

For int8 convolutions and matrix products, with channels last:
                              without vectors    with vectors (MVE)
    sums over all channels    direct             vector_direct
    depthwise                 depthwise          vector_depthwise
`product` matches these kernels, `rows` provides the input rows, `epilogue` and `requantize` compute results from sums. `addition`
adds two tensors. `scalar` schedules all other kernels.
"""
