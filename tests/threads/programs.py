"""Loop programs for tests of printed kernel text."""

AXPY = """
program axpy(a: float32[], x: float32[n], y: float32[n]) -> (z: float32[n]):
  size n: 1..1000
  for b in (n // 8), thread, "blockIdx.x":
    for lane in 8, vectorized:
      z[((b * 8) + lane)] = ((a[] * x[((b * 8) + lane)]) + y[((b * 8) + lane)])
"""
SHARING = """
program sharing(x: float32[8]) -> (y: float32[8], z: int8[8]):
  for i in 1, thread, "blockIdx.x":
    alloc a: float32[8] in "shared"
    alloc b: int8[8] in "shared"
    for t in 8, thread, "threadIdx.x":
      a[t] = x[t]
    for u in 8, thread, "threadIdx.x":
      y[u] = a[(7 + (u * -1))]
    for v in 8, thread, "threadIdx.x":
      b[v] = int8(7)
    for w in 8, thread, "threadIdx.x":
      z[w] = b[(7 + (w * -1))]
"""
