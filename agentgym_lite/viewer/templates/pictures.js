// Drawings of environment state, from the JSON of `Environment.render()`. A kind without a drawing of its own is shown by its text.

import { el, shape, short } from "./dom.js";

const PICTURES = { babyai: grid, textcraft: crafting, sciworld: rooms, searchqa: passages, webarena: webpage };

/** An element for what `render()` gave, or null if there is nothing to show. */
export function picture(render) {
  if (!render || typeof render !== "object") return null;
  const draw = Object.hasOwn(PICTURES, render.kind) ? PICTURES[render.kind] : null;
  let drawn = null;
  try {
    drawn = draw && draw(render);
  } catch (error) {
    console.warn(`no drawing of ${render.kind}: ${error}`); // a version of the environment that says it in another way
  }
  if (drawn) return el("figure", { class: `picture ${render.kind}`, "aria-label": `state of ${render.kind}` }, drawn);
  return typeof render.text === "string" && render.text ? el("pre", { class: "picture" }, render.text) : null;
}

const list = (value) => (Array.isArray(value) ? value : []);
const tag = (text) => el("span", { class: "tag" }, text);
const fact = (name, value) => el("p", {}, tag(name), " ", String(value));

// -- BabyAI: a grid of cells [type, colour, state] -----------------------------------------------------------------------------------

const CELL = 16;
const PAINT = { red: "#d33", green: "#2a2", blue: "#36d", purple: "#83c", yellow: "#c9a40a", grey: "#888" };
const DIRECTIONS = ["right", "down", "left", "up"];

function grid({ cells, visible, known, agent, width, height, mission, carrying }) {
  const parts = [shape("rect", { class: "unknown", width: width * CELL, height: height * CELL })];
  cells.forEach((row, y) => row.forEach((cell, x) => {
    const seen = visible?.[y]?.[x] ? "visible" : known?.[y]?.[x] ? "known" : "";
    if (cell?.[0] === "wall") parts.push(square(x, y, seen ? "wall" : "wall hidden"));
    else if (seen) parts.push(square(x, y, seen));
    if (cell && cell[0] !== "wall") parts.push(thing(cell, x, y, seen));
  }));
  const turn = `translate(${agent.x * CELL + 8} ${agent.y * CELL + 8})rotate(${90 * agent.dir})`;
  parts.push(shape("path", { class: "agent", d: "M-5 -5L6 0L-5 5Z", transform: turn }, shape("title", {}, `agent, facing ${DIRECTIONS[agent.dir]}`)));
  const label = `grid of ${width} by ${height} cells; the agent stands in column ${agent.x}, row ${agent.y}, facing ${DIRECTIONS[agent.dir]}`;
  const box = { viewBox: `0 0 ${width * CELL} ${height * CELL}`, role: "img", "aria-label": label };
  const held = carrying ? `${carrying.color} ${carrying.type}` : "nothing";
  return [shape("svg", box, parts), el("figcaption", {}, fact("mission", mission), fact("carries", held))];
}

const square = (x, y, kind) => shape("rect", { class: kind, x: x * CELL, y: y * CELL, width: CELL, height: CELL });

function thing([type, color, state], x, y, seen) {
  const paint = PAINT[color] ?? "#888";
  const line = { fill: "none", stroke: paint, "stroke-width": 2 };
  const doors = {
    open: () => [shape("path", { d: "M2 1V15", ...line })],
    closed: () => [shape("path", { d: "M2 2H14V14H2ZM10 8H11", ...line })],
    locked: () => [shape("rect", { x: 1, y: 1, width: 14, height: 14, fill: paint }), shape("path", { d: "M8 6V11", stroke: "#fff", "stroke-width": 2 })],
  };
  const kinds = {
    ball: () => [shape("circle", { cx: 8, cy: 8, r: 5, fill: paint })],
    box: () => [shape("path", { d: "M3 3H13V13H3ZM3 8H13", ...line })],
    key: () => [shape("path", { d: "M8 7V14H11M8 11H11M8 7A2.5 2.5 0 1 0 7.9 7", ...line })],
    door: doors[state] ?? (() => []),
  };
  const title = shape("title", {}, [state, color, type].filter(Boolean).join(" "));
  return shape("g", { class: seen ? "thing" : "thing hidden", transform: `translate(${x * CELL} ${y * CELL})` }, (kinds[type] ?? (() => []))(), title);
}

// -- TextCraft: what is carried, and the recipe tree with what is still missing -------------------------------------------------------

function crafting({ goal, inventory, tree }) {
  const items = Object.entries(inventory ?? {});
  const carried = items.length ? items.map(([name, count]) => el("li", {}, el("b", {}, count), ` ${name}`)) : el("li", { class: "muted" }, "nothing");
  const left = [fact("goal", goal), tag("inventory"), el("ul", { class: "inventory" }, carried)];
  return tree ? [...left, tag("recipe tree"), el("ul", { class: "tree" }, node(tree, 1, inventory ?? {}))] : left;
}

