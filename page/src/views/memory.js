// The view of KV memory: the memory equation, and how many requests it has room for.

import { Frame } from "../charts/frame.js";
import { rowChart } from "../charts/rows.js";
import { fitChart } from "../charts/series.js";
import { $, figure, h } from "../dom.js";
import { gib, number, percent, whole } from "../format.js";
import { SortableTable } from "../table.js";
import { figures } from "./parts.js";

/** Terms of the memory equation in its order, those of zero left out. */
export function terms(capacity) {
  const free = capacity.device_memory_bytes * (1 - capacity.gpu_memory_utilization);
  return [
    { key: "weight_bytes", label: "weights", bytes: capacity.weight_bytes, colour: "var(--memory)" },
    { key: "position_table_bytes", label: "position tables", bytes: capacity.position_table_bytes, colour: "var(--ink-2)" },
    { key: "activation_bytes", label: "activations", bytes: capacity.activation_bytes, colour: "var(--network)" },
    { key: "overhead_bytes", label: "kernels and workspaces", bytes: capacity.overhead_bytes, colour: "var(--latency)" },
    { key: "window_bytes", label: "sliding windows", bytes: capacity.window_bytes, colour: "var(--source-3)" },
    { key: "kv_cache_bytes", label: "KV cache", bytes: capacity.kv_cache_bytes, colour: "var(--source-1)" },
    { key: "free_bytes", label: "left free", bytes: free, colour: "var(--rule)" },
  ].filter(({ bytes }) => bytes > 0);
}

/** Requests of `context` tokens that the cache holds at once. One block is always vLLM's own. */
export function fitting(capacity, context) {
  const blocks = Math.ceil(Math.max(1, context) / capacity.block_size) + (capacity.state_blocks_per_request ?? 0);
  return Math.max(0, Math.floor((capacity.num_gpu_blocks - 1) / blocks));
}

/** Tokens that the cache holds. */
export function kvTokens(capacity) {
  return Math.max(0, capacity.num_gpu_blocks - 1) * capacity.block_size;
}

/** Ticks at whole GiB. */
function gibTicks(bytes) {
  const step = [1, 2, 5, 10, 20, 50, 100].find((size) => bytes / 2 ** 30 / size <= 8) ?? 200;
  return Array.from({ length: Math.floor(bytes / 2 ** 30 / step) + 1 }, (_, index) => index * step * 2 ** 30);
}

export class MemoryView {
  constructor() {
    this.bar = new Frame($("memory-bar"));
    this.fit = new Frame($("memory-fit"));
    this.table = new SortableTable($("memory-table"), {
      caption: "The memory of one GPU, term by term.",
      columns: [
        { key: "label", label: "term", value: (row) => row.order, cell: (row) => row.label },
        { key: "bytes", label: "memory", numeric: true, value: (row) => row.bytes, cell: (row) => figure(row.bytes, gib(row.bytes, 4)) },
        { key: "share", label: "share of the GPU", numeric: true, value: (row) => row.share, cell: (row) => percent(row.share) },
      ],
    });
  }

  show(capacity, { context, maxNumSeqs, replicas }) {
    const all = terms(capacity);
    const device = capacity.device_memory_bytes;
    const requests = fitting(capacity, context);
    $("memory-lead").replaceChildren(
      capacity.kv_cache_bytes < 0
        ? h("p", {}, h("strong", {}, "It does not fit: "), `${gib(-capacity.kv_cache_bytes)} are missing on each GPU.`)
        : h(
            "p",
            {},
            "The KV cache has ",
            h("strong", {}, gib(capacity.kv_cache_bytes)),
            " of each GPU: room for ",
            h("strong", {}, `${whole(kvTokens(capacity))} tokens`),
            `, or ${whole(requests)} ${requests === 1 ? "request" : "requests"} of ${whole(context)} tokens at once${replicas > 1 ? `, in each of ${replicas} replicas` : ""}. `,
            maxNumSeqs && requests > maxNumSeqs
              ? `max_num_seqs = ${whole(maxNumSeqs)} binds before the cache does.`
              : "The cache binds before max_num_seqs does.",
          ),
    );
    $("memory-figures").replaceChildren(
      ...figures([
        {
          key: "num_gpu_blocks",
          term: "KV blocks",
          value: capacity.num_gpu_blocks,
          text: whole(capacity.num_gpu_blocks),
          note: `of ${whole(capacity.block_size)} tokens`,
          large: true,
        },
        {
          key: "kv_tokens",
          term: "Tokens",
          value: kvTokens(capacity),
          text: whole(kvTokens(capacity)),
          note: "of all requests together",
          large: true,
        },
        {
          key: "fitting",
          term: "Requests that fit",
          value: requests,
          text: whole(requests),
          note: `of ${whole(context)} tokens`,
          large: true,
        },
        {
          key: "kv_bytes_per_token",
          term: "A token takes",
          value: capacity.kv_bytes_per_token,
          text: `${number(capacity.kv_bytes_per_token / 1024)} KiB`,
          note: "on each GPU",
        },
      ]),
    );
    this.bar.show((width) => {
      let at = 0;
      const rows = all.map((term) => {
        const segment = { x1: at, x2: at + term.bytes, colour: term.colour, key: term.key };
        at += term.bytes;
        return { label: term.label, note: `${gib(term.bytes)}`, segments: [segment] };
      });
      return rowChart({
        label: "The memory of one GPU by term. The table has the figures.",
        width,
        ticks: gibTicks(device),
        format: (bytes) => `${Math.round(bytes / 2 ** 30)} GiB`,
        rows: [{ label: "GPU memory", note: gib(device), strong: true, segments: rows.flatMap(({ segments }) => segments) }, ...rows],
      });
    });
    const fits = [];
    for (let tokens = 256; tokens <= Math.max(4096, capacity.max_model_len); tokens *= 2)
      fits.push({ context: tokens, requests: fitting(capacity, tokens) });
    const marked = Math.min(Math.max(context, fits[0].context), fits.at(-1).context);
    this.fit.show((width) => fitChart({ fits, chosen: { context: marked, requests: fitting(capacity, marked) }, width }));
    this.rows = all.map((term, order) => ({ order, label: term.label, key: term.key, bytes: term.bytes, share: term.bytes / device }));
    this.table.show(this.rows);
  }
}
