// The state of the page, stored in the fragment of its URL.

import { debounced } from "./dom.js";

const DEFAULTS = { // an empty setting is the model's own
  view: "write",
  model: "",
  text: "",
  length: "",
  temperature: "",
  seed: "", // empty: a new seed at each press
  sampler: "", // as the command line writes it: name:field=value,…
  steps: "",
  more: "", // further options: name=value&…
  left: "",
  leftSteps: "",
  right: "",
  rightSteps: "",
  layout: "text",
  speed: "1",
  clean: "Once upon a time, there was a little girl named Lily. She loved to play outside in the sun with her friends.",
  t: "0.4",
  ran: "", // the request of the text on the board
  raced: "", // the requests of the two samplers
  row: "", // the board, if it was edited or its text was aborted
  locked: "", // the locked places of the board
  at: "", // the displayed step
};

export class State {
  constructor() {
    this.values = { ...DEFAULTS, ...parseHash(location.hash) };
    this.write = debounced(150, () => history.replaceState(null, "", this.link()));
  }

  get(name) {
    return this.values[name];
  }

  set(changes) {
    Object.assign(this.values, changes);
    this.write();
  }

  /** Returns to the settings of the model. */
  clearSettings() {
    const names = ["length", "temperature", "sampler", "steps", "more", "left", "leftSteps", "right", "rightSteps"];
    this.set(Object.fromEntries(names.map((name) => [name, ""])));
  }

  /** Removes the texts of all boards. */
  clearTexts() {
    this.set({ ran: "", raced: "", row: "", locked: "", at: "" });
  }

  /** The URL of this page with all values that differ from the defaults. */
  link() {
    const kept = Object.entries(this.values).filter(([name, value]) => value !== DEFAULTS[name]);
    const fragment = new URLSearchParams(kept).toString();
    return `${location.origin}${location.pathname}${fragment && `#${fragment}`}`;
  }

  /** A request in the link, or null. */
  request(name) {
    try {
      return this.values[name] ? JSON.parse(this.values[name]) : null;
    } catch {
      return null;
    }
  }
}

function parseHash(hash) {
  const found = new URLSearchParams(hash.slice(1));
  return Object.fromEntries([...found].filter(([name]) => Object.hasOwn(DEFAULTS, name)));
}

/** A row of tokens as short text: ids separated by dots, _ for a mask. */
export function packed(row) {
  return row.map(({ id }) => id ?? "_").join(".");
}

/** The tokens of a packed row, or null if it is invalid. */
export function unpacked(text) {
  const parts = text.split(".");
  if (!parts.every((part) => /^(_|\d{1,9})$/.test(part))) return null;
  return parts.map((part) => (part === "_" ? null : Number(part)));
}

/** Places as short text, separated by dots. */
export function packedPlaces(places) {
  return [...places].sort((a, b) => a - b).join(".");
}

export function unpackedPlaces(text) {
  return new Set(text.split(".").filter((part) => /^\d{1,9}$/.test(part)).map(Number));
}
