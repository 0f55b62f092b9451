// The settings of the page, built from the server's menu.

import { el, icon } from "./dom.js";

let fieldCount = 0;

/** A labelled field; `title` has the technical term. */
export function field(label, title, control, ...more) {
  control.id ||= `field-${(fieldCount += 1)}`;
  if (title) control.title ||= title;
  return el("div", { class: "field" }, el("label", { for: control.id, title: title || null }, label), ...(more.length ? more : [control]));
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

const ORDERS = { // samplers in plain words
  ancestral: "any order",
  first_hitting: "any order, one by one",
  confidence: "surest first",
  margin: "clearest choice first",
  entropy: "least doubt first",
  entropy_bound: "least doubt first, several at once",
  threshold: "all that are sure",
  gibbs: "any order, then change words",
  remask: "write and take back",
  predictor_corrector: "write and correct",
  left_to_right: "left to right",
  semi_autoregressive: "part by part",
  blocks: "block by block",
  spread: "any order, far apart",
  refine: "write, then mend",
  analytic: "any order, by scores",
};

export function samplerName(name) {
  return ORDERS[name] ?? name.replaceAll("_", " ");
}

/** The model's own sampler and steps. */
export function ownSampler({ defaults, sampler }) {
  return { spec: defaults.sampler ?? sampler, steps: String(defaults.steps ?? "") };
}

/**
 * Controls for the sampler, its steps and its fields. The state holds them under `names`; `own(model)`
 * returns those of a model, for an empty state.
 */
export class SamplerPicker {
  constructor({ menu, state, names, own = ownSampler }) {
    this.menu = menu;
    this.own = own;
    this.keep = (spec, steps) => state.set({ [names[0]]: spec, [names[1]]: steps });
    this.kept = () => names.map((name) => state.get(name));
    this.select = el("select", { onchange: () => this.#choose(this.select.value, "") });
    this.steps = el("input", { type: "number", min: 1, max: 4096, placeholder: "one per token", oninput: () => this.#notify() });
    this.stepsField = field("Steps", "Denoising steps: more steps take longer and write better", this.steps);
    this.fields = el("div", { class: "fields" });
    this.root = el("div", { class: "field" }, field("Order of the words", "", this.select), this.fields);
  }

  get sampler() {
    return this.menu.samplers.find(({ name }) => name === this.select.value);
  }

  get spec() {
    return writeSpec(this.select.value, this.values);
  }

  /** Lists the samplers that the model supports, and shows the one of the state, or else the model's own. */
  fit(model) {
    this.model = model;
    this.select.replaceChildren(...this.menu.samplers.filter(({ name }) => model.samplers.includes(name)).map(({ name }) =>
      el("option", { value: name, title: name }, samplerName(name))));
    const [spec, steps] = this.kept();
    const usable = model.samplers.includes(parseSpec(spec).name);
    this.#show(usable ? spec : this.own(model).spec, steps);
  }

  #choose(spec, steps) {
    this.#show(spec, steps);
    this.#notify();
  }

  /** Shows a specification; without steps, a model's own sampler gets the model's own steps. */
  #show(spec, steps) {
    const own = this.own(this.model);
    const { name, fields } = parseSpec(spec);
    this.values = fields;
    this.select.value = name;
    this.steps.value = steps || (name === parseSpec(own.spec).name ? own.steps : "");
    this.select.title = `Sampler ${name}: ${this.sampler.summary}`;
    this.fields.replaceChildren(...(this.sampler.steps ? [this.stepsField] : []), ...this.sampler.fields.map((each) => this.#field(each)));
  }

  #notify() {
    this.keep(this.spec, this.steps.value);
  }

  #field(each) {
    const listed = {
      sampler: this.model.samplers.filter((other) => other !== this.select.value),
      grid: this.menu.grids,
    }[each.kind];
    return optionField(each, this.values[each.name], (value) => { this.values[each.name] = value; this.#notify(); }, listed);
  }
}

/** A field for an option of the menu; an empty field means the server's default. */
function optionField({ name, kind, default: defaultValue, choices, help, min, max }, value, onchange, listed = choices) {
  const label = kind === "sampler" ? samplerName : String;
  const common = { onchange: (event) => onchange(event.target.value) };
  const standard = defaultValue !== null ? String(defaultValue) : kind === "text" ? "none" : "default";
  const values = kind === "bool" ? ["true", "false"] : listed;
  let control;
  if (values) {
    const others = values.filter((other) => other !== standard);
    control = el("select", common, el("option", { value: "" }, standard), ...others.map((other) => el("option", { value: other }, label(other))));
  } else if (kind === "text") {
    control = el("input", { ...common, type: "text", placeholder: standard });
  } else {
    control = el("input", { ...common, type: "number", min, max, step: kind === "float" ? "any" : 1, placeholder: standard });
  }
  control.value = value ?? "";
  return field(name.replace(/[._]/g, " "), help, control);
}

const SEPARATE = ["sampler", "steps", "temperature", "seed"]; // options with fields of their own

/** The settings of all views. An empty setting of the state is the model's own; a change of model calls `onmodel`. */
export class Settings {
  constructor({ form, menu, state, onmodel }) {
    this.menu = menu;
    this.state = state;
    this.model = el(
      "select",
      { onchange: () => { state.set({ model: this.model.value }); state.clearSettings(); this.#fit(); onmodel(); } },
      ...menu.models.map(({ name }) => el("option", { value: name }, name)),
    );
    const known = menu.models.some(({ name }) => name === state.get("model"));
    this.model.value = known ? state.get("model") : menu.models[0].name;
    if (!known) state.set({ model: this.model.value });
    this.picker = new SamplerPicker({ menu, state, names: ["sampler", "steps"] });
    this.about = el("span", { class: "hint" });
    this.others = menu.options.filter(({ name }) => !SEPARATE.includes(name));
    this.otherFields = el("div", { class: "fields" });
    this.parts = {
      model: field("Model", "", this.model, this.model, this.about),
      temperature: this.#temperature(),
      length: this.#length(),
      seed: this.#seed(),
      sampler: this.picker.root,
      more: el("details", { class: "more", open: state.get("more") !== "" }, el("summary", {}, "More options"), this.otherFields),
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

  /** The settings as part of a request, with a new seed unless one is set; empty fields are left out. */
  request() {
    if (this.state.get("seed") === "") this.seed.value = newSeed();
    const request = {
      model: this.model.value, seed: Math.round(number(this.seed) ?? 0),
      temperature: number(this.temperature), length: number(this.length),
    };
    for (const { name, kind } of this.others) {
      const value = this.more.get(name) ?? "";
      if (value !== "") request[name] = ["int", "float"].includes(kind) ? Number(value) : value;
    }
    return request;
  }

  /** Shows the values of the state, or else those of the chosen model. */
  #fit() {
    const { parameters, length, method, fills, defaults } = this.chosen;
    const size = parameters >= 1e6 ? `${Math.round(parameters / 1e6)} million` : `${Math.round(parameters / 1e3)} thousand`;
    const reads = fills ? "" : " It writes from left to right and fills no gaps.";
    this.about.textContent = `${size} parameters.${reads}`;
    this.model.title = `Method ${method}, at most ${length} tokens`;
    this.length.max = length;
    this.length.value = this.state.get("length") || Math.min(defaults.length ?? length, length);
    this.temperature.value = this.slider.value = this.state.get("temperature") || (defaults.temperature ?? 1);
    this.picker.fit(this.chosen);
    this.#drawOthers(defaults);
  }

  #temperature() {
    const copy = (from, to) => () => { to.value = from.value; this.state.set({ temperature: from.value }); };
    this.slider = el("input", { type: "range", min: 0.1, max: 1.5, step: 0.05, "aria-label": "Boldness, slider" });
    this.temperature = el("input", { type: "number", min: 0, step: 0.05 });
    this.slider.addEventListener("input", copy(this.slider, this.temperature));
    this.temperature.addEventListener("input", copy(this.temperature, this.slider));
    return field("Boldness", "Temperature: low takes likely words, high takes surprising words", this.temperature,
      el("div", { class: "pair" }, this.slider, this.temperature));
  }

  #length() {
    this.length = el("input", { type: "number", min: 2, oninput: () => this.state.set({ length: this.length.value }) });
    return field("Longest text", "Length in tokens: words, word pieces and punctuation marks", this.length);
  }

  /** Fields for all other options, including those of plugins; the model's defaults are their defaults. */
  #drawOthers(defaults) {
    this.more = new URLSearchParams(this.state.get("more"));
    const change = (name) => (value) => {
      if (value === "") this.more.delete(name);
      else this.more.set(name, value);
      this.state.set({ more: this.more.toString() });
    };
    this.otherFields.replaceChildren(...this.others.map((each) =>
      optionField({ ...each, default: defaults[each.name] ?? each.default }, this.more.get(each.name), change(each.name))));
  }

  #seed() {
    const { state } = this;
    const keep = (value) => {
      state.set({ seed: value });
      this.dice.setAttribute("aria-pressed", String(value === ""));
    };
    this.seed = el("input", { type: "number", min: 0, step: 1, placeholder: "new each time", value: state.get("seed"), oninput: () => keep(this.seed.value) });
    this.dice = el("button", {
      type: "button", class: "icon", "aria-label": "A new number at each press", title: "A new number at each press",
      "aria-pressed": String(state.get("seed") === ""),
      onclick: () => { keep(""); this.seed.value = newSeed(); this.seed.dispatchEvent(new Event("change")); },
    }, icon("dice"));
    return field("Random number", "Seed: the same number with the same settings gives the same text. Type a number to keep it.", this.seed,
      el("div", { class: "with" }, this.seed, this.dice));
  }
}

function newSeed() {
  return Math.floor(Math.random() * 1e6);
}

/** The number in a field, undefined if it is empty. */
function number(input) {
  return input.value === "" || !Number.isFinite(Number(input.value)) ? undefined : Number(input.value);
}
