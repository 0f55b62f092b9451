// The settings of the page, built from the server's menu.

import { el, icon } from "./dom.js";

let fieldCount = 0;

/** A labelled field. */
export function field(label, control, ...more) {
  control.id ||= `field-${(fieldCount += 1)}`;
  return el("div", { class: "field" }, el("label", { for: control.id }, label), ...(more.length ? more : [control]));
}

export function hint(text) {
  return el("span", { class: "hint" }, text);
}

/** The name and the fields of a sampler specification such as "remask:eta=0.02,rule=loop". */
export function parseSpec(spec) {
  const [name, rest = ""] = spec.split(/:(.*)/s);
  return { name, fields: Object.fromEntries(rest.split(",").filter(Boolean).map((part) => part.split(/=(.*)/s).slice(0, 2))) };
}

export function writeSpec(name, fields) {
  const given = Object.entries(fields).filter(([, value]) => value !== "" && value !== undefined);
  return given.length ? `${name}:${given.map((pair) => pair.join("=")).join(",")}` : name;
}

/** Controls for the sampler, its steps and its fields; a change calls `onchange(spec, steps)`. */
export class SamplerPicker {
  constructor({ menu, spec, steps, onchange }) {
    this.menu = menu;
    this.onchange = onchange;
    const { name, fields } = parseSpec(spec);
    this.values = fields;
    const names = menu.samplers.map((sampler) => sampler.name);
    this.select = el(
      "select",
      { onchange: () => { this.values = {}; this.#changed(); } },
      ...names.map((value) => el("option", { value }, value.replaceAll("_", " "))),
    );
    this.select.value = names.includes(name) ? name : names[0];
    this.about = hint("");
    this.steps = el("input", { type: "number", min: 1, max: 4096, value: steps, placeholder: "one per token", oninput: () => this.#notify() });
    this.stepsField = field("Steps", this.steps);
    this.own = el("div", { class: "fields" });
    this.root = el("div", { class: "field" }, field("Sampler", this.select), this.about, this.own);
    this.#draw();
  }

  get sampler() {
    return this.menu.samplers.find(({ name }) => name === this.select.value);
  }

  get spec() {
    return writeSpec(this.select.value, this.values);
  }

  /** Disables the samplers that the model's method does not support. */
  fit(model) {
    for (const option of this.select.options) option.disabled = !model.samplers.includes(option.value);
    if (!model.samplers.includes(this.select.value)) {
      this.select.value = model.sampler;
      this.values = {};
      this.#changed();
    }
  }

  #changed() {
    this.#draw();
    this.#notify();
  }

  #notify() {
    this.onchange(this.spec, this.steps.value);
  }

  #draw() {
    this.about.textContent = this.sampler.summary;
    const fields = this.sampler.fields.map((each) => this.#field(each));
    this.own.replaceChildren(...(this.sampler.steps ? [this.stepsField] : []), ...fields);
  }

  #field(each) {
    const listed = {
      sampler: this.menu.samplers.map((sampler) => sampler.name).filter((other) => other !== this.select.value),
      grid: this.menu.grids,
    }[each.kind];
    return optionField(each, this.values[each.name], (value) => { this.values[each.name] = value; this.#notify(); }, listed);
  }
}

/** A field for an option of the menu; an empty field means the server's default. */
function optionField({ name, kind, default: defaultValue, choices, help, min, max }, value, onchange, listed = choices) {
  const common = { onchange: (event) => onchange(event.target.value), title: help || null };
  const standard = defaultValue !== null ? String(defaultValue) : kind === "text" ? "none" : "default";
  const values = kind === "bool" ? ["true", "false"] : listed;
  let control;
  if (values) {
    const others = values.filter((other) => other !== standard);
    control = el("select", common, el("option", { value: "" }, standard), ...others.map((other) => el("option", { value: other }, other)));
  } else if (kind === "text") {
    control = el("input", { ...common, type: "text", placeholder: standard });
  } else {
    control = el("input", { ...common, type: "number", min, max, step: kind === "float" ? "any" : 1, placeholder: standard });
  }
  control.value = value ?? "";
  return field(name.replace(/[._]/g, " "), control);
}

const SEPARATE = ["sampler", "steps", "temperature", "seed"]; // options with fields of their own

/** The settings of all views: model, temperature, length, seed; a change of model calls `onmodel`. */
export class Settings {
  constructor({ form, menu, state, onmodel }) {
    this.menu = menu;
    this.state = state;
    this.model = el(
      "select",
      { onchange: () => { state.set({ model: this.model.value, length: "" }); this.#fit(); onmodel(); } },
      ...menu.models.map(({ name }) => el("option", { value: name }, name)),
    );
    this.about = hint("");
    const known = menu.models.some(({ name }) => name === state.get("model"));
    this.model.value = known ? state.get("model") : menu.models[0].name;
    if (!known) state.set({ model: this.model.value });
    this.picker = new SamplerPicker({
      menu, spec: state.get("sampler"), steps: state.get("steps"),
      onchange: (sampler, steps) => state.set({ sampler, steps }),
    });
    this.parts = {
      model: field("Model", this.model, this.model, this.about),
      sampler: this.picker.root,
      temperature: this.#temperature(),
      length: this.#length(),
      seed: this.#seed(),
      more: this.#more(),
    };
    form.append(...Object.values(this.parts));
    form.addEventListener("submit", (event) => event.preventDefault());
    this.#fit();
  }

  get chosen() {
    return this.menu.models.find(({ name }) => name === this.model.value);
  }

  /** Shows the fields of a view and hides the others. */
  show(names) {
    for (const [name, part] of Object.entries(this.parts)) part.hidden = !names.includes(name);
  }

  /** The settings as part of a request; empty fields are left out. */
  request() {
    const request = { model: this.model.value, temperature: number(this.temperature, 1), seed: Math.round(number(this.seed, 0)) };
    if (this.length.value !== "") request.length = Math.round(number(this.length, 0));
    for (const { name, kind } of this.others) {
      const value = this.more.get(name) ?? "";
      if (value !== "") request[name] = ["int", "float"].includes(kind) ? Number(value) : value;
    }
    return request;
  }

  #fit() {
    const { parameters, length, method, fills } = this.chosen;
    const size = parameters >= 1e6 ? `${(parameters / 1e6).toFixed(1)}M` : `${Math.round(parameters / 1e3)}k`;
    const reads = fills ? "" : "; generates from left to right, fills no gaps";
    this.about.textContent = `${method}, ${size} parameters, ${length} tokens${reads}`;
    this.length.max = length;
    if (this.length.value === "" || Number(this.length.value) > length) this.length.value = Math.min(96, length);
    this.picker.fit(this.chosen);
  }

  #temperature() {
    const value = this.state.get("temperature");
    const copy = (from, to) => () => { to.value = from.value; this.state.set({ temperature: from.value }); };
    const slider = el("input", { type: "range", min: 0.1, max: 2, step: 0.05, value, "aria-label": "Temperature, slider" });
    this.temperature = el("input", { type: "number", min: 0, step: 0.05, value });
    slider.addEventListener("input", copy(slider, this.temperature));
    this.temperature.addEventListener("input", copy(this.temperature, slider));
    return field("Temperature", this.temperature, el("div", { class: "pair" }, slider, this.temperature));
  }

  #length() {
    this.length = el("input", {
      type: "number", min: 2, value: this.state.get("length"),
      oninput: () => this.state.set({ length: this.length.value }),
    });
    return field("Length in tokens", this.length);
  }

  /** Fields for all other options, including those of plugins. */
  #more() {
    this.others = this.menu.options.filter(({ name }) => !SEPARATE.includes(name));
    this.more = new URLSearchParams(this.state.get("more"));
    const change = (name) => (value) => {
      if (value === "") this.more.delete(name);
      else this.more.set(name, value);
      this.state.set({ more: this.more.toString() });
    };
    const fields = this.others.map((each) => optionField(each, this.more.get(each.name), change(each.name)));
    return el("details", { class: "more", open: this.state.get("more") !== "" }, el("summary", {}, "More options"), el("div", { class: "fields" }, ...fields));
  }

  #seed() {
    const changed = () => this.state.set({ seed: this.seed.value });
    this.seed = el("input", { type: "number", min: 0, step: 1, value: this.state.get("seed"), oninput: changed });
    const roll = el("button", {
      type: "button", class: "icon", "aria-label": "Random seed", title: "Random seed",
      onclick: () => { this.seed.value = Math.floor(Math.random() * 1e6); changed(); this.seed.dispatchEvent(new Event("change")); },
    }, icon("dice"));
    return field("Seed", this.seed, el("div", { class: "with" }, this.seed, roll), hint("The same seed gives the same result."));
  }
}

function number(input, otherwise) {
  return input.value === "" || !Number.isFinite(Number(input.value)) ? otherwise : Number(input.value);
}
