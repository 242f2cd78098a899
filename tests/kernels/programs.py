"""Kernels whose printed form is looked at, as loop programs in text."""

AXPY = """
program axpy(a: float32[], x: float32[n], y: float32[n]) -> (z: float32[n]):
  size n: 1..1000
  for b in (n // 8), thread, "blockIdx.x":
    for lane in 8, vectorized:
      z[((b * 8) + lane)] = ((a[] * x[((b * 8) + lane)]) + y[((b * 8) + lane)])
"""
SCATTER = """
program scatter(x: int64[32], at: int64[32]) -> (y: int64[32]):
  for b in 1, thread, "blockIdx.x":
    alloc s: int64[32] in "shared"
    for t in 32, thread, "threadIdx.x":
      let p = at[t] in 0..31:
        s[p] = x[t]
    for u in 32, thread, "threadIdx.x":
      y[u] = s[(31 + (u * -1))]
"""
GATHER = """
program gather(x: float32[100], at: int64[64], m: bool[64]) -> (y: float32[64]):
  for b in 8, thread, "blockIdx.x":
    for lane in 8, vectorized:
      y[((b * 8) + lane)] = float32(1.0)
      if m[((b * 8) + lane)]:
        y[((b * 8) + lane)] = x[checked(at[((b * 8) + lane)], 0, 99)]
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
LOOP = """
program loop(x: int32[4, 8], n: int32[4]) -> (y: int32[4, 8]):
  for b in 4, thread, "blockIdx.x":
    alloc s: int32[2, 8] in "shared"
    alloc k: int32[] in "shared"
    for t in 8, thread, "threadIdx.x":
      s[0, t] = x[b, t]
    k[] = int32(0)
    while (k[] < n[b]):
      for u in 8, thread, "threadIdx.x":
        s[1, u] = (s[0, ((u + 1) % 8)] + int32(1))
      for v in 8, thread, "threadIdx.x":
        s[0, v] = s[1, v]
      k[] = (k[] + int32(1))
    if (int32(1) < n[b]):
      for w in 8, thread, "threadIdx.x":
        s[1, w] = s[0, (7 + (w * -1))]
      for z in 8, thread, "threadIdx.x":
        s[0, z] = s[1, z]
    for q in 8, thread, "threadIdx.x":
      y[b, q] = s[0, q]
"""
