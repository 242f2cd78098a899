"""Memory and queues of the device. A driver's calls replace this file.

Work is enqueued and runs in order when an event is awaited, as late as a device may run it: so missing synchronization shows.
"""

import itertools
import math
import threading
from collections import deque

import numpy as np

from inlaid_runtime.errors import OutOfMemory
from inlaid_runtime.plugins import Device, MemoryFacts

CAPACITY = 1 << 30
"""Bytes of main memory of the device."""


class Queue:
    """Commands in order; `finished` of `enqueued` ones have run."""

    def __init__(self):
        self.commands, self.enqueued, self.finished = deque(), 0, 0

    def append(self, command):
        self.commands.append(command)
        self.enqueued += 1

    def run(self, number):
        """Run commands until `number` have run. After an error, which is raised once, none of the enqueued ones runs."""
        try:
            while self.finished < number:
                self.finished += 1
                self.commands.popleft()()
        except BaseException:
            self.commands.clear()
            self.finished = self.enqueued
            raise


class AcmeDevice(Device):
    def __init__(self):
        self._memory = {}
        self._allocated_bytes = 0
        self._handles = itertools.count(1)
        self.lock = threading.RLock()  # the garbage collector may free memory during a call

    def allocate(self, size):
        with self.lock:
            if size > CAPACITY - self._allocated_bytes:
                raise OutOfMemory(f"acme needs {size} bytes of device memory, {CAPACITY - self._allocated_bytes} are free")
            handle = next(self._handles)
            self._memory[handle] = np.empty(size, np.uint8)
            self._allocated_bytes += size
            return handle

    def free(self, buffer):
        with self.lock:
            size = self._memory.pop(buffer).size  # first: the garbage collector may free another buffer during the call
            self._allocated_bytes -= size

    def memory(self):
        return MemoryFacts(CAPACITY, CAPACITY - self._allocated_bytes)

    def queue(self):
        return Queue()

    def release(self, queue):
        """Finish the work of a queue: its commands may write memory that others read."""
        with self.lock:
            queue.run(queue.enqueued)

    def event(self, queue):
        return queue, queue.enqueued

    def wait(self, queue, event):
        other, number = event
        self.enqueue(queue, lambda: other.run(number))

    def synchronize(self, event):
        queue, number = event
        with self.lock:
            queue.run(number)

    def upload(self, source, target, queue):
        values = source.copy()  # the caller may change it at once
        self.enqueue(queue, lambda: np.copyto(self.view(target), values))

    def download(self, source, target, queue):
        self.enqueue(queue, lambda: np.copyto(target, self.view(source)))

    def copy(self, source, target, queue):
        self.enqueue(queue, lambda: np.copyto(self.view(target), self.view(source)))

    def enqueue(self, queue, command):
        with self.lock:
            queue.append(command)

    def view(self, tensor):
        """Return the elements of a tensor. A driver passes an address to the device instead."""
        size = math.prod(tensor.shape) * tensor.dtype.itemsize
        if not size:
            return np.empty(tensor.shape, tensor.dtype)
        return self._memory[tensor.buffer][tensor.offset : tensor.offset + size].view(tensor.dtype).reshape(tensor.shape)
