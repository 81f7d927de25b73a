"""The CUDA-graph timer against a stand-in for torch.cuda: what it captures, replays and divides by."""

import os
import sys
import types
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import timing  # noqa: E402


class FakeCuda:
    """Counts what the timer does; an event pair around a replay is 2 ms apart per captured call."""

    def __init__(self):
        self.captured, self.replays, self.capturing = 0, 0, False

    def api(self):
        fake = self

        class Event:
            def __init__(self, enable_timing):
                self.at = None

            def record(self):
                self.at = fake.replays * fake.captured * 2.0

            def elapsed_time(self, other):
                return other.at - self.at

        class Graph:
            def capture_begin(self):
                fake.capturing = True

            def capture_end(self):
                fake.capturing = False

            def replay(self):
                fake.replays += 1

            def reset(self):
                pass

        class Stream:
            def wait_stream(self, _other):
                pass

            def __enter__(self):
                return self

            def __exit__(self, *_):
                return False

        cuda = types.SimpleNamespace(
            Event=Event, CUDAGraph=Graph, Stream=Stream, current_stream=Stream, stream=lambda stream: stream,
            synchronize=lambda: None,
            get_device_properties=lambda _index: types.SimpleNamespace(L2_cache_size=50 * 2**20),
        )
        return types.SimpleNamespace(cuda=cuda)


class GraphTimer(unittest.TestCase):
    def test_calls_cycle_through_copies_and_time_is_per_call(self):
        fake, order = FakeCuda(), []

        def call(name):
            self.assertTrue(fake.capturing)
            fake.captured += 1
            order.append(name)

        timer = timing.CudaTimer(fake.api(), repeats=5)
        result = timer.time([lambda: call("a"), lambda: call("b"), lambda: call("c")], timing.Plan(7, 3))
        self.assertEqual("".join(order), "abcabca")
        self.assertEqual(fake.replays, 2 + 5)
        self.assertEqual((result.samples, result.median_us), (5, 2000.0))
        self.assertEqual(timer.l2_bytes, 50 * 2**20)

    def test_a_failing_capture_is_ended(self):
        fake = FakeCuda()
        timer = timing.CudaTimer(fake.api(), repeats=1)
        with self.assertRaises(ZeroDivisionError):
            timer.time([lambda: 1 / 0], timing.Plan(2, 1))
        self.assertFalse(fake.capturing)


if __name__ == "__main__":
    unittest.main()
