"""Sorting by integer keys in loop programs: radix sort, and partial selection by a heap.

Elements are ordered by ascending integer keys. A float's key is its bit pattern, which IEEE 754 orders as an integer; NaN is the
greatest, and -0.0 equals 0.0. Of equal keys, the element of lower index comes first.
"""

from __future__ import annotations

from collections.abc import Callable

from inlaid.ops.define import widen
from inlaid.tensor import ir, te
from inlaid.tensor.build import Builder
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim
from inlaid_runtime.types import DType, dtype

DIGIT = 8
"""Bits per digit of the radix sort."""
HEAP_RATIO = 16
"""A heap is used if at most 1 / HEAP_RATIO of the elements are selected."""
SHORT = 64
"""A heap is always used for at most this many elements: a radix sort takes longer for short inputs."""
BLOCK = 64
"""Number of elements that are compared with a heap's root at a time."""


def key_dtype(element_dtype: DType) -> DType:
    """Return the dtype of the sort keys of elements of a dtype."""
    return dtype("int32" if element_dtype.bits <= 32 else "int64")


def sort_key(value: ir.Expr, descending: bool = False) -> ir.Expr:
    """Compute the integer sort key of an element."""
    to = key_dtype(value.dtype)
    least = -(1 << (to.bits - 1))
    if value.dtype.is_float:
        wide = widen(value)
        bits = ir.bitcast(wide, to)
        ordered = te.select(bits < 0, bits ^ te.const(-1 - least, to), bits)
        key = te.select(te.unary("isnan", wide), te.const(-1 - least, to), te.select(bits.equal(least), te.const(0, to), ordered))
    elif value.dtype.bits == to.bits and value.dtype.kind == "uint":
        key = ir.bitcast(value, to) ^ te.const(least, to)
    else:
        key = te.cast(value, to)
    return key ^ te.const(-1, to) if descending else key


