"""Grids, distributions, estimates, plans and files: everything that needs neither torch nor a GPU."""

import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import device  # noqa: E402
import distributions  # noqa: E402
import estimates  # noqa: E402
import grids  # noqa: E402
import measure  # noqa: E402
import runner  # noqa: E402
import synthetic  # noqa: E402
import timing  # noqa: E402
import writer  # noqa: E402


class Grids(unittest.TestCase):
    def test_no_key_is_planned_twice(self):
        for tier in grids.TIERS:
            for table in grids.TABLES:
                keys = [tuple(case.key.items()) for case in grids.cases(table, tier)]
                self.assertEqual(len(keys), len(set(keys)), f"{tier} {table}")

    def test_keys_have_the_columns_of_their_table(self):
        measured = {"latency_us", "launches"}
        for tier in grids.TIERS:
            for table in grids.TABLES:
                want = [column for column in writer.COLUMNS[table] if column not in measured]
                for case in grids.cases(table, tier):
                    self.assertEqual(list(case.key), want)

    def test_what_published_tables_lack_comes_first(self):
        for table, lacking in (
            ("attention_prefill", lambda case: case.key["num_computed_tokens"] > 0),
            ("attention_decode", lambda case: case.max_over_mean > 1 or case.key["num_kv_heads"] > 8),
        ):
            flags = [lacking(case) for case in grids.cases(table, "default")]
            first_other = flags.index(False)
            self.assertGreater(first_other, 100)
            self.assertFalse(any(flags[first_other:]), table)
        self.assertEqual(grids.TABLES[:4], (*grids.ATTENTION, "small_kernels"))

    def test_every_uneven_decode_has_its_even_counterpart(self):
        def shape(case):
            return tuple(value for name, value in case.key.items() if name != "kv_tokens_max")

        for tier in grids.TIERS:
            cases = grids.cases("attention_decode", tier)
            even = {shape(case) for case in cases if case.max_over_mean == 1.0}
            self.assertEqual({shape(case) for case in cases}, even)

    def test_order_is_the_same_every_time_and_mixes_shapes(self):
        first, again = grids.cases("gemm", "default"), grids.cases("gemm", "default")
        self.assertEqual(first, again)
        self.assertGreater(len({case.key["n"] for case in first[:40]}), 8)

    def test_a_quarter_of_the_decode_grid_spans_all_batches(self):
        cases = grids.cases("attention_decode", "default")
        quarter = {case.key["batch_size"] for case in cases[: len(cases) // 4]}
        self.assertTrue({2, 8, 64, 256} <= quarter)

    def test_planned_time_fits_the_promised_minutes(self):
        def rows(tier):
            return sum(len(grids.cases(table, tier)) for table in grids.TABLES)

        self.assertLess(rows("quick") * measure.NOMINAL_CASE_S, 120)
        self.assertLess(rows("default") * measure.NOMINAL_CASE_S, 480)


class Lengths(unittest.TestCase):
    def test_uneven_decode_lengths_keep_sum_and_maximum_on_all_grids(self):
        for tier in ("quick", "default", "full"):
            for case in grids.cases("attention_decode", tier):
                batch, total = case.key["batch_size"], case.key["kv_tokens_total"]
                lengths = distributions.uneven_lengths(batch, total // batch, case.max_over_mean)
                self.assertEqual(len(lengths), batch)
                self.assertEqual(sum(lengths), total)
                self.assertEqual(max(lengths), case.key["kv_tokens_max"])
                self.assertGreaterEqual(min(lengths), 1)

    def test_ratio_one_is_even(self):
        self.assertEqual(distributions.uneven_lengths(5, 100, 1.0), [100] * 5)

    def test_ratio_two_is_a_ramp(self):
        # Weights 0.5, 1.5, 2.5 share the 800 - 400 = 400 tokens that the longest of four leaves: 44.4, 133.3, 222.2.
        self.assertEqual(sorted(distributions.uneven_lengths(4, 200, 2.0)), [45, 133, 222, 400])

    def test_larger_ratio_spreads_more(self):
        def variance(ratio):
            return sum((length - 1024) ** 2 for length in distributions.uneven_lengths(64, 1024, ratio))

        self.assertLess(variance(1.5), variance(2.0))
        self.assertLess(variance(2.0), variance(4.0))

    def test_impossible_lengths_are_refused(self):
        with self.assertRaises(ValueError):
            distributions.uneven_lengths(2, 100, 2.5)
        with self.assertRaises(ValueError):
            distributions.uneven_lengths(4, 100, 0.5)


class Experts(unittest.TestCase):
    def test_counts_sum_to_tokens_times_top_k_and_no_expert_sees_a_token_twice(self):
        for case in grids.cases("moe", "full", ("bfloat16",)):
            key = case.key
            counts = distributions.expert_counts(
                key["num_tokens"], key["top_k"], key["num_experts"], key["distribution"]
            )
            self.assertEqual(len(counts), key["num_experts"])
            self.assertEqual(sum(counts), key["num_tokens"] * key["top_k"])
            self.assertLessEqual(max(counts), key["num_tokens"])
            self.assertGreaterEqual(min(counts), 0)

    def test_balanced_differs_by_one_at_most(self):
        self.assertEqual(distributions.expert_counts(3, 2, 4, "balanced"), [1, 1, 2, 2])

    def test_skew_touches_fewer_experts_at_few_tokens_and_loads_the_busiest_more_at_many(self):
        few = [distributions.expert_counts(8, 8, 128, name) for name in ("balanced", "power_law_1.2")]
        self.assertGreater(sum(count > 0 for count in few[0]), sum(count > 0 for count in few[1]))
        many = [max(distributions.expert_counts(1024, 8, 128, name)) for name in ("balanced", "power_law_1.2")]
        self.assertGreater(many[1], 3 * many[0])

    def test_busiest_rank_carries_at_least_its_even_share(self):
        counts = distributions.expert_counts(1024, 8, 128, "power_law_1.2")
        local = distributions.local_counts(counts, 4)
        self.assertEqual(len(local), 32)
        self.assertGreaterEqual(4 * sum(local), sum(counts))

    def test_pairs_of_an_expert_are_different_tokens(self):
        counts = distributions.expert_counts(16, 4, 8, "power_law_1.2")
        tokens, begin = distributions.token_of_pair(counts, 16), 0
        for count in counts:
            mine = tokens[begin : begin + count]
            self.assertEqual(len(mine), len(set(mine)))
            begin += count
        self.assertEqual([tokens.count(token) for token in range(16)], [4] * 16)

    def test_unknown_distribution_is_refused(self):
        with self.assertRaises(ValueError):
            distributions.expert_counts(4, 2, 8, "zipf")


class Estimates(unittest.TestCase):
    def test_visible_pairs_agree_with_counting(self):
        for q in (1, 3, 8):
            for c in (0, 2, 9):
                for window in (0, 1, 4, 30):
                    counted = sum(min(c + i + 1, window) if window else c + i + 1 for i in range(q))
                    self.assertEqual(estimates.visible_pairs(q, c, window), counted, (q, c, window))

    def test_gemm_work_of_one_shape(self):
        work = estimates.work_of(grids.Case("gemm", 1, {"dtype": "fp8", "m": 4, "n": 32, "k": 16}))
        self.assertEqual((work.flop, work.rotating_bytes, work.other_bytes), (4096.0, 512, 64 + 256))

    def test_expert_parallel_rank_holds_its_share_of_weights(self):
        key = {
            "dtype": "bfloat16", "num_tokens": 8, "hidden_size": 64, "intermediate_size": 32, "top_k": 2,
            "num_experts": 8, "moe_tp_size": 2, "moe_ep_size": 4, "distribution": "balanced",
        }
        # 2 experts x 3 matrices x 64 x 16 x 2 bytes.
        self.assertEqual(estimates.work_of(grids.Case("moe", 1, key)).rotating_bytes, 12288)


class Plans(unittest.TestCase):
    def test_rotation_exceeds_the_l2_cache(self):
        plan = timing.plan_graph(5.0, 8 * 2**20, 60 * 2**20)
        self.assertEqual(plan.copies, 23)
        self.assertGreaterEqual(plan.calls, plan.copies)
        self.assertGreater(plan.copies * 8, 60)

    def test_a_long_kernel_gets_two_calls_and_no_more_copies(self):
        self.assertEqual(timing.plan_graph(50_000.0, 2**20, 60 * 2**20), timing.Plan(2, 2))

    def test_a_tiny_kernel_is_capped(self):
        self.assertEqual(timing.plan_graph(1.0, 0, 60 * 2**20), timing.Plan(256, 1))

    def test_quantiles_of_five_samples(self):
        summary = timing.summarise([5.0, 1.0, 3.0, 2.0, 4.0])
        self.assertEqual((summary.min_us, summary.p25_us, summary.median_us), (1.0, 2.0, 3.0))
        self.assertAlmostEqual(summary.spread, 2.0 / 3.0)

    def test_an_outlier_does_not_move_the_median(self):
        self.assertEqual(timing.summarise([10.0, 10.0, 900.0]).median_us, 10.0)

    def test_unused_budget_goes_to_later_tables(self):
        deadline = runner.deadlines(["small_kernels", "gemm"], 0.0, 100.0)
        self.assertAlmostEqual(deadline("small_kernels", 0.0), 100.0 * 0.06 / 0.23)
        self.assertAlmostEqual(deadline("gemm", 5.0), 100.0)


ROW = {"dtype": "fp8", "m": 16, "n": 32, "k": 64, "latency_us": 3.25}


class Files(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)
        self.folder = self.scratch.name

    def read(self, name):
        with open(os.path.join(self.folder, name), encoding="utf-8") as file:
            return file.read()

    def test_columns_are_the_contract_with_the_reader(self):
        self.assertEqual(writer.COLUMNS["gemm"], ("dtype", "m", "n", "k", "latency_us"))
        self.assertEqual(",".join(writer.COLUMNS["attention_prefill"]),
                         "num_heads,num_kv_heads,head_dim,kv_cache_dtype,window_size,batch_size,"
                         "num_scheduled_tokens,num_computed_tokens,latency_us")
        self.assertEqual(",".join(writer.COLUMNS["attention_decode"]),
                         "num_heads,num_kv_heads,head_dim,kv_cache_dtype,window_size,batch_size,"
                         "kv_tokens_total,kv_tokens_max,latency_us")
        self.assertEqual(",".join(writer.COLUMNS["moe"]),
                         "dtype,num_tokens,hidden_size,intermediate_size,top_k,num_experts,"
                         "moe_tp_size,moe_ep_size,distribution,latency_us")
        self.assertEqual(",".join(writer.COLUMNS["small_kernels"]), "kernel,num_tokens,width,launches,latency_us")

    def test_table_is_sorted_and_headed(self):
        writer.write_table(self.folder, "gemm", [ROW, dict(ROW, m=2, latency_us=1.0)])
        self.assertEqual(self.read("gemm.csv"), "dtype,m,n,k,latency_us\nfp8,2,32,64,1.0000\nfp8,16,32,64,3.2500\n")

    def test_bad_rows_are_refused_and_leave_no_file(self):
        for bad in (dict(ROW, latency_us=0.0), dict(ROW, latency_us=float("nan")), dict(ROW, extra=1), {"m": 1}):
            with self.assertRaises((ValueError, KeyError)):
                writer.write_table(self.folder, "gemm", [bad])
        with self.assertRaises(ValueError):
            writer.write_table(self.folder, "gemm", [ROW, dict(ROW, latency_us=4.0)])
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_failed_write_keeps_the_old_file_and_no_leftover(self):
        writer.write_table(self.folder, "gemm", [ROW])
        before = self.read("gemm.csv")
        replace, os.replace = os.replace, lambda *_: (_ for _ in ()).throw(OSError("disk full"))
        try:
            with self.assertRaises(OSError):
                writer.write_table(self.folder, "gemm", [dict(ROW, m=1)])
        finally:
            os.replace = replace
        self.assertEqual(self.read("gemm.csv"), before)
        self.assertEqual(os.listdir(self.folder), ["gemm.csv"])

    def test_meta_is_toml(self):
        meta = {
            "kind": 'a "quoted" \\ name\n', "repeats": 9, "driver": None, "notes": ["one", "two"],
            "kernel_source": {"gemm": "x"}, "tables.gemm": {"measured": 2, "median_spread_pct": 0.5},
        }
        writer.write_meta(self.folder, meta)
        text = self.read("meta.toml")
        self.assertNotIn("driver", text)
        self.assertEqual(writer.meta_text({"notes": []}), "notes = []\n")
        try:
            import tomllib
        except ImportError:
            self.skipTest("tomllib comes with Python 3.11")
        read = tomllib.loads(text)
        self.assertEqual(read["kind"], meta["kind"])
        self.assertEqual(read["notes"], ["one", "two"])
        self.assertEqual(read["tables"]["gemm"]["measured"], 2)

    def test_keys_that_the_reader_does_not_know_are_not_written(self):
        for meta, named in (
            ({"gpu": "x", "kind": "measurement"}, "gpu"),
            ({"tables.gemm": {"planed": 1}}, "tables.gemm.planed"),
            ({"tables.gem": {"planned": 1}}, "tables.gem.planned"),
            ({"kernel_source": {"gem": "x"}}, "kernel_source.gem"),
            ({"clocks": {"sm": 1}}, "clocks.sm"),
        ):
            with self.assertRaisesRegex(ValueError, named):
                writer.write_meta(self.folder, meta)
        self.assertEqual(os.listdir(self.folder), [])

    def test_unknown_nvidia_smi_values_are_left_out(self):
        fields = ("driver_version", "clocks.sm", "clocks.mem")
        self.assertEqual(device.parse_row(fields, "580.1, 1980, [N/A]\n"), {"driver_version": "580.1", "clocks.sm": "1980"})
        self.assertEqual(device.parse_row(fields, ""), {})


FIXTURE = os.path.join(os.path.dirname(__file__), "..", "..", "..", "lab", "tests", "fixtures", "measuring_kit")


class Fixture(unittest.TestCase):
    def test_what_the_reader_is_tested_on_is_what_the_kit_writes(self):
        with tempfile.TemporaryDirectory() as folder:
            synthetic.write(folder)
            self.assertEqual(sorted(os.listdir(folder)), sorted(os.listdir(FIXTURE)))
            for name in os.listdir(folder):
                with open(os.path.join(folder, name), "rb") as new, open(os.path.join(FIXTURE, name), "rb") as old:
                    self.assertEqual(new.read(), old.read(), f"{name}: write it anew, see synthetic.py")

    def test_it_has_every_key(self):
        with open(os.path.join(FIXTURE, "meta.toml"), encoding="utf-8") as file:
            lines = file.read().splitlines()
        for key in (*writer.META_KEYS, *writer.COUNT_KEYS):
            self.assertTrue(any(line.startswith(key + " = ") for line in lines), key)
        for section in ["kernel_source"] + [f"tables.{table}" for table in writer.COLUMNS]:
            self.assertIn(f"[{section}]", lines)


if __name__ == "__main__":
    unittest.main()
