"""How kernels are computed on processors without vectors, or with few.

Of 8-bit convolutions and matrix products, with channels last:
                              without vectors    with vectors (MVE)
    sums over all channels    direct             vector_direct
    single channels           depthwise          vector_depthwise
`product` finds what they sum, `rows` where its rows lie, and `epilogue`, with `requantise`, what becomes of sums. `addition` adds
two tensors; `scalar` takes everything else.
"""