def radix_sort(b: Builder, count: Dim, keys: ir.Buffer, order: ir.Buffer, spare: ir.Buffer) -> None:
    """Emit an argsort: store the indices 0 ... count - 1 in `order`, by ascending keys. `order` and `spare` are int64, as long as
    `keys`.

    Digits are processed from the least significant on. The indices are in `order` again after each pair of digits.
    """
    places = b.alloc((1 << DIGIT,), "int64", "places")
    total = b.alloc((), "int64", "total")
    with b.loop(count) as i:
        b.store(order, i, i)
    with b.loop(keys.dtype.bits // (2 * DIGIT), "pair") as pair:
        for half, (source, target) in enumerate(((order, spare), (spare, order))):
            _by_digit(b, count, keys, source, target, places, total, (pair * 2 + half) * DIGIT)


def _by_digit(
    b: Builder, count: Dim, keys: ir.Buffer, source: ir.Buffer, target: ir.Buffer, places: ir.Buffer, total: ir.Buffer, shift: Dim
) -> None:
    """Move indices from `source` to `target`, ordered by the digit of their keys that begins at bit `shift`. Stable."""
    keys_dtype = keys.dtype
    least = te.const(-(1 << (keys_dtype.bits - 1)), keys_dtype)

    def digit(index: Dim) -> arith.Var:
        shifted = (keys[index] ^ least) >> ir.Index(keys_dtype, arith.wrap(shift))
        return b.let(shifted & te.const((1 << DIGIT) - 1, keys_dtype), "digit", (0, (1 << DIGIT) - 1))

    with b.loop(1 << DIGIT, "d") as d:
        b.store(places, d, 0)
    with b.loop(count) as i:
        bucket = digit(i)
        b.store(places, bucket, places[bucket] + 1)
    b.store(total, (), 0)
    with b.loop(1 << DIGIT, "d") as d:
        bucket_size = b.let(places[d], "many")
        b.store(places, d, total[()])
        b.store(total, (), total[()] + bucket_size)
    with b.loop(count) as i:
        number = b.let(source[i], "number", (0, count - 1))
        bucket = digit(number)
        b.store(target, b.let(places[bucket], "place", (0, count - 1)), number)
        b.store(places, bucket, places[bucket] + 1)


def heap_select(
    b: Builder, count: Dim, k: Dim, key: Callable[[Dim, Dim], ir.Expr], order: ir.Buffer, columns: tuple[Dim, Dim] = (1, 1)
) -> None:
    """For each column, store the indices of the `k` elements with the smallest keys, by ascending keys, at the front of the
    column's part of `order` (int64).

    `key(i, column)` is the key of an element. `columns` is (number of columns, its upper bound); `order` has as many equal parts as
    the upper bound. A heap holds the best elements so far; its root has the largest key (J. W. J. Williams, 1964). A block of a
    column is skipped if its minimum key is not below the root's, as for most blocks. Keys of a block are computed for all columns
    together, so that vector instructions run along rows if columns are adjacent in memory.
    """
    column_count, max_columns = columns
    part_size = arith.wrap(order.shape[0]) // max_columns
    keys_dtype = key(0, 0).dtype
    heap = b.alloc(order.shape, keys_dtype, "heap")
    keys = b.alloc((BLOCK, max_columns), keys_dtype, "block_keys")
    heap_position = b.alloc((), "int64", "at")
    inserted_key = b.alloc((), keys_dtype, "key")
    number = b.alloc((), "int64", "number")
    child = b.alloc((), "int64", "child")
    going = b.alloc((), "bool", "going")
    least = b.alloc((max_columns,), keys_dtype, "least")

    def sift(start: Dim, size: ir.Operand) -> None:
        """Insert (inserted_key, number) at `heap_position` of the heap that starts at `start`, sifting it down below larger
        children."""

        def heap_index(value: ir.Expr) -> Dim:
            return start + b.let(value, "place", (0, part_size - 1))

        b.store(going, (), True)
        with b.while_(going[()] & (heap_position[()] * 2 + 1 < size)):
            b.store(child, (), heap_position[()] * 2 + 1)
            with b.if_(child[()] + 1 < size):
                left_child, right_child = heap_index(child[()]), heap_index(child[()] + 1)
                right_is_later = (heap[left_child] < heap[right_child]) | (
                    heap[left_child].equal(heap[right_child]) & (order[left_child] < order[right_child])
                )
                b.store(child, (), te.select(right_is_later, child[()] + 1, child[()]))
            low = heap_index(child[()])
            b.store(going, (), (inserted_key[()] < heap[low]) | (inserted_key[()].equal(heap[low]) & (number[()] < order[low])))
            with b.if_(going[()]):
                high = heap_index(heap_position[()])
                b.store(heap, high, heap[low])
                b.store(order, high, order[low])
                b.store(heap_position, (), child[()])
        end = heap_index(heap_position[()])
        b.store(heap, end, inserted_key[()])
        b.store(order, end, number[()])

    def begin(position: Dim, new_key: ir.Operand, new_number: ir.Operand) -> None:
        b.store(heap_position, (), position)
        b.store(inserted_key, (), new_key)
        b.store(number, (), new_number)

    with b.loop(column_count, "column") as column:
        start = column * part_size
        with b.loop(k) as i:
            b.store(heap, start + i, key(i, column))
            b.store(order, start + i, i)
        half = arith.wrap(k) // 2
        with b.loop(half) as i:
            top = half - 1 - i
            begin(top, heap[start + top], order[start + top])
            sift(start, ir.Index(dtype("int64"), arith.wrap(k)))
    with b.if_(ir.as_expr(arith.compare(">=", k, 1), dtype("bool"))):
        with b.loop(arith.ceildiv(count - k, BLOCK), "block") as block:
            first = k + block * BLOCK
            size = arith.minimum(BLOCK, count - first)
            with b.loop(column_count, "column") as column:
                b.store(least, column, te.highest(keys_dtype))
            with b.loop(size, "j") as j, b.loop(column_count, "column") as column:
                b.store(keys, (j, column), key(first + j, column))
                b.store(least, column, te.minimum(least[column], keys[j, column]))
            with b.loop(column_count, "column") as column:
                start = column * part_size
                with b.if_(least[column] < heap[start]), b.loop(size, "j") as j, b.if_(keys[j, column] < heap[start]):
                    begin(0, keys[j, column], ir.Index(dtype("int64"), arith.wrap(first + j)))
                    sift(start, ir.Index(dtype("int64"), arith.wrap(k)))
        with b.loop(column_count, "column") as column, b.loop(k - 1, "done") as step:
            start, end = column * part_size, k - 1 - step
            b.store(child, (), order[start])
            root = b.let(child[()], "found")
            begin(0, heap[start + end], order[start + end])
            sift(start, ir.Index(dtype("int64"), arith.wrap(end)))
            b.store(order, start + end, root)


def by_share(b: Builder, count: Dim, k: Dim, emit_heap: Callable[[], None], emit_sort: Callable[[], None]) -> None:
    """Call `emit_heap` for inputs that suit a heap (see `HEAP_RATIO` and `SHORT`), else `emit_sort`. Symbolic sizes make it a
    branch at run time."""
    selects = arith.simplify(arith.logical_or(arith.compare("<=", k * HEAP_RATIO, count), arith.compare("<=", count, SHORT)))
    if selects == arith.ONE:
        emit_heap()
    elif selects == arith.ZERO:
        emit_sort()
    else:
        with b.if_(ir.as_expr(selects, dtype("bool"))):
            emit_heap()
        with b.else_():
            emit_sort()


def first_in_order(
    b: Builder, count: Dim, k: Dim, key: Callable[[Dim], ir.Expr], buffers: tuple[ir.Buffer, ir.Buffer, ir.Buffer]
) -> None:
    """Store the indices of the `k` elements with the smallest keys, by ascending keys, at the front of `order`. `key(i)` is
    the key of an element. `buffers` are (keys, order, spare), each of `count` elements."""
    keys, order, spare = buffers

    def emit_sort() -> None:
        with b.loop(count) as i:
            b.store(keys, i, key(i))
        radix_sort(b, count, keys, order, spare)

    by_share(b, count, k, lambda: heap_select(b, count, k, lambda i, _: key(i), order), emit_sort)


def visit_in_order(
    b: Builder, count: Dim, likely: Dim, key: tuple[DType, Callable[[Dim], ir.Expr]], going: ir.Buffer, visit: Callable[[Dim], None]
) -> None:
    """Visit the indices of `count` elements by ascending keys while the 0-d bool `going` is true. `likely` is the expected number
    of visits, at least 1; `key` is (dtype of the keys, function that returns the key of an element).

    Elements are sorted lazily, in runs that hold all keys up to a limit and are a few times `likely` long. Elements that are never
    visited are only compared with limits. The limit is found by bisecting the range of keys.
    """
    keys_dtype, read_key = key
    great = te.const((1 << (keys_dtype.bits - 1)) - 1, keys_dtype)
    index_dtype = dtype("int64")
    keys, run_keys = b.alloc((count,), keys_dtype, "keys"), b.alloc((count,), keys_dtype, "some")
    numbers, order, spare = (b.alloc((count,), index_dtype, name) for name in ("numbers", "order", "spare"))
    least, low, high, middle = (b.alloc((), keys_dtype, name) for name in ("least", "low", "high", "middle"))
    visited, target_count, within = (b.alloc((), index_dtype, name) for name in ("visited", "wanted", "within"))
    with b.loop(count) as i:
        b.store(keys, i, read_key(i))
    b.store(least, (), te.const(-(1 << (keys_dtype.bits - 1)), keys_dtype))
    b.store(visited, (), 0)
    b.store(target_count, (), ir.Index(index_dtype, arith.wrap(likely)))
    extent = ir.Index(index_dtype, arith.wrap(count))
    with b.while_(going[()] & (visited[()] < extent)):
        rest = extent - visited[()]
        b.store(high, (), great)
        b.store(low, (), te.select(rest <= target_count[()] * 4, great, least[()]))
        with b.while_(low[()] < high[()]):
            b.store(middle, (), (low[()] & high[()]) + ((low[()] ^ high[()]) >> te.const(1, keys_dtype)))
            b.store(within, (), 0)
            with b.loop(count) as i:
                inside = (keys[i] >= least[()]) & (keys[i] <= middle[()])
                b.store(within, (), within[()] + te.select(inside, te.const(1, index_dtype), te.const(0, index_dtype)))
            with b.if_(within[()] < target_count[()]):
                b.store(low, (), middle[()] + te.const(1, keys_dtype))
            with b.else_():
                b.store(high, (), middle[()])
                with b.if_(within[()] <= target_count[()] * 4):
                    b.store(low, (), middle[()])
        b.store(within, (), 0)
        with b.loop(count) as i, b.if_((keys[i] >= least[()]) & (keys[i] <= high[()])):
            b.store(numbers, b.let(within[()], "place", (0, count - 1)), i)
            b.store(within, (), within[()] + 1)
        run = b.let(within[()], "run", (0, count))
        first_in_order(b, run, run, lambda i: keys[b.let(numbers[i], "number", (0, count - 1))], (run_keys, order, spare))
        b.store(within, (), 0)
        with b.while_(going[()] & (within[()] < ir.Index(index_dtype, run))):
            run_index = b.let(order[b.let(within[()], "at", (0, count - 1))], "at", (0, count - 1))
            visit(b.let(numbers[run_index], "number", (0, count - 1)))
            b.store(within, (), within[()] + 1)
        b.store(visited, (), visited[()] + ir.Index(index_dtype, run))
        b.store(least, (), high[()] + te.const(1, keys_dtype))
        b.store(target_count, (), target_count[()] * 4)
