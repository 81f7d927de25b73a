#!/usr/bin/env python3
"""Drives a real vLLM server on the CPU and reads what it and its load generators write.

usage: PYTHON_OF_THE_VENV .ci/vllm_cpu.py RIDGEPOINT FOLDER

The server runs a small model with random weights. Two loads of `vllm bench serve` are sent to it, after `ridgepoint probe` has measured its first request. The check fails if ridgepoint does not read
the log, the spans, the traced steps or the reports, or counts other requests, tokens or steps than the server. Errors of predictions are
printed and judged by nobody: a busy machine moves them by far more than a model of it could explain. What it wrote of the load `poisson` is
in `examples/vllm_cpu`, without texts, paths and the counts that ridgepoint does not read.

vLLM imports this file too, as the module of `--scheduler-cls vllm_cpu.TracingScheduler`.
"""
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PORT, SPANS_PORT, NAME = 8129, 4329, "random-llama"
URL = f"http://127.0.0.1:{PORT}"
SERVER = {"max_model_len": 2048, "block_size": 32, "max_num_seqs": 32, "max_num_batched_tokens": 512}
KV_BLOCKS = 512
CONCURRENCY = "6"
LOADS = {
    "poisson": ["--request-rate", "4", "--num-prompts", "80", "--random-input-len", "300", "--random-output-len", "40"],
    "closed": ["--max-concurrency", CONCURRENCY, "--num-prompts", "60", "--random-input-len", "150", "--random-output-len", "60"],
}
LOADS["closed_again"] = LOADS["closed"]
EXAMPLE = Path(__file__).resolve().parent.parent / "examples/vllm_cpu"


def attributes(values):
    text = lambda value: {"stringValue": value} if isinstance(value, str) else {"intValue": str(value)}
    return [{"key": key, "value": text(value)} for key, value in values.items()]


def export(events):
    """A line of OTLP JSON with events of one span."""
    span = {"name": "steps", "events": [
        {"name": name, "timeUnixNano": str(time.time_ns()), "attributes": attributes(of)} for name, of in events]}
    resource = {"attributes": attributes({"service.name": "vllm"})}
    return json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "vllm.steps"}, "spans": [span]}]}]})


def tracing(scheduler):
    """The scheduler with a line of OTLP per step, at $RIDGEPOINT_STEPS: what was scheduled, over how much context, and when."""

    class Tracing(scheduler):
        trace = None
        steps = 0

        def schedule(self, *args, **kwargs):
            start_ns = time.monotonic_ns()
            out = super().schedule(*args, **kwargs)
            if not out.num_scheduled_tokens:
                return out
            if self.trace is None:
                self.trace = open(os.environ["RIDGEPOINT_STEPS"], "a", buffering=1)
            sums = {"PREFILL": [0, 0], "DECODE": [0, 0]}
            events = []
            for request_id, tokens in out.num_scheduled_tokens.items():
                request = self.requests[request_id]
                before = request.num_computed_tokens - tokens  # schedule() has counted this step's tokens
                phase = "PREFILL" if before < request.num_prompt_tokens else "DECODE"
                sums[phase][0] += 1
                sums[phase][1] += tokens
                events.append(("step.REQUEST_SNAPSHOT", {
                    "step.id": self.steps, "request.id": request_id, "request.phase": phase,
                    "request.num_prompt_tokens": request.num_prompt_tokens, "request.num_computed_tokens": before,
                    "request.num_output_tokens": request.num_tokens - request.num_prompt_tokens,
                    "request.scheduled_tokens_this_step": tokens}))
            pool = self.kv_cache_manager.block_pool
            summary = {
                "step.id": self.steps, "step.ts_start_ns": start_ns,
                "batch.num_prefill_reqs": sums["PREFILL"][0], "batch.prefill_tokens": sums["PREFILL"][1],
                "batch.num_decode_reqs": sums["DECODE"][0], "batch.decode_tokens": sums["DECODE"][1],
                "queue.running_depth": len(self.running), "queue.waiting_depth": len(self.waiting),
                "batch.num_preempted": len(out.preempted_req_ids or ()),
                "kv.blocks_total_gpu": pool.num_gpu_blocks, "kv.blocks_free_gpu": pool.get_num_free_blocks()}
            self.trace.write(export([("step.BATCH_SUMMARY", summary), *events]) + "\n")
            self.steps += 1
            return out

    return Tracing


