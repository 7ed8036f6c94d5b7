// Elements made from text nodes and attributes only: nothing that an agent or an environment says is ever read as HTML.

const CODES = /[^\P{C}\n\t]/gu;

/** Text in which control and direction-changing characters are shown as visible codes instead of acting. */
export function visible(text) {
  return String(text).replace(CODES, (c) => {
    const n = c.codePointAt(0);
    return n < 0x20 ? String.fromCharCode(0x2400 + n) : n === 0x7f ? "\u2421" : `\\u{${n.toString(16)}}`;
  });
}

function build(node, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "dataset") Object.assign(node.dataset, value);
    else node.setAttribute(name, value === true ? "" : visible(value));
  }
  for (const child of children.flat(2)) {
    if (child !== undefined && child !== null && child !== false) node.append(child instanceof Node ? child : visible(child));
  }
  return node;
}

/** An HTML element; `props` are attributes, `on<event>` listeners and `dataset`. */
export const el = (tag, props = {}, ...children) => build(document.createElement(tag), props, children);

/** An SVG element. */
export const shape = (tag, props = {}, ...children) => build(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);

export const button = (label, onclick, props = {}) => el("button", { type: "button", onclick, ...props }, label);

export const clamp = (x, low, high) => Math.max(low, Math.min(high, x));

/** A number with at most `digits` significant digits. */
export const short = (x, digits = 3) => (typeof x === "number" && Number.isFinite(x) ? String(Number(x.toPrecision(digits))) : "–");
