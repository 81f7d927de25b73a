"""Kernels, buffers, choice and run loop on the CPU. Skipped where torch is missing."""

import contextlib
import csv
import importlib.util
import io
import math
import os
import subprocess
import sys
import tempfile
import types
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, HERE)

try:
    import torch
except ImportError:
    torch = None

import attention  # noqa: E402
import grids  # noqa: E402
import measure  # noqa: E402
import timing  # noqa: E402
import writer  # noqa: E402

if torch is not None:
    import choose
    import kernels
    import runner
    import small
    from buffers import Arena

needs_torch = unittest.skipIf(torch is None, "torch is not installed: tests of the kernels on the CPU skipped")


def cpu_env():
    return kernels.Env(torch, "cpu", Arena(torch, "cpu"))


@needs_torch
class Attention(unittest.TestCase):
    def test_reference_agrees_with_a_hand_worked_chunk(self):
        # One head of one dimension, all scores 0: each query averages the values it may see.
        problem = attention.Problem(1, 1, 1, 0, (2,), (4,))
        q, k = torch.zeros(2, 1, 1), torch.zeros(4, 1, 1)
        v = torch.tensor([1.0, 2.0, 3.0, 6.0]).view(4, 1, 1)
        torch.testing.assert_close(attention.naive(torch, problem, q, k, v).flatten(), torch.tensor([2.0, 3.0]))
        windowed = attention.windowed(problem, 2)
        torch.testing.assert_close(attention.naive(torch, windowed, q, k, v).flatten(), torch.tensor([2.5, 4.5]))

    def test_backends_of_the_cpu_agree_with_the_reference(self):
        for phase in ("attention_prefill", "attention_decode"):
            for problem in attention.check_problems(phase, 32, 8):
                for name in attention.CPU_BACKENDS:
                    if name == "sdpa_lower_right" and not problem.uniform:
                        continue
                    error = attention.check(torch, name, problem, "cpu")
                    self.assertLess(error, attention.REL_BF16_ATTENTION, (name, problem))
                error = attention.check(torch, "sdpa_per_request", attention.windowed(problem, 5), "cpu")
                self.assertLess(error, attention.REL_BF16_ATTENTION, problem)

    def test_upper_left_mask_would_fail_the_check(self):
        def upper_left(torch, problem, device):
            def forward(q, k, v):
                parts = [x.view(2, -1, x.shape[1], x.shape[2]).transpose(1, 2) for x in (q, k, v)]
                out = torch.nn.functional.scaled_dot_product_attention(*parts, is_causal=True, enable_gqa=True)
                return out.transpose(1, 2).reshape(q.shape)
            return forward

        without, with_prior = attention.check_problems("attention_prefill", 32, 8)[:2]
        with mock.patch.dict(attention.BACKENDS, wrong=upper_left):
            self.assertLess(attention.check(torch, "wrong", without, "cpu"), attention.REL_BF16_ATTENTION)
            self.assertGreater(attention.check(torch, "wrong", with_prior, "cpu"), 0.2)

    def test_uneven_lengths_as_even_ones_would_fail_the_check(self):
        problem = attention.check_problems("attention_decode", 32, 8)[0]
        even = attention.Problem(8, 2, 32, 0, problem.q_lens, (23, 23, 22))

        def blind(torch, _problem, device):
            return attention.sdpa_per_request(torch, even, device)

        with mock.patch.dict(attention.BACKENDS, wrong=blind):
            self.assertGreater(attention.check(torch, "wrong", problem, "cpu"), 0.2)

    def test_packed_operators_get_cumulative_lengths_and_the_right_mask(self):
        seen = []

        def forward(q, k, v, cu_q, cu_k, max_q, max_k, dropout, causal, debug, **window):
            seen.append((cu_q.tolist(), cu_k.tolist(), max_q, max_k, causal, window))
            return (q,)

        fake = types.SimpleNamespace(
            ops=types.SimpleNamespace(aten=types.SimpleNamespace(_flash_attention_forward=forward)),
            tensor=torch.tensor, int32=torch.int32,
        )
        chunk = attention.Problem(8, 2, 32, 0, (3, 3), (7, 7))
        decode = attention.Problem(8, 2, 32, 0, (1, 1), (5, 9))
        for problem in (chunk, decode, attention.windowed(chunk, 4)):
            attention.flash_varlen(fake, problem, "cpu")(None, None, None)
        self.assertEqual(seen, [
            ([0, 3, 6], [0, 7, 14], 3, 7, True, {}),
            ([0, 1, 2], [0, 5, 14], 1, 9, False, {}),
            ([0, 3, 6], [0, 7, 14], 3, 7, False, {"window_size_left": 3, "window_size_right": 0}),
        ])


