#!/usr/bin/env python3
"""Compares the admission of prompts under SGLang with its own class, `PrefillAdder`, for made-up rounds:

    .ci/sglang_adder.py [ROUNDS] [SEED]

The class comes from SGLang's wheel, whose modules beside it are replaced by stubs. RIDGEPOINT_SGLANG names a folder that the wheel was
unpacked to; without it pip fetches the wheel. The check is skipped, and a line says so, if neither works."""

import importlib
import json
import os
import pathlib
import random
import subprocess
import sys
import types
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "replay/tests/fixtures/vllm_schedules"))
import make as schedules  # noqa: E402

VERSION = "0.5.9"
MODULE = "sglang.srt.managers.schedule_policy"
STUBBED = {"sglang", "torch", "msgspec", "numpy", "zmq", "triton", "transformers", "orjson", "psutil"}
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", "target")) / "sglang"


def source():
    """The file of the class, or nothing."""
    relative = MODULE.replace(".", "/") + ".py"
    if folder := os.environ.get("RIDGEPOINT_SGLANG"):
        return pathlib.Path(folder) / relative
    TARGET.mkdir(parents=True, exist_ok=True)
    if not (TARGET / relative).exists():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", f"sglang=={VERSION}", "-d", TARGET]
        if subprocess.run(command, capture_output=True).returncode != 0:
            return None
        with zipfile.ZipFile(next(TARGET.glob(f"sglang-{VERSION}-*.whl"))) as wheel:
            wheel.extract(relative, TARGET)
    return TARGET / relative


def load(path):
    package = path.parents[MODULE.count(".") - 1]
    sys.meta_path.insert(0, schedules.Finder(str(package), {MODULE}, STUBBED))
    module = importlib.import_module(MODULE)
    module.is_nsa_prefill_cp_in_seq_split = lambda: False
    module.SWATokenToKVPoolAllocator = type("SWATokenToKVPoolAllocator", (), {})
    return module


class Tree:
    """A radix cache of which the adder sees the tokens that could be evicted."""

    def __init__(self, disable, evictable):
        self.disable, self.evictable = disable, evictable

    def supports_mamba(self):
        return False

    supports_swa = supports_mamba

    def is_tree_cache(self):
        return True

    def evictable_size(self):
        return self.evictable

    def inc_lock_ref(self, node):
        if node["refs"] == 0:
            self.evictable -= node["tokens"]
        node["refs"] += 1

    def dec_lock_ref(self, node):
        node["refs"] -= 1
        if node["refs"] == 0:
            self.evictable += node["tokens"]


def request(of):
    sampling = types.SimpleNamespace(max_new_tokens=of["max_new"], ignore_eos=of["ignore_eos"])
    made = types.SimpleNamespace(
        sampling_params=sampling,
        output_ids=[0] * of["output"],
        origin_input_ids=[0] * of["prompt"],
        host_hit_length=0,
        prefix_indices=[],
        fill_ids=[],
        extend_input_len=0,
    )
    made.set_extend_input_len = lambda tokens: setattr(made, "extend_input_len", tokens)
    return made


def rounds(module, number, seed):
    """Rounds with what the class decides in each."""
    pick = random.Random(seed)

    def lengths(is_running, share):
        most = pick.choice([1, 16, 100, 700, 5000])
        output = pick.randrange(most) if is_running or pick.random() < 0.1 else 0
        prompt = pick.choice([1, 17, 100, 900, 3000, 9000])
        return {"prompt": prompt, "max_new": most, "output": output, "ignore_eos": pick.random() < share}

    for _ in range(number):
        share, caching, page = pick.choice([0, 1, 0.5]), pick.random() < 0.5, pick.choice([1, 16, 64])
        running = [lengths(True, share) for _ in range(pick.choice([0, 0, 1, 3, 20, 60]))]
        free, evictable = pick.choice([500, 5000, 20_000, 60_000, 300_000]), pick.choice([0, 0, 500, 20_000])
        ratio, most = pick.choice([0.7, 0.3, 0.098, 1.0, pick.random()]), pick.choice([1024, 16_384])
        chunk, decodes = pick.choice([None, 512, 2048, 8192]), pick.choice([0, 0, len(running)])
        tree = Tree(not caching, evictable)
        pool = types.SimpleNamespace(available_size=lambda free=free: free)
        batch = types.SimpleNamespace(reqs=[request(of) for of in running])
        adder = module.PrefillAdder(page, tree, pool, batch, ratio, most, chunk, decodes)
        case = {
            "page": page, "free": free + evictable, "caching": caching, "running": running, "ratio": ratio, "max_prefill": most,
            "chunk": chunk, "decodes": decodes, "chunked": None, "waiting": [], "decisions": [],
        }
        if chunk and pick.random() < 0.3:
            of, extend = lengths(False, share), pick.choice([1, 100, 3000, 20_000])
            chunked = request(of)
            chunked.extend_input_len = extend
            adder.add_chunked_req(chunked)
            case["chunked"] = {"lengths": of, "extend": extend, "tokens": chunked.extend_input_len}
        for _ in range(pick.choice([1, 3, 10])):
            of, extend = lengths(False, share), pick.choice([1, 16, 100, 900, 3000, 9000])
            locked = min(pick.choice([0, 0, 0, 100, 2000]) if caching else 0, tree.evictable)
            waiting = request(of)
            waiting.extend_input_len, waiting.last_node = extend, {"refs": 0, "tokens": locked}
            before = len(adder.can_run_list)
            result = adder.add_one_req(waiting, False, None)
            tokens = waiting.extend_input_len if len(adder.can_run_list) > before else 0
            case["waiting"].append({"lengths": of, "extend": extend, "newly_locked": locked})
            case["decisions"].append([tokens, result.name])
            if result.name != "CONTINUE" or adder.new_chunked_req is not None:
                break
        yield case


def main():
    number, seed = (int(text) for text in (sys.argv[1:] + ["10000", "20261128"][len(sys.argv) - 1 :]))
    path = source()
    if path is None:
        print("skipped: SGLang's wheel cannot be fetched; RIDGEPOINT_SGLANG may name a folder that it was unpacked to")
        return
    module = load(path)
    TARGET.mkdir(parents=True, exist_ok=True)
    cases = (TARGET / "rounds.jsonl").resolve()
    with open(cases, "w") as file:
        file.writelines(json.dumps(case) + "\n" for case in rounds(module, number, seed))
    command = ["cargo", "test", "--locked", "-p", "ridgepoint-replay", "--lib", "decisions_are_those_of_sglangs_own_class", "--", "--nocapture"]
    sys.exit(subprocess.run(command, env={**os.environ, "SGLANG_CASES": str(cases)}).returncode)


main()
