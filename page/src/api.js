// Requests to the server.

/** An answer that is no success: the server's own words, or the reason why there is none. */
export class ApiError extends Error {
  constructor(status, error) {
    super(error.message ?? `HTTP ${status}`);
    this.status = status;
    this.error = error;
  }
}

async function answered(response) {
  const text = await response.text();
  let body;
  try {
    body = JSON.parse(text);
  } catch {
    body = null;
  }
  if (response.ok && body !== null) return body;
  if (response.status === 503) {
    throw new ApiError(503, { message: "The server is busy and its queue is full. Try again in a moment." });
  }
  throw new ApiError(response.status, body?.error ?? { message: `The server answered ${response.status} ${response.statusText}.` });
}

async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, { message: "The server does not answer. Is `ridgepoint serve` still running?" });
  }
  return answered(response);
}

export function get(path, signal) {
  return ask(path, { signal, headers: token() });
}

export function post(path, body, signal) {
  const headers = { "Content-Type": "application/json", ...token() };
  return ask(path, { method: "POST", signal, headers, body: JSON.stringify(body) });
}

let bearer = "";

/** Sets the bearer token that a server may ask for. It is kept for this tab alone. */
export function setToken(text) {
  bearer = text.trim();
  try {
    sessionStorage.setItem("ridgepoint-token", bearer);
  } catch {
    // Storage may be off; the token then lasts until the page is left.
  }
}

function token() {
  if (!bearer) {
    try {
      bearer = sessionStorage.getItem("ridgepoint-token") ?? "";
    } catch {
      bearer = "";
    }
  }
  return bearer ? { Authorization: `Bearer ${bearer}` } : {};
}

/**
 * Requests of one kind, of which only the last one matters. One is under way at a time; of those that come meanwhile the last
 * one follows and the others are dropped.
 */
export class Latest {
  #busy = false;
  #waiting = null;

  /** `send(job)` makes the request; `done(answer, job)` and `failed(error, job)` show what came back; `rested()` follows the last one. */
  constructor({ send, done, failed, rested }) {
    Object.assign(this, { send, done, failed, rested });
  }

  get isBusy() {
    return this.#busy;
  }

  ask(job) {
    if (this.#busy) this.#waiting = { job };
    else this.#run(job);
  }

  /** Drops what waits, so that an older request cannot follow a fault that the page found itself. */
  drop() {
    this.#waiting = null;
  }

  async #run(job) {
    this.#busy = true;
    try {
      const answer = await this.send(job);
      this.done(answer, job);
    } catch (error) {
      this.failed(error, job);
    } finally {
      this.#busy = false;
      const next = this.#waiting;
      this.#waiting = null;
      if (next) this.#run(next.job);
      else this.rested();
    }
  }
}