def make_model(folder):
    """A Llama with random weights, and a tokenizer with a word per token, so that texts keep their lengths."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = {"<s>": 0, "</s>": 1} | {f"w{index}": index for index in range(2, 4096)}
    words = Tokenizer(models.WordLevel(words, unk_token="w2"))  # any other word, as guidellm's are
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<s>", eos_token="</s>")
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }} {% endfor %}"  # guidellm sends chats
    tokenizer.save_pretrained(folder)
    torch.manual_seed(14)
    config = LlamaConfig(
        vocab_size=4096, hidden_size=256, intermediate_size=768, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, head_dim=64, max_position_embeddings=4096, bos_token_id=0, eos_token_id=1,
        tie_word_embeddings=False)
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)


def receive_spans(path):
    """Takes OTLP over HTTP and writes a line of JSON per export, as the collector's file exporter does."""
    import base64
    from google.protobuf.json_format import MessageToDict
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as service

    def with_hex_ids(value):
        if isinstance(value, list):
            return [with_hex_ids(of) for of in value]
        if not isinstance(value, dict):
            return value
        ids = ("traceId", "spanId", "parentSpanId")
        return {key: base64.b64decode(of).hex() if key in ids else with_hex_ids(of) for key, of in value.items()}

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self):
            request = service.ExportTraceServiceRequest()
            request.ParseFromString(self.rfile.read(int(self.headers["content-length"])))
            with path.open("a") as out:
                out.write(json.dumps(with_hex_ids(MessageToDict(request, use_integers_for_enums=True))) + "\n")
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", SPANS_PORT), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def get(path):
    with urllib.request.urlopen(URL + path, timeout=10) as reply:
        return reply.read().decode()


def wait_for(server, log, seconds=600):
    for _ in range(seconds):
        if server.poll() is not None:
            sys.exit(f"the server ended with {server.returncode}:\n{log.read_text()[-3000:]}")
        try:
            return get("/health")
        except OSError:
            time.sleep(1)
    sys.exit(f"the server did not answer within {seconds} s:\n{log.read_text()[-3000:]}")


class Checks:
    """Runs ridgepoint, and holds its counts against the server's."""

    def __init__(self, ridgepoint, folder):
        self.ridgepoint, self.folder, self.wrong = ridgepoint, folder, []

    def run(self, *arguments):
        done = subprocess.run([self.ridgepoint, *map(str, arguments)], capture_output=True, text=True)
        if done.returncode != 0:
            self.wrong.append(f"ridgepoint {' '.join(map(str, arguments))}: {done.stderr.strip()}")
        return done.stdout

    def ingest(self, name, files, counts, labels):
        """Reads files of one run together with its /metrics, and compares these counts."""
        out = self.run("ingest", *files, "--out", self.folder / name, "--force", "--format", "json", "--experiment", name, *labels)
        totals = {of["name"]: of for of in json.loads(out)["metrics"]} if out else {}
        for count in counts if out else ():
            of = totals.get(count, {"server": None, "rows": None})
            agree = "agree" if of["server"] == of["rows"] else "DISAGREE"
            print(f"{name}: {count}: {of['rows']} in the files, {of['server']} of the server: {agree}")
            if of["server"] != of["rows"]:
                self.wrong.append(f"{name}: {count} disagree")


def probe(checks, folder, model, hardware):
    """Probes the server before anything else was sent to it, and fits and judges what the probe saw. Figures are printed."""
    capture, fitted = folder / "probe.jsonl.gz", folder / "probe.toml"
    report = checks.run(
        "probe", URL, "--ignore-eos", "--max-tokens", "24", "--ladder-input-len", "64,256", "--ladder-concurrency", "1,4",
        "--requests-per-rung", "16", "--out", capture, "--markdown", folder / "probe.md", "--force", "--format", "json")
    if not report:
        return
    of = json.loads(report)
    sent = 2 + len(of["warm"]["runs"]) + sum(rung["requests"] for rung in of["ladder"])
    print(f"probe: cold TTFT {of['cold']['ttft_ms']:.1f} ms, warm {of['warm']['ttft_ms']['median']:.1f} ms, penalty {of['penalty']:.2f}, "
          f"ITL {of['warm']['itl_ms']['median']:.2f} ms, {of['diagnosis']}: {of['outcomes']}")
    if of["outcomes"] != {"ok": sent}:
        checks.wrong.append(f"probe: of {sent} requests {of['outcomes']}")
    labels = ["--model", model, "--hardware", hardware, "--tensor-parallel-size", "1"]
    checks.run("fit", "--steps", capture, "--level", "model", "--out", fitted, "--force", "--allow-worse", *labels)
    server = server_file(folder, model, hardware)
    for correction in ("none", fitted):
        print(checks.run("evaluate", "capture", capture, "--config", server, "--correction", correction))
    time.sleep(8)  # the spans of the probe are exported before those of the loads


