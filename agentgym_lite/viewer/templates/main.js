// Puts the viewer into a page, a notebook's output or a widget, and ties list, player and keys together.

import { Browser } from "./browser.js";
import { button, el } from "./dom.js";
import { Live } from "./live.js";
import { Player } from "./player.js";
import { EmbeddedSource, HttpSource, KernelSource } from "./sources.js";
import { legend, rowView } from "./tokens.js";

const KEYS = [["/", "search"], ["↑ ↓ PgUp PgDn Home End", "move in the list"], ["Enter", "open"], ["c or Shift+Enter", "open beside"], ["m", "mark for export"],
  ["← →", "step"], ["Home End", "first turn, end (in the replay)"], ["Space", "play, pause"], ["t", "colour of tokens"], ["[ ]", "same item, earlier or later in training"],
  ["x", "close the right-hand trajectory"], ["?", "this list"]];

/** The whole viewer: list on the left, replay on the right. */
class Viewer {
  #open = [];

  constructor(root, source, data) {
    this.source = source;
    this.linked = Boolean(data.linked); // the address of the page follows what is shown
    this.player = new Player({ onShow: () => this.#link() });
    this.error = el("p", { class: "problems", role: "alert" });
    this.family = el("div", { class: "family", role: "group", "aria-label": "The same item over training" });
    this.browser = new Browser({ onOpen: (row, beside) => this.open(row, beside), search: (text) => this.#guard(() => source.search(text)), onMark: () => this.#exportLabel() });
    this.help = el("dialog", { class: "help", "aria-label": "Keys" }, el("h3", {}, "Keys"), el("dl", {}, KEYS.map(([key, what]) => [el("dt", {}, key), el("dd", {}, what)])),
      el("form", { method: "dialog" }, el("button", {}, "Close")));
    this.exportButton = source.export && button("Export", () => this.#export());
    const tools = el("div", { class: "tools" }, source.canRefresh && button("Reload", () => this.#load(true), { title: "Read what was added since" }),
      this.exportButton, button("Keys", () => this.help.showModal(), { title: "Keys ( ? )" }));
    const empty = el("p", { class: "muted empty" }, "Choose a trajectory from the list. Shift+click, or c, opens a second one beside it.");
    this.stage = el("div", { class: "stage" }, this.error, empty, this.family, this.player.root);
    root.replaceChildren(el("div", { class: "viewer", role: "application", "aria-label": "Trajectory viewer" },
      el("div", { class: "side" }, el("header", {}, el("h2", {}, data.title ?? "Trajectories"), tools), this.browser.root), this.stage, this.help));
    this.root = root.firstChild;
    this.root.addEventListener("keydown", (event) => this.#key(event));
    this.player.root.hidden = true;
    this.wanted = this.linked ? new URLSearchParams(location.hash.slice(1)) : new URLSearchParams();
    this.#exportLabel();
    this.#load(false);
  }

  /** Show a trajectory, alone or to the right of the one that is open. */
  async open(row, beside = false) {
    const rows = beside && this.#open.length && this.#open[0] !== row ? [this.#open[0], row] : [row];
    const bodies = await this.#guard(() => Promise.all(rows.map((r) => this.source.body(r.id))));
    if (!bodies) return;
    this.#open = rows;
    this.stage.querySelector(".empty")?.remove();
    this.player.root.hidden = false;
    this.player.setBodies(bodies, beside ? this.player.turn : 0);
    this.browser.setOpen(rows.map((r) => r.id));
    this.#drawFamily();
    this.#exportLabel();
    this.#link();
  }

  #load(refresh) {
    return this.#guard(() => this.source.index((rows, state) => {
      this.browser.add(rows, state);
      this.#openWanted();
      this.#drawFamily();
    }, refresh));
  }

  async #openWanted() {
    const ids = (this.wanted.get("open") ?? "").split(",").filter(Boolean).map(Number);
    const rows = ids.map((id) => this.browser.rows.find((r) => r.id === id));
    if (!rows.length || !rows.every(Boolean)) return;
    const turn = Number(this.wanted.get("turn")) || 1;
    this.wanted = new URLSearchParams();
    for (const [k, row] of rows.slice(0, 2).entries()) await this.open(row, k > 0);
    this.player.show(turn - 1);
  }

  #drawFamily() {
    const rows = this.#open.length ? this.browser.family(this.#open[0]) : [];
    this.family.hidden = rows.length < 2;
    if (rows.length < 2) return;
    this.family.replaceChildren(el("span", { class: "muted" }, `${rows[0].item} at step`), ...rows.map((row) => {
      const k = this.#open.indexOf(row);
      const name = row.step === null ? row.when || row.run || `#${row.id}` : [row.step, row.when].filter(Boolean).join(" ");
      return button(`${name} ${row.success ? "✓" : "✗"}`, (event) => this.open(row, event.shiftKey || event.ctrlKey || event.metaKey),
        { class: row.success ? "chip good" : "chip bad", "aria-pressed": k >= 0 ? "true" : "false", "aria-label": `${row.step === null ? "" : "step "}${name}, ${row.success ? "success" : "no success"}`, title: `${row.run} reward ${row.reward}, ${row.rounds} rounds; Shift+click opens beside` });
    }));
  }

  #sibling(by) {
    const rows = this.#open.length ? this.browser.family(this.#open[0]) : [];
    const next = rows[rows.indexOf(this.#open[0]) + by];
    if (next) this.open(next);
  }

  #link() {
    if (!this.linked || !this.#open.length) return;
    history.replaceState(null, "", `#open=${this.#open.map((r) => r.id).join(",")}&turn=${this.player.turn + 1}`);
  }

  #chosen() {
    if (this.browser.marked.size) return [...this.browser.marked];
    return this.#open.length ? this.#open.map((r) => r.id) : this.browser.shown.map((r) => r.id);
  }

  #exportLabel() {
    if (!this.exportButton) return;
    const what = this.browser.marked.size ? `${this.browser.marked.size} marked` : this.#open.length ? "what is open" : "the list";
    this.exportButton.title = `Save ${what} as one HTML file; m marks a trajectory`;
  }

