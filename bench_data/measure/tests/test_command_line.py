"""The command line: dry run, exit codes and what is recorded. Needs no torch."""

import contextlib
import io
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import measure  # noqa: E402


class CommandLine(unittest.TestCase):
    def run_main(self, *argv):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = measure.main(list(argv))
            except SystemExit as stop:
                code = stop.code
        return code, out.getvalue(), err.getvalue()

    def test_dry_run_needs_neither_gpu_nor_folder(self):
        code, out, _ = self.run_main("--dry-run", "--quick", "--kernels", "gemm", "--dtype", "fp8")
        self.assertEqual(code, 0)
        self.assertIn("gemm: dtype=fp8 m=1 n=6144 k=4096 rotating_bytes=25165824", out)
        self.assertNotIn("bfloat16", out)

    def test_wrong_usage_exits_with_2(self):
        for argv in (["--dry-run", "--kernels", "gem"], ["--quick"], ["--out", "x", "--device", "cpu"],
                     ["--dry-run", "--repeats", "0"], ["--dry-run", "--quick", "--full"]):
            self.assertEqual(self.run_main(*argv)[0], 2, argv)

    def test_no_gpu_is_said_and_exits_with_1(self):
        try:
            import torch
        except ImportError:
            torch = None
        if torch is not None and torch.cuda.is_available():
            self.skipTest("this machine has a GPU")
        code, _, err = self.run_main("--out", os.path.join(tempfile.gettempdir(), "never-made"), "--quick")
        self.assertEqual(code, 1)
        self.assertIn("torch is not installed" if torch is None else "no CUDA device", err)

    def test_output_folder_is_not_recorded(self):
        self.assertEqual(measure.command_line(["--out", "/home/me/x", "--quick"]),
                         "python3 bench_data/measure/measure.py --quick")


if __name__ == "__main__":
    unittest.main()
