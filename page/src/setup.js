// The part of the page that chooses the model and the GPU, and says what they are.

import { Combobox } from "./combobox.js";
import { $, h, setText } from "./dom.js";
import { billions, gib, listed, scaled } from "./format.js";
import { say } from "./exports.js";

export class Setup {
  models = [];
  hardware = [];

  /** `set(patch)` changes the state. */
  constructor({ set }) {
    this.set = set;
    this.combo = new Combobox($("model"), $("model-list"), {
      describe: ({ name, parameters, weight_formats, hf_ids }) => ({
        value: name,
        note: `${billions(parameters.total)}, ${weight_formats.join(" + ")}`,
        search: [name, ...(hf_ids ?? [])].join(" ").toLowerCase(),
      }),
      choose: (model) => this.set({ model, config: "" }),
    });
    $("config-file").addEventListener("change", ({ target }) => this.#read(target.files[0]));
    $("config-clear").addEventListener("click", () => this.set({ config: "" }));
    $("gpu-clear").addEventListener("click", () => this.set({ gpu: "" }));
    $("gpu-fill").addEventListener("click", () => {
      const gpu = this.chosenGpu(this.state);
      if (gpu) this.set({ gpu: JSON.stringify(figuresOf(gpu), null, 2) });
    });
    this.#dropping();
  }

  lists(models, hardware) {
    this.models = models;
    this.hardware = hardware;
    this.combo.items = models;
    $("hardware").replaceChildren(...hardware.map(({ name, display_name }) => h("option", { value: name }, display_name)));
    $("grid_hardware").replaceChildren(
      ...hardware.map(({ name, display_name }) =>
        h("label", { title: display_name }, h("input", { type: "checkbox", value: name, "data-grid": "" }), name),
      ),
    );
  }

  chosenModel(state) {
    const wanted = state.model.toLowerCase();
    return this.models.find(({ name, hf_ids }) => name === wanted || (hf_ids ?? []).some((id) => id.toLowerCase() === wanted));
  }

  chosenGpu(state) {
    if (state.gpu) return pastedGpu(state.gpu);
    const wanted = state.hardware.toLowerCase();
    return this.hardware.find(({ name, aliases }) => name === wanted || (aliases ?? []).some((alias) => alias.toLowerCase() === wanted));
  }

  show(state) {
    this.state = state;
    this.combo.show(state.config ? "own config.json" : state.model);
    $("model").disabled = Boolean(state.config);
    $("hardware").disabled = Boolean(state.gpu);
    $("config-clear").hidden = !state.config;
    $("gpu-clear").hidden = !state.gpu;
    if (state.config) $("config-fold").open = true;
    if (state.gpu) $("gpu-fold").open = true;
    setText($("model-facts"), state.config ? "From your config.json." : modelFacts(this.chosenModel(state)));
    const gpu = this.chosenGpu(state);
    if (gpu && !state.gpu) $("hardware").value = gpu.name;
    setText($("hardware-facts"), gpuFacts(gpu));
  }

  async #read(file) {
    if (!file) return;
    if (file.size > 1_000_000) {
      say("A config.json has less than 1 MB; this file is larger.");
      return;
    }
    this.set({ config: await file.text() });
    say(`${file.name} read.`);
  }

  #dropping() {
    const hasFile = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
    addEventListener("dragover", (event) => {
      if (!hasFile(event)) return;
      event.preventDefault();
      document.body.classList.add("dropping");
    });
    addEventListener("dragleave", (event) => {
      if (!event.relatedTarget) document.body.classList.remove("dropping");
    });
    addEventListener("drop", (event) => {
      document.body.classList.remove("dropping");
      if (!hasFile(event)) return;
      event.preventDefault();
      this.#read(event.dataTransfer.files[0]);
    });
  }
}

