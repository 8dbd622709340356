"""Memory stays flat and threads come through, for a moment; stress.py runs longer."""

import stress


def test_memory_stays_flat():
    assert stress.leaks(600) < 8e6


def test_threads_with_hooks_come_through():
    done = stress.threads(3.0)
    assert all(steps > 0 for steps in done)
