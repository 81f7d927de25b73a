// Starts the page: reads the permalink, asks the server, and shows what it answers.

import { get, Latest, post, setToken } from "./api.js";
import { isLearned, learn } from "./arguments.js";
import { pack, unpack } from "./codec.js";
import { capacityCard, loadNote, sourceCard, stepNote } from "./cards.js";
import { $, debounced, setText } from "./dom.js";
import { addExports } from "./export_buttons.js";
import { copy, say } from "./exports.js";
import { Faults } from "./faults.js";
import { Form } from "./form.js";
import { gib, micros, millis, percent, whole } from "./format.js";
import { Outlook } from "./outlook.js";
import { problemsOf } from "./problems.js";
import { formatsOf, Setup } from "./setup.js";
import {
  FieldFault,
  fromHash,
  initial,
  isKey,
  limits,
  ownSweepBody,
  PACKED,
  serverBody,
  simulateBody,
  stepBody,
  toHash,
  VIEWS,
} from "./state.js";
import { Sweep } from "./sweep.js";
import { chooseTheme } from "./theme_choice.js";
import { CapacityView } from "./views/capacity.js";
import { KnownView, trust } from "./views/known.js";
import { LoadView, stateOf, wholeRun } from "./views/load.js";
import { fitting, kvTokens, MemoryView } from "./views/memory.js";
import { bounds, StepView } from "./views/step.js";

const app = { state: initial(), answers: {}, packed: {} };

const setup = new Setup({ set });
const form = new Form({ set });
const faults = new Faults({ set });
const views = { step: new StepView(), load: new LoadView(), capacity: new CapacityView(), memory: new MemoryView() };
views.known = new KnownView({
  choose: (model, hardware, size) =>
    set({ model, hardware, config: "", gpu: "", tensor_parallel_size: size ?? app.state.tensor_parallel_size, view: "step" }),
});
const outlook = new Outlook({ state: () => app.state, values: (id) => form.values(id) });
const sweep = new Sweep({ view: views.capacity, faults, state: () => app.state });

/** Changes the state, shows it and asks for what depends on it. */
function set(patch, started) {
  const before = app.state;
  app.state = { ...before, ...patch };
  if (before.view !== app.state.view) {
    history.pushState(null, "", location.hash);
    memoryOf = "";
  }
  for (const key of PACKED) if (before[key] !== app.state[key]) repack();
  show();
  request(started);
  remember();
}

// The permalink.

const remember = debounced(() => {
  const hash = `#${toHash(app.state, app.packed)}`;
  if (hash !== location.hash) history.replaceState(null, "", hash);
}, 150);

async function repack() {
  const packed = {};
  for (const key of PACKED) packed[key] = await pack(app.state[key]);
  app.packed = packed;
  remember();
}

async function follow() {
  const { state, unknown } = fromHash(location.hash);
  for (const key of PACKED) {
    try {
      app.packed[key] = state[key];
      state[key] = await unpack(state[key]);
    } catch {
      unknown.push(key);
      state[key] = "";
    }
  }
  app.state = state;
  faults.report(
    "link",
    unknown.length > 0 ? [`The permalink has parts that this page does not know, and leaves out: ${unknown.join(", ")}`] : [],
    state,
  );
  show();
  request();
}

addEventListener("popstate", follow);
addEventListener("hashchange", () => {
  if (location.hash !== `#${toHash(app.state, app.packed)}`) follow();
});

// Showing.

function show() {
  const { state } = app;
  const deployment = app.answers.step?.deployment ?? {};
  const model = setup.chosenModel(state);
  setup.show(state);
  form.show(state, {
    longest: Number(state.max_model_len) || (state.config ? app.answers.memory?.max_model_len : model?.max_position_embeddings),
    maxNumSeqs: Number(state.max_num_seqs) || deployment.max_num_seqs,
    maxTokens: Number(state.max_num_batched_tokens) || deployment.max_num_batched_tokens,
  });
  for (const view of VIEWS) {
    const chosen = view === state.view;
    $(view).hidden = !chosen;
    $(`tab-${view}`).setAttribute("aria-selected", String(chosen));
    $(`tab-${view}`).tabIndex = chosen ? 0 : -1;
  }
  const gpus = ["tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"].reduce(
    (product, key) => product * (Number(state[key]) || 1),
    1,
  );
  const gpu = setup.chosenGpu(state);
  const title = `${state.config ? "Your model" : state.model} on ${gpus} × ${gpu?.display_name ?? state.hardware}`;
  setText($("server-line"), title);
  document.title = `${title} · ridgepoint`;
  sweep.size();
  if (state.view === "known") known();
  document.dispatchEvent(new Event("shown"));
}