def server_file(folder, model, hardware):
    """The server as ridgepoint reads it."""
    server = folder / "server.json"
    server.write_text(json.dumps(SERVER | {
        "model": str(model), "hardware": str(hardware), "enforce_eager": True, "enable_prefix_caching": False,
        "async_scheduling": False, "num_gpu_blocks_override": KV_BLOCKS}))
    return server


def lines_after(path, offset):
    with path.open("rb") as file:
        file.seek(offset)
        return file.read()


def drive(venv, folder, model, streams):
    """Sends the loads; keeps what each stream has written during each, and /metrics before and after."""
    for name, load in LOADS.items():
        offsets = {stream: path.stat().st_size if path.exists() else 0 for stream, path in streams.items()}
        (folder / f"{name}_before.txt").write_text(get("/metrics"))
        command = [
            venv / "vllm", "bench", "serve", "--backend", "vllm", "--base-url", URL, "--model", NAME, "--tokenizer", model,
            "--dataset-name", "random", "--random-range-ratio", "0.6", "--ignore-eos", "--disable-tqdm", "--temperature", "0", "--seed", str(len(name.removesuffix("_again"))),
            "--ready-check-timeout-sec", "0", "--num-warmups", "0", "--save-result", "--save-detailed", "--result-dir", folder,
            "--result-filename", f"{name}_bench.json", *load]
        with (folder / f"{name}_bench.log").open("w") as out:
            subprocess.run(list(map(str, command)), stdout=out, stderr=out, check=True)
        (folder / f"{name}_after.txt").write_text(get("/metrics"))
        time.sleep(8)  # spans are exported every 5 s
        for stream, path in streams.items():
            (folder / f"{name}_{stream}").write_bytes(lines_after(path, offsets[stream]))
        print(f"{name}: {' '.join(load)}")


def serve(venv, folder, model, log):
    flags = [item for key, value in SERVER.items() for item in (f"--{key.replace('_', '-')}", str(value))]
    command = [
        venv / "vllm", "serve", model, "--host", "127.0.0.1", "--port", str(PORT), "--served-model-name", NAME, *flags,
        "--num-gpu-blocks-override", str(KV_BLOCKS), "--kv-cache-memory-bytes", "256M", "--enforce-eager",
        "--no-enable-prefix-caching", "--enable-logging-iteration-details", "--enable-mfu-metrics",
        "--otlp-traces-endpoint", f"http://127.0.0.1:{SPANS_PORT}/v1/traces", "--scheduler-cls", "vllm_cpu.TracingScheduler"]
    here = str(Path(__file__).resolve().parent)
    environment = os.environ | {
        "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_NUM_OF_RESERVED_CPU": "1", "PYTHONPATH": here,
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf", "RIDGEPOINT_STEPS": str(folder / "steps.json"),
        "PYTHONDONTWRITEBYTECODE": "1", "PATH": f"{venv}:{os.environ['PATH']}"}
    with log.open("w") as out:
        return subprocess.Popen(list(map(str, command)), stdout=out, stderr=out, env=environment)


