// Elements. Text of a model or a link is inserted as text, never as HTML.

/** An element: `el("button", { class: "quiet", onclick: f, "aria-label": "…" }, "text", child)`. */
export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same in SVG. */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (["value", "checked", "disabled", "hidden"].includes(name)) element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const ICONS = {
  play: "M4 2.5v11l9-5.5z",
  pause: "M3.5 2.5h3v11h-3zM9.5 2.5h3v11h-3z",
  back: "M12 3v10L5 8zM3 3h1.8v10H3z",
  on: "M4 3v10l7-5zM11.2 3H13v10h-1.8z",
  dice: "M3 1h10a2 2 0 0 1 2 2v10a2 2 0 0 1-2 2H3a2 2 0 0 1-2-2V3a2 2 0 0 1 2-2zm1.8 2.4a1.4 1.4 0 1 0 0 2.8 1.4 1.4 0 0 0 0-2.8zM8 6.6a1.4 1.4 0 1 0 0 2.8 1.4 1.4 0 0 0 0-2.8zm3.2 3.2a1.4 1.4 0 1 0 0 2.8 1.4 1.4 0 0 0 0-2.8z",
};

export function icon(name) {
  return svg("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" }, svg("path", { d: ICONS[name] }));
}

/** The text of a token on its tile: without its leading space, with visible line breaks. */
export function visible(text) {
  const bare = text.replace(/\r?\n/g, "↵").replace(/\t/g, "⇥").replace(/^ /, "");
  return bare === "" ? "␣" : bare;
}

/** A probability in percent, with at most two decimals. */
export function percent(p) {
  if (p >= 0.9995) return "100%";
  return p >= 0.0995 ? `${(100 * p).toFixed(0)}%` : `${(100 * p).toFixed(p < 0.0095 ? 2 : 1)}%`;
}

export function plural(count, noun) {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

/** Delays calls of a function; a new call within `wait` milliseconds replaces the last one. */
export function debounced(wait, call) {
  let timer = 0;
  const later = (...values) => {
    clearTimeout(timer);
    timer = setTimeout(call, wait, ...values);
  };
  later.cancel = () => clearTimeout(timer);
  return later;
}

export function announce(message) {
  document.getElementById("announcer").textContent = message;
}