@needs_torch
class Kernels(unittest.TestCase):
    def test_experts_agree_with_float32_for_every_implementation_and_split(self):
        env = cpu_env()
        for ep in (1, 2, 4):
            for distribution in ("balanced", "power_law_1.2"):
                for tokens in (1, 33):
                    key = dict(choose.moe_check_case(env, "bfloat16").key)
                    key.update(moe_ep_size=ep, distribution=distribution, num_tokens=tokens)
                    case = grids.Case("moe", 0, key)
                    for name in kernels.GROUPED:
                        if name == "grouped_mm" and not hasattr(torch, "_grouped_mm"):
                            continue
                        error = kernels.check_moe(env, case, name)
                        self.assertLess(error, choose.REL_BF16, (name, key))

    def test_fp8_experts_quantise_their_activations_with_scales_that_restore_them(self):
        def stand_in(a, w, a_scale, w_scale, offs, out_dtype, use_fast_accum):
            product = torch._grouped_mm(a.to(torch.bfloat16), w.to(torch.bfloat16), offs=offs)
            return (product.float() * a_scale.view(-1, 1)).to(out_dtype)

        if not hasattr(torch, "_grouped_mm"):
            self.skipTest("this torch has no grouped product")
        env = cpu_env()
        with mock.patch.object(torch, "_scaled_grouped_mm", stand_in):
            error = kernels.check_moe(env, choose.moe_check_case(env, "fp8"), "grouped_mm")
        self.assertLess(error, choose.REL_FP8_MOE)
        self.assertGreater(error, 0.01)

    def test_gemm_agrees_with_float32(self):
        self.assertLess(kernels.check_gemm(cpu_env(), "bfloat16"), choose.REL_BF16)

    def test_copies_of_a_case_do_not_overlap_and_are_random(self):
        arena = Arena(torch, "cpu")
        arena.begin_case()
        views = arena.take(torch.bfloat16, [(5, 3), (7,), (5, 3)])
        spans = sorted((view.data_ptr(), view.data_ptr() + 2 * view.numel()) for view in views)
        self.assertTrue(all(a[1] <= b[0] for a, b in zip(spans, spans[1:])))
        self.assertTrue(all(view.float().std() > 0.3 for view in views))
        pointer = views[0].data_ptr()
        arena.begin_case()
        self.assertEqual(arena.take(torch.bfloat16, [(2, 2)])[0].data_ptr(), pointer)

    def test_attention_case_becomes_its_batch(self):
        case = next(c for c in grids.cases("attention_decode", "default") if c.max_over_mean == 4.0)
        problem = kernels.problem_of(case)
        self.assertEqual(sum(problem.kv_lens), case.key["kv_tokens_total"])
        self.assertEqual(max(problem.kv_lens), case.key["kv_tokens_max"])
        self.assertTrue(problem.decode)
        chunk = kernels.problem_of(grids.Case("attention_prefill", 0, {
            "num_heads": 4, "num_kv_heads": 2, "head_dim": 16, "kv_cache_dtype": "bfloat16", "window_size": 0,
            "batch_size": 2, "num_scheduled_tokens": 5, "num_computed_tokens": 9,
        }))
        self.assertEqual((chunk.q_lens, chunk.kv_lens), ((5, 5), (14, 14)))

    def test_plain_small_kernels_launch_more_than_one_kernel_where_they_must(self):
        x, residual, weight = torch.randn(3, 8), torch.randn(3, 8), torch.ones(8)
        self.assertEqual(small.count_launches(torch, lambda: x.add_(1)), 1)
        self.assertEqual(small.count_launches(torch, lambda: x.t()), 0)
        self.assertGreaterEqual(
            small.count_launches(torch, lambda: small.fused_add_rms_norm(torch, x, residual, weight)), 2
        )

    def test_rotary_keeps_the_length_of_every_head(self):
        env = cpu_env()
        heads, cosine, sine, positions = small.operands("rotary", env, 7, 256)
        before = heads.float().norm(dim=-1)
        after = small.rotary(torch, heads.clone(), cosine, sine, positions).float().norm(dim=-1)
        torch.testing.assert_close(after, before, rtol=2e-2, atol=0.0)

    @unittest.skipIf(torch is None or importlib.util.find_spec("triton") is None, "triton is not installed")
    def test_fused_small_kernels_agree_with_torch_in_the_interpreter(self):
        # The interpreter truncates to fp8 where a GPU rounds, hence the wider tolerance there.
        script = (
            "import sys, torch, small, kernels; from buffers import Arena; from fused import FUSED\n"
            "env = kernels.Env(torch, 'cpu', Arena(torch, 'cpu'))\n"
            "assert len(FUSED) == 6\n"
            "for name in FUSED:\n"
            "    width = {'rotary': 1152, 'reshape_and_cache': 256}.get(name, 1536)\n"
            "    error = small.compare(name, env, 37, width)\n"
            "    assert error < (0.08 if name == 'quantise_fp8' else 0.01), (name, error)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=HERE, env={**os.environ, "TRITON_INTERPRET": "1"},
            capture_output=True, text=True,
        )
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])