const clearTab = (view) => {
  setText($(`answer-${view}`), "–");
  setText($(`note-${view}`), "no answer");
  $(view).classList.add("stale");
  if (view !== "step") return;
  setText($("answer-known"), "–");
  setText($("note-known"), "no answer");
};

/** Shows a fault of a request: at its field, which the page itself, the server's status or its place in the body may name. */
function report(kind, error) {
  const isDenied = error.status === 401;
  if (isDenied) $("token-field").hidden = false;
  const key = error.error?.location?.key;
  const field = error instanceof FieldFault ? error.field : isDenied ? "token" : key && isKey(key) ? key : "";
  const problems = error instanceof FieldFault ? [error.message] : problemsOf(error.error ?? { message: error.message });
  faults.report(kind, problems, app.state, field);
}

const working = new Set();

/** Keeps which kinds of requests are under way or about to be, as an attribute of the document. */
function work(kind, isBusy) {
  if (isBusy) working.add(kind);
  else working.delete(kind);
  document.documentElement.dataset.working = [...working].join(" ");
}

/** Makes the requests of one kind. `body(state)` may find a fault itself. */
function channel(kind, view, path, body, showAnswer) {
  let last = "";
  const failed = (error) => {
    last = "";
    report(kind, error);
    clearTab(view);
  };
  const latest = new Latest({
    send: ({ sent }) => post(path, sent),
    done: (answer, job) => {
      app.answers[kind] = answer;
      faults.report(kind, [], app.state);
      $(view).classList.remove("stale");
      showAnswer(answer, job);
      if (job.started !== undefined) measure(kind, job.started);
    },
    failed,
    rested: () => work(kind, false),
  });
  return (state, started) => {
    let sent;
    try {
      sent = body(state);
    } catch (error) {
      if (!(error instanceof FieldFault)) throw error;
      latest.drop();
      work(kind, latest.isBusy);
      failed(error);
      return;
    }
    const text = JSON.stringify(sent);
    work(kind, latest.isBusy || text !== last);
    if (text === last) return;
    last = text;
    latest.ask({ sent, started });
  };
}

/** Time from an input's event to the answer on the page, for tests and the curious. */
function measure(kind, started) {
  performance.measure(`answer-${kind}`, { start: started, end: performance.now() });
  if (performance.getEntriesByType("measure").length > 2000) performance.clearMeasures();
}

const askStep = channel("step", "step", "v1/predict-step", stepBody, (answer) => {
  const { state } = app;
  const isFirst = performance.getEntriesByName("first-answer").length === 0;
  const [kind] = bounds(answer);
  setText($("answer-step"), micros(answer.step_time_us));
  setText($("note-step"), stepNote(state, kind));
  const source = sourceCard(answer.provenance);
  setText($("answer-known"), source.answer);
  setText($("note-known"), source.note);
  views.step.show(answer, { hardware: setup.chosenGpu(state), formats: formatsOf(setup.chosenModel(state), state.config) });
  announce();
  outlook.soon();
  if (isFirst) performance.mark("first-answer");
});

const askMemory = channel("memory", "memory", "v1/kv-capacity", serverBody, (answer) => {
  if (answer.fits === false) faults.report("memory", problemsOf(answer), app.state);
  showMemory();
});

function showMemory() {
  const { answers, state } = app;
  if (!answers.memory) return;
  const context = Number(state.context) || 1;
  const short = answers.memory.kv_cache_bytes < 0;
  setText($("answer-memory"), short ? "does not fit" : `${whole(kvTokens(answers.memory))} tokens`);
  setText(
    $("note-memory"),
    short
      ? `${gib(-answers.memory.kv_cache_bytes)} short on each GPU`
      : `${gib(answers.memory.kv_cache_bytes)}; ${whole(fitting(answers.memory, context))} × ${whole(context)} fit`,
  );
  if (state.view === "memory")
    views.memory.show(answers.memory, {
      context,
      maxNumSeqs: answers.memory.deployment.max_num_seqs,
      replicas: Number(state.data_parallel_size) || 1,
    });
}

const askLoad = channel("load", "load", "v1/simulate", simulateBody, (answer) => {
  const run = wholeRun(answer);
  const load = stateOf(answer);
  setText($("answer-load"), `TTFT ${millis(run.ttft_ms?.p99)}`);
  setText($("note-load"), loadNote(app.state, load, run.requests));
  $("tab-load").classList.toggle("late", load !== "keeps_up");
  trustworthy(answer);
  views.load.show(answer, { limits: limits(app.state), state: app.state });
});