  #export() {
    return this.#guard(async () => {
      const response = await this.source.export(this.#chosen());
      if (!response.ok) throw new Error((await response.json()).detail);
      const link = el("a", { href: URL.createObjectURL(await response.blob()), download: "trajectories.html" });
      link.click();
      URL.revokeObjectURL(link.href);
      return true;
    });
  }

  async #guard(work) {
    try {
      const result = await work();
      this.error.textContent = "";
      return result;
    } catch (error) {
      this.error.textContent = error.message;
      return null;
    }
  }

  #key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "Escape" && event.target === this.browser.search) this.browser.grid.focus();
    else if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    else if (event.key === "/") this.browser.search.focus();
    else if (event.key === "?") this.help.showModal();
    else if (event.key === "[") this.#sibling(-1);
    else if (event.key === "]") this.#sibling(1);
    else if (event.key === "x" && this.#open.length > 1) this.open(this.#open[0]);
    else if (event.key === "t") this.player.cycleMode();
    else if (event.key === "ArrowLeft") this.player.move(-1);
    else if (event.key === "ArrowRight") this.player.move(1);
    else if (event.key === " " && !/^(BUTTON|SUMMARY)$/.test(event.target.tagName)) this.player.toggle();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

const VIEWS = {
  browse: (root, source, data) => { new Viewer(root, source, data); },
  replay: async (root, source) => {
    const player = new Player();
    root.replaceChildren(player.root);
    const turn = Number(new URLSearchParams(location.search).get("turn")) || 1; // report.html?turn=3 opens at the third turn
    player.setBodies(await Promise.all(source.rows.map((row) => source.body(row.id))), turn - 1);
  },
  tokens: (root, source, { row, vocab }) => { root.replaceChildren(legend("logprob", 1), rowView(row, vocab, "logprob", 1)); },
  live: (root, source, data) => {
    const player = new Player();
    const live = new Live(source.live, player);
    root.replaceChildren(el("div", { class: "viewer" }, el("div", { class: "side" }, el("header", {}, el("h2", {}, data.title)), live.root), el("div", { class: "stage" }, player.root)));
  },
};

function mount(root, data, source) {
  root.dataset.ready = "1";
  // A notebook's own keys rest while the focus is in here: its "x" would cut the cell.
  root.addEventListener("keydown", (event) => { if (!event.altKey && !event.ctrlKey && !event.metaKey) event.stopPropagation(); });
  VIEWS[data.view](root, source, data);
}

for (const root of document.querySelectorAll("[data-agl]:not([data-ready])")) {
  const data = JSON.parse(root.querySelector("script[type='application/json']").textContent);
  mount(root, data, data.server ? new HttpSource(data.server) : data.rows ? new EmbeddedSource(data) : null);
}

/** What a notebook's widget front end (anywidget) calls. */
export default {
  render({ model, el: node }) {
    const root = el("div", { class: "agl" });
    const source = new KernelSource(model);
    node.append(root);
    mount(root, { view: "browse", title: model.get("title") }, source);
    return source.close;
  },
};
