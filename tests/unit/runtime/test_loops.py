"""What a loop works with between iterations."""

from __future__ import annotations

import numpy as np

from inlaid_runtime.execution.loops import DeviceState, State


def test_a_state_is_written_to_the_array_before_last() -> None:
    state = State(np.zeros(2), donated=False)
    assert state.target([state]) is None  # the first array is the caller's
    state.take(first := np.ones(2))
    assert state.target([state]) is None
    state.take(np.ones(2))
    assert state.target([state]) is first


def test_a_buffer_that_another_state_has_taken_over_is_not_written() -> None:
    one, other = (State(np.zeros(2), donated=True) for _ in range(2))
    states: list[State | DeviceState] = [one, other]
    for _ in range(2):
        one.take(np.ones(2))
        other.take(np.ones(2))
    buffer = other.value
    one.take(buffer)  # an update in place of what the other held
    other.take(np.ones(2))
    assert one.value is buffer and other.target(states) is not buffer