function modelFacts(model) {
  if (!model) return "";
  const { parameters, num_layers, attention, weight_formats, weight_bytes } = model;
  const active = parameters.active < parameters.total ? `, ${billions(parameters.active)} active` : "";
  return `${billions(parameters.total)} parameters${active}, ${num_layers} layers, ${attention}, ${listed(weight_formats)}, ${gib(weight_bytes)} of weights`;
}

function gpuFacts(gpu) {
  if (!gpu) return "";
  const peaks = gpu.peaks_dense_flop_per_s ?? {};
  const shown = [peaks.bfloat16 > 0 ? "bfloat16" : "float16", "fp8", "fp4"]
    .filter((format) => peaks[format] > 0)
    .map((format) => `${format} ${scaled(peaks[format], "FLOP/s")}`);
  const link = gpu.interconnect ? `, ${gpu.interconnect.kind} ${scaled(gpu.interconnect.unidirectional_bytes_per_s, "B/s")}` : "";
  const tables = gpu.tables === undefined ? "" : gpu.tables.length > 0 ? ". Kernels measured." : ". No kernel measured: others are the fallback.";
  return `${gib(gpu.hbm_capacity_bytes)}, ${scaled(gpu.hbm_bytes_per_s, "B/s")}, ${shown.join(", ")}${link}${tables}`;
}

const PEAKS = { float32: "fp32", float16: "fp16", bfloat16: "bf16", fp8: "fp8", int8: "int8", fp4: "fp4" };

/** A GPU's figures in the shape of a file of hardware/. */
export function figuresOf(gpu) {
  const datasheet = {
    sm_count: gpu.sm_count,
    l2_bytes: gpu.l2_bytes,
    boost_clock_hz: gpu.boost_clock_hz,
    hbm_bytes_per_s: gpu.hbm_bytes_per_s,
    hbm_capacity_bytes: gpu.hbm_capacity_bytes,
  };
  if (gpu.ecc_bytes) datasheet.ecc_bytes = gpu.ecc_bytes;
  if (gpu.reported_bytes) datasheet.reported_bytes = gpu.reported_bytes;
  if (gpu.board_watt) datasheet.board_watt = gpu.board_watt;
  for (const [format, short] of Object.entries(PEAKS)) {
    if (gpu.peaks_dense_flop_per_s[format] > 0) datasheet[`peak_${short}_dense_flop_per_s`] = gpu.peaks_dense_flop_per_s[format];
  }
  const own = { source: "own figures", retrieved: new Date().toISOString().slice(0, 7) };
  return {
    display_name: `${gpu.display_name}, own figures`,
    architecture: gpu.architecture,
    datasheet: { ...datasheet, ...own },
    interconnect: { ...gpu.interconnect, ...own },
  };
}

/** The figures that charts need, of pasted ones; undefined where they are not there yet. */
function pastedGpu(text) {
  try {
    const { display_name, datasheet, interconnect } = JSON.parse(text);
    const peaks = {};
    for (const [format, short] of Object.entries(PEAKS)) {
      const peak = datasheet[`peak_${short}_dense_flop_per_s`];
      if (peak > 0) peaks[format] = peak;
    }
    peaks.bfloat16 ??= peaks.float16;
    if (!(datasheet.hbm_bytes_per_s > 0)) return undefined;
    return {
      name: display_name,
      display_name,
      peaks_dense_flop_per_s: peaks,
      hbm_bytes_per_s: datasheet.hbm_bytes_per_s,
      hbm_capacity_bytes: datasheet.hbm_capacity_bytes,
      interconnect,
    };
  } catch {
    return undefined;
  }
}

/** Number formats of a model's weights, for the roofs of a chart. */
export function formatsOf(model, config) {
  if (model && !config) return model.weight_formats;
  try {
    const { torch_dtype, dtype, quantization_config } = JSON.parse(config);
    const plain = torch_dtype ?? dtype ?? "bfloat16";
    const quantised = { fp8: "fp8", mxfp4: "fp4" }[quantization_config?.quant_method];
    return quantised ? [plain, quantised] : [plain];
  } catch {
    return ["bfloat16"];
  }
}
