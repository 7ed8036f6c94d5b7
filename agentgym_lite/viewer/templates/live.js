// A running environment: a human types actions, an agent plays, or both take turns.

import { button, el, visible } from "./dom.js";

const PAUSE_MS = 600; // between an agent's rounds, so that they can be followed

export class Live {
  #running = false;

  constructor(source, player) {
    this.source = source;
    this.player = player;
    this.items = el("input", { name: "item", list: "agl-items", "aria-label": "Item", placeholder: "item" });
    this.seed = el("input", { name: "seed", type: "number", value: 0, "aria-label": "Seed" });
    this.begin = el("form", { class: "begin" }, this.items, el("datalist", { id: "agl-items" }), el("label", {}, "seed ", this.seed), el("button", {}, "New episode"));
    this.begin.addEventListener("submit", (event) => { event.preventDefault(); this.#ask(() => source.begin({ item: this.items.value.trim(), seed: Number(this.seed.value) })); });
    this.entry = el("input", { name: "action", autocomplete: "off", "aria-label": "Your action", placeholder: "your action, Enter sends it" });
    this.send = el("button", {}, "Send");
    this.form = el("form", { class: "act" }, this.entry, this.send);
    this.form.addEventListener("submit", (event) => { event.preventDefault(); this.#act(this.entry.value); });
    this.step = button("One step", () => { this.#running = false; this.#advance(); });
    this.run = button("Let it play", () => this.#toggle());
    this.agent = el("div", { class: "agent-controls" }, this.step, this.run);
    this.actions = el("ul", { class: "actions", "aria-label": "Available actions" });
    this.status = el("p", { class: "status", role: "status" });
    this.rules = el("div", { class: "text" });
    this.root = el("section", { class: "live", "aria-label": "Play" }, this.begin, el("details", { open: true, class: "said" }, el("summary", {}, "Rules"), this.rules),
      this.agent, this.form, this.status, el("span", { class: "tag" }, "available actions"), this.actions);
    this.#ask(() => source.state());
  }

  #act(text) {
    if (!text.trim()) { this.entry.focus(); return; }
    this.#running = false;
    this.#ask(() => this.source.act(text)).then((ok) => { if (ok) this.entry.value = ""; this.entry.focus(); });
  }

  async #advance() { return this.#ask(() => this.source.advance()); }

  async #toggle() {
    this.#running = !this.#running;
    this.#label();
    while (this.#running && (await this.#advance()) && !this.finished) await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    this.#running = false;
    this.#label();
  }

  #label() { this.run.textContent = this.#running ? "Pause" : "Let it play"; }

  /** One question at a time: the controls rest until the answer is there. */
  async #ask(question) {
    if (this.root.getAttribute("aria-busy") === "true") return false;
    this.root.setAttribute("aria-busy", "true");
    this.status.textContent = "…";
    try {
      this.#show(await question());
      return true;
    } catch (error) {
      this.status.textContent = error.message;
      this.#running = false;
      return false;
    } finally {
      this.root.setAttribute("aria-busy", "false");
    }
  }

  #show(state) {
    this.finished = state.finished;
    if (state.items) this.begin.querySelector("datalist").replaceChildren(...state.items.map((value) => el("option", { value })));
    this.rules.textContent = visible(state.instructions);
    this.items.value = state.body.item;
    this.seed.value = state.body.seed;
    this.agent.hidden = !state.agent;
    if (state.agent) this.step.textContent = `One step of ${state.agent}`;
    this.step.disabled = this.run.disabled = this.entry.disabled = this.send.disabled = state.finished;
    this.actions.replaceChildren(...state.actions.map((action) => el("li", {}, button(action, () => { this.entry.value = action; this.entry.focus(); }, { disabled: state.finished }))));
    if (!state.actions.length) this.actions.append(el("li", { class: "muted" }, state.finished ? "none, the episode is over" : "not listed by this environment"));
    this.status.textContent = state.finished ? `The episode is over: reward ${state.body.reward}.` : `Round ${state.body.turns.length + 1} of at most ${state.body.max_rounds}.`;
    this.player.setBodies([state.body], state.body.turns.length);
  }
}