const askCapacity = channel("capacity", "capacity", "v1/sweep", ownSweepBody, ({ rows: [row] }) => {
  const { answer, note, late } = capacityCard(row, app.state);
  setText($("answer-capacity"), answer);
  setText($("note-capacity"), note);
  $("tab-capacity").classList.toggle("late", Boolean(late));
  views.capacity.showOwn(row, { limits: limits(app.state), state: app.state });
});

const soonLoad = debounced(() => askLoad(app.state), 300);
const soonCapacity = debounced(() => {
  if (Object.keys(limits(app.state)).length > 0) askCapacity(app.state);
  else {
    setText($("answer-capacity"), "–");
    setText($("note-capacity"), "no limit is set");
    work("capacity", false);
  }
}, 450);

let memoryOf = "";

function request(started) {
  const { state } = app;
  work("load", true);
  work("capacity", true);
  outlook.stop();
  askStep(state, started);
  askMemory(state);
  if (state.context !== memoryOf) showMemory();
  memoryOf = state.context;
  if (state.view === "load" && Number(state.num_requests) <= 5000) askLoad(state, started);
  else soonLoad();
  soonCapacity();
}

/** Public runs, asked for once. */
async function measured() {
  app.answers.measured ??= await get("v1/measured");
  return app.answers.measured;
}

/** Says below the figures of a load how well loads of its model were predicted. */
async function trustworthy({ model, hardware, serving_engine: engine }) {
  try {
    setText($("load-trust"), app.state.config || app.state.gpu ? "" : trust(await measured(), model, hardware, engine));
  } catch {
    setText($("load-trust"), "");
  }
}

let knownAsked = false;

async function known() {
  views.known.filter(app.state);
  if (knownAsked) return;
  knownAsked = true;
  try {
    setText($("cell-detail"), "The server predicts every cell. The first time takes some seconds.");
    const support = await get("v1/support");
    setText($("cell-detail"), "");
    app.answers.known = support;
    views.known.showSupport(support, app.state);
    views.known.showMeasured(await measured());
    faults.report("known", [], app.state);
  } catch (error) {
    knownAsked = false;
    report("known", error);
  }
}

const announce = debounced(() => {
  const { step } = app.answers;
  const [kind] = bounds(step);
  setText(
    $("live"),
    `Step ${micros(step.step_time_us)}, 90 % interval ${micros(step.lower_us)} to ${micros(step.upper_us)}; ${kind.bound} bounds ${percent(kind.share, 0)}.`,
  );
}, 900);

// Controls next to the form.

for (const view of VIEWS) $(`tab-${view}`).addEventListener("click", () => set({ view }));
document.querySelector(".contents").addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step && event.key !== "Home" && event.key !== "End") return;
  event.preventDefault();
  const at = VIEWS.indexOf(app.state.view);
  const view = event.key === "Home" ? VIEWS[0] : event.key === "End" ? VIEWS.at(-1) : VIEWS[(at + step + VIEWS.length) % VIEWS.length];
  set({ view });
  $(`tab-${view}`).focus();
});

$("copy-link").addEventListener("click", () => {
  const hash = toHash(app.state, app.packed);
  history.replaceState(null, "", `#${hash}`);
  copy(location.href, "Permalink");
});
$("reset").addEventListener("click", () => {
  set({ ...initial(), view: app.state.view });
  say("Everything is as at the start.");
});
$("token").addEventListener("change", ({ target }) => {
  setToken(target.value);
  start();
});
$("grid_hardware").addEventListener("change", () => {
  const chosen = [...document.querySelectorAll("[data-grid]:checked")].map(({ value }) => value);
  set({ grid_hardware: chosen.join(",") });
});
chooseTheme();
if (matchMedia("(max-width: 60rem)").matches) $("setup-fold").open = false;

async function start() {
  try {
    const lists = Promise.all([get("v1/models"), get("v1/hardware"), get("v1/arguments")]);
    get("v1/version").then(
      ({ version }) => setText($("version"), version ?? ""),
      () => {},
    );
    const [{ models }, { hardware }, { arguments: rows }] = await lists;
    setup.lists(models, hardware);
    if (!isLearned()) {
      learn(rows);
      form.make();
      addExports({ app, views, sweep });
    }
    faults.report("lists", [], app.state);
  } catch (error) {
    report("lists", error);
  }
  await follow();
}

start();