function node({ item, count = 1, ingredients }, needed, inventory) {
  const have = inventory[item] ?? 0;
  const made = ingredients ? `craft ${Math.ceil(needed / count)}×${count}` : "get";
  const state = have >= needed ? "done" : have > 0 ? "part" : "";
  const crafts = Math.ceil(Math.max(0, needed - have) / count);
  const below = list(ingredients).map((child) => node(child, child.needed * crafts, inventory));
  const open = needed > 0 || have > 0;
  const line = el("span", { class: `need ${open ? state : "done"}` }, open ? `${have}/${needed} ` : "", item, el("small", {}, ` ${made}`));
  return el("li", {}, line, open && below.length && state !== "done" ? el("ul", {}, below) : null);
}

// -- SciWorld: places, the doors between them, and what is where ---------------------------------------------------------------------

function rooms({ task, place: here, places, doors, inventory, score, moves }) {
  const at = layout(places.map((p) => p.name), doors.map((d) => d.between));
  const lines = doors.map(({ between: [a, b], open }) => shape("line", {
    class: open === false ? "door shut" : open ? "door open" : "door", x1: at[a].x, y1: at[a].y, x2: at[b].x, y2: at[b].y },
  shape("title", {}, `${a} – ${b}${open === false ? ", shut" : open ? ", open" : ""}`)));
  const boxes = places.map(({ name, things }) => shape("g", { class: name === here ? "room here" : "room", transform: `translate(${at[name].x} ${at[name].y})` },
    shape("title", {}, `${name}: ${names(things) || "nothing"}`), shape("rect", { x: -40, y: -13, width: 80, height: 26, rx: 6 }), shape("text", { y: 4 }, name)));
  const label = `map of ${places.length} places; the agent is in the ${here || "dark"}`;
  const svg = shape("svg", { viewBox: "-172 -128 344 256", role: "img", "aria-label": label }, lines, boxes);
  const seen = places.find((p) => p.name === here)?.things ?? [];
  return [svg, el("figcaption", {}, fact("task", `${task}, score ${short(score)} after ${moves} moves`), fact("here", names(seen) || "nothing"), fact("carries", names(inventory) || "nothing"))];
}

const names = (things) => list(things).map(({ name, contents }) => (list(contents).length ? `${name} (${names(contents)})` : name)).join(", ");

/** The place with most doors in the middle, the others around it, neighbours next to each other where it can be. */
function layout(all, ways) {
  const linked = (name) => ways.filter((w) => w.includes(name)).map(([a, b]) => (a === name ? b : a));
  const hub = all.reduce((best, name) => (linked(name).length > linked(best).length ? name : best), all[0]);
  const around = (name) => linked(name).filter((other) => other !== hub && all.includes(other)).sort((a, b) => linked(a).length - linked(b).length);
  const ring = [];
  const visit = (name) => { if (name !== hub && !ring.includes(name)) { ring.push(name); around(name).forEach(visit); } };
  const ends = (name) => around(name).length || Infinity; // a chain of places begins at an end of it
  [...all].sort((a, b) => ends(a) - ends(b)).forEach(visit);
  const at = { [hub]: { x: 0, y: 0 } };
  ring.forEach((name, k) => {
    const angle = (2 * Math.PI * k) / ring.length - Math.PI / 2;
    at[name] = { x: Math.round(128 * Math.cos(angle)), y: Math.round(108 * Math.sin(angle)) };
  });
  return at;
}

// -- SearchQA: the question, every search with what it found, and the answers ---------------------------------------------------------

function passages({ question, answers, gold, steps }) {
  const found = list(gold).filter((g) => g.found).length;
  const latest = list(steps).findLast((step) => "search" in step);
  const lines = list(steps).map((step) => ("search" in step ? searched(step, step === latest) : answered(step)));
  return [fact("question", question), lines.length ? el("ol", { class: "steps" }, lines) : el("p", { class: "muted" }, "nothing searched yet"),
    fact("accepted", list(answers).join(" / ")), fact("gold passages", `${found} of ${list(gold).length} found`)];
}

const answered = ({ answer, em, f1 }) => el("li", {}, tag("answered"), ` ${answer} `, el("span", { class: em ? "badge good" : "badge bad" }, em ? "right" : `wrong, F1 ${short(f1, 2)}`));

function searched({ search, passages: found }, open) {
  const items = found.map((p) => el("li", { class: p.gold ? "gold" : "" }, el("b", {}, p.title), p.gold ? [" ", el("span", { class: "badge good" }, "gold")] : null,
    el("small", { class: "muted" }, ` ${short(p.score)}`), el("p", {}, p.text)));
  return el("li", {}, el("details", { open }, el("summary", {}, search), el("ul", { class: "passages" }, items)));
}

// -- WebArena: the address, the page as the agent reads it, and how it looks ---------------------------------------------------------

const BASE64 = /^[A-Za-z0-9+/=]+$/;

function webpage({ objective, url, tabs, current_tab: current, tree, screenshot }) {
  const bar = tabs.length > 1 ? el("div", { class: "tabs" }, tabs.map((title, k) => el("span", { class: k === current ? "tab on" : "tab" }, title || "untitled"))) : null;
  const image = typeof screenshot === "string" && BASE64.test(screenshot) ? el("img", { src: `data:image/png;base64,${screenshot}`, alt: `screenshot of ${url}` }) : null;
  const text = el("pre", { tabindex: 0, "aria-label": "accessibility tree" }, tree.join("\n"));
  return [fact("objective", objective), bar, el("p", { class: "url" }, url), image, image ? el("details", {}, el("summary", {}, "accessibility tree"), text) : text];
}