def with_guidellm(venv, folder, model, checks, labels):
    if not (venv / "guidellm").exists():
        print("guidellm is not in the venv: its report is not read")
        return
    report = folder / "guidellm.json"
    command = [
        venv / "guidellm", "run", "--backend", f"kind=openai_http,target={URL},model={NAME}", "--tokenizer",
        f"kind=hf_auto,model={model}", "--data", "kind=synthetic_text,prompt_tokens=120,output_tokens=40", "--profile",
        "kind=poisson,rate=3", "--constraint", "kind=max_requests,count=40", "--output", f"kind=json,path={report}", "--disable-progress"]
    with (folder / "guidellm.log").open("w") as out:
        done = subprocess.run(list(map(str, command)), stdout=out, stderr=out)
    if done.returncode != 0:
        print(f"guidellm ended with {done.returncode}: its report is not read")
        return
    out = checks.run("ingest", report, "--out", folder / "guidellm", "--force", "--format", "json", *labels)
    sent = sum(len(of["requests"]["successful"]) for of in json.loads(report.read_text())["benchmarks"])
    rows = sum(of["requests"] for of in json.loads(out)["runs"]) if out else 0
    print(f"guidellm: {rows} requests in the table, {sent} in the report")
    if rows != sent:
        checks.wrong.append("guidellm: requests disagree")


def main():
    ridgepoint, folder, venv = sys.argv[1], Path(sys.argv[2]).resolve(), Path(sys.executable).parent
    model, log, hardware = folder / "model", folder / "server.log", EXAMPLE / "cpu.toml"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.json"):
        old.unlink()
    if not (model / "config.json").exists():
        make_model(model)
    receive_spans(folder / "spans.json")
    checks = Checks(ridgepoint, folder)
    labels = ["--model", model, "--hardware", hardware, "--tensor-parallel-size", "1"]
    server = serve(venv, folder, model, log)
    try:
        wait_for(server, log)
        (folder / "start.log").write_bytes(log.read_bytes())
        probe(checks, folder, model, hardware)
        drive(venv, folder, model, {"steps": folder / "steps.json", "spans": folder / "spans.json", "log": log})
        with_guidellm(venv, folder, model, checks, labels)
    finally:
        server.terminate()
        server.wait(60)
    judge(checks, folder, model, hardware, labels)
    for wrong in checks.wrong:
        print(f"wrong: {wrong}")
    sys.exit(1 if checks.wrong else 0)


def judge(checks, folder, model, hardware, labels):
    """Reads every stream of both loads, and predicts each load from the other."""
    requests = ["requests", "prompt_tokens", "output_tokens"]
    for name in LOADS:
        metrics = [folder / f"{name}_before.txt", folder / f"{name}_after.txt"]
        checks.ingest(name, [folder / f"{name}_steps", folder / f"{name}_bench.json", *metrics], [*requests, "steps"], labels)
        checks.ingest(f"{name}_of_spans", [folder / f"{name}_spans", *metrics], requests, labels)
        whole_log = folder / f"{name}_whole.log"
        whole_log.write_bytes((folder / "start.log").read_bytes() + (folder / f"{name}_log").read_bytes())
        checks.ingest(f"{name}_of_log", [whole_log, *metrics], ["steps"], labels)
    server = server_file(folder, model, hardware)
    one, other, again = LOADS
    means = [measured_means(folder / f"{name}_bench.json") for name in (other, again)]
    print("\nthe same load twice: " + ", ".join(f"{key} {a:.1f} and {b:.1f} ms ({100 * (b / a - 1):+.1f} %)" for (key, a), b in zip(means[0].items(), means[1].values())))
    for fitted, judged in ((one, other), (other, one), (other, again)):
        print(f"\nfitted on {fitted}, judged on {judged}:")
        closed = ["--max-concurrency", CONCURRENCY] if judged != one else []
        print(checks.run("evaluate", "capture", "--fit-from", folder / fitted, "--judge", folder / judged,
                         folder / f"{judged}_before.txt", folder / f"{judged}_after.txt", "--config", server, *closed))


def measured_means(report):
    """Mean TTFT, gap and E2E of a report of `vllm bench serve`, ms."""
    of = json.loads(report.read_text())
    e2e = [ttft + sum(gaps) for ttft, gaps in zip(of["ttfts"], of["itls"])]
    return {"TTFT": of["mean_ttft_ms"], "ITL": of["mean_itl_ms"], "E2E": 1000 * sum(e2e) / len(e2e)}


if __name__ == "__main__":
    main()
elif "RIDGEPOINT_STEPS" in os.environ:
    from vllm.v1.core.sched.scheduler import Scheduler

    TracingScheduler = tracing(Scheduler)
