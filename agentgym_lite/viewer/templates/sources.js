// Where trajectories come from: the page itself, a local server, or the kernel of a notebook. All give
// `index(onRows)`, which calls back with rows as they become known, `body(id)` and `search(text)`.

const SEARCHED = (body) => body.turns.flatMap((t) => [t.observation, t.reply]).concat(body.end.observation, body.item).join("\n").toLowerCase();

/** Rows as objects, from the columns and the arrays that travel. */
export const unpack = (columns, rows) => rows.map((row) => Object.fromEntries(columns.map((name, k) => [name, row[k]])));

export class EmbeddedSource {
  constructor({ columns, rows, bodies }) {
    this.rows = unpack(columns, rows);
    this.bodies = new Map(bodies.map((b) => [b.id, b]));
  }

  async index(onRows) { onRows(this.rows, { total: this.rows.length, done: true, problems: [] }); }

  async body(id) { return this.bodies.get(id); }

  async search(text) {
    const wanted = text.toLowerCase();
    return new Set([...this.bodies.values()].filter((b) => SEARCHED(b).includes(wanted)).map((b) => b.id));
  }
}

/** Asks through `call(name, args)`, which an HTTP server or a notebook's kernel answers. */
class AskingSource {
  #cache = new Map();
  #known = 0;

  constructor(call) { this.call = call; }

  /** Rows that are new since the last time; long files are read piece by piece, so that the first rows come at once. */
  async index(onRows, refresh = false) {
    for (let first = refresh, state = { done: false }; !state.done; first = false) {
      state = await this.call("index", { start: this.#known, refresh: first });
      if (state.restarted) { this.#known = 0; this.#cache.clear(); }
      this.#known += state.rows.length;
      onRows(unpack(state.columns, state.rows), state);
      if (!state.rows.length && !state.done) await new Promise((resolve) => setTimeout(resolve, 150));
    }
  }

  async body(id) {
    if (!this.#cache.has(id)) {
      if (this.#cache.size >= 24) this.#cache.delete(this.#cache.keys().next().value);
      this.#cache.set(id, await this.call("body", { id }));
    }
    return this.#cache.get(id);
  }

  async search(text) { return new Set((await this.call("search", { text })).ids); }
}

export class HttpSource extends AskingSource {
  constructor({ base, token, live, canExport }) {
    super(async (name, args) => read(await fetch(`${base}/api/${name}?${new URLSearchParams(args)}`)));
    this.canRefresh = true;
    const post = (name, args) => fetch(`${base}/api/${name}`, {
      method: "POST", body: JSON.stringify(args), headers: { "Content-Type": "application/json", "X-AGL-Token": token } });
    const move = async (name, args = {}) => read(await post(`live/${name}`, args));
    if (live) this.live = { state: () => move("state"), begin: (args) => move("begin", args), act: (text) => move("act", { text }), advance: () => move("advance") };
    if (canExport) this.export = (ids) => post("export", { ids }); // a page as the answer
  }
}

async function read(response) {
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(answer.detail ?? `the server answered ${response.status}`);
  return answer;
}

export class KernelSource extends AskingSource {
  constructor(model) {
    const waiting = new Map();
    let number = 0;
    super((name, args) => new Promise((resolve, reject) => {
      waiting.set(++number, { resolve, reject });
      model.send({ number, name, args });
    }));
    this.canRefresh = true;
    this.take = ({ number: n, answer, error }) => {
      const { resolve, reject } = waiting.get(n) ?? {};
      waiting.delete(n);
      if (error) reject?.(new Error(error)); else resolve?.(answer);
    };
    model.on("msg:custom", this.take);
    this.close = () => model.off("msg:custom", this.take);
  }
}