@needs_torch
class Runs(unittest.TestCase):
    def outcome_of(self, failure):
        env = cpu_env()
        env.chosen[("gemm", "bfloat16")] = "bfloat16"
        cases = grids.cases("gemm", "tiny", ("bfloat16",))
        build, flushed = kernels.build, []

        def sometimes(case, env, copies):
            if case.key["m"] == 5:
                raise failure
            return build(case, env, copies)

        with mock.patch.object(kernels, "build", sometimes):
            result = runner.run_table(cases, env, timing.HostTimer(3), math.inf, lambda o: flushed.append(len(o.rows)))
        self.assertEqual(flushed, [4])
        return result

    def test_out_of_memory_skips_the_shape_and_counts_it(self):
        outcome = self.outcome_of(torch.cuda.OutOfMemoryError("CUDA out of memory"))
        self.assertEqual((len(outcome.rows), outcome.out_of_memory, outcome.unsupported), (4, 2, 0))

    def test_out_of_memory_hidden_behind_a_broken_capture_is_recognised(self):
        error = RuntimeError("capture invalidated")
        error.__context__ = RuntimeError("CUDA error: out of memory")
        self.assertTrue(runner.is_out_of_memory(error))
        self.assertFalse(runner.is_out_of_memory(RuntimeError("illegal memory access")))

    def test_other_failures_are_named_once(self):
        outcome = self.outcome_of(RuntimeError("strides must be multiples of 16 bytes"))
        self.assertEqual((len(outcome.rows), outcome.unsupported, len(outcome.notes)), (4, 2, 1))
        self.assertIn("strides", outcome.notes[0])

    def test_a_spent_budget_stops_and_counts_the_rest(self):
        cases = grids.cases("gemm", "tiny", ("bfloat16",))
        outcome = runner.run_table(cases, cpu_env(), timing.HostTimer(1), 0.0, lambda _o: None)
        self.assertEqual((outcome.planned, outcome.out_of_time, outcome.rows), (6, 6, []))

    def test_cpu_run_writes_all_tables_and_says_it_is_no_measurement(self):
        with tempfile.TemporaryDirectory() as scratch:
            out = os.path.join(scratch, "run")
            command = [sys.executable, os.path.join(HERE, "measure.py"), "--device", "cpu", "--tiny", "--out", out]
            done = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            for table, columns in writer.COLUMNS.items():
                with open(os.path.join(out, table + ".csv"), encoding="utf-8") as file:
                    rows = list(csv.reader(file))
                self.assertEqual(tuple(rows[0]), columns)
                self.assertGreater(len(rows), 5, table)
            with open(os.path.join(out, "meta.toml"), encoding="utf-8") as file:
                meta = file.read()
            self.assertIn('kind = "not a measurement"', meta)
            self.assertIn('device = "cpu"', meta)
            self.assertNotIn(scratch, meta)
            self.assertNotIn("unfinished", meta)
            again = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual(again.returncode, 1)
            self.assertIn("not empty", again.stderr)

    def cpu_run(self, folder, *more):
        with contextlib.redirect_stderr(io.StringIO()):
            argv = ["--device", "cpu", "--tiny", "--out", folder, "--kernels", "gemm", *more]
            return measure.main(argv)

    def test_a_table_without_rows_leaves_no_file_and_is_counted(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(self.cpu_run(folder, "--seconds-budget", "0"), 0)
            self.assertEqual(sorted(os.listdir(folder)), ["meta.toml", "spread.csv"])
            with open(os.path.join(folder, "meta.toml"), encoding="utf-8") as file:
                self.assertIn("[tables.gemm]\nplanned = 18\nmeasured = 0\n", file.read())

    def test_what_a_killed_run_leaves_says_what_it_is(self):
        class Killed(BaseException):
            pass

        with tempfile.TemporaryDirectory() as folder:
            with mock.patch.object(runner, "run_table", side_effect=Killed), self.assertRaises(Killed):
                self.cpu_run(folder)
            with open(os.path.join(folder, "meta.toml"), encoding="utf-8") as file:
                meta = file.read()
        self.assertIn('kind = "not a measurement"', meta)
        self.assertIn("unfinished", meta)


if __name__ == "__main__":
    unittest.main()
