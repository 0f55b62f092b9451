// The forward process: masks a text up to time t, and shows the model's predictions of the masks.

import { guesses, tokens } from "./api.js";
import { Alternatives } from "./alternatives.js";
import { Board } from "./board.js";
import { debounced, el, percent, svg, visible } from "./dom.js";
import { hideNotice, showError } from "./notice.js";
import { layouts, legend } from "./pieces.js";
import { Player } from "./player.js";
import { given, MASKED } from "./recording.js";
import { enableSelection } from "./selecting.js";

const PACE = 0.08; // seconds from one hundredth of t to the next, at speed 1

export function forwardView(root, app) {
  return new ForwardView(root, app);
}

class ForwardView {
  constructor(root, { state, settings }) {
    this.state = state;
    this.settings = settings;
    this.cells = [];
    this.uniforms = [];
    this.predictions = new Map(); // at the masked positions
    this.board = new Board({ label: "The masked text, token by token" });
    this.board.layout = state.get("layout");
    this.read = debounced(350, () => this.#tokens());
    this.alternatives = new Alternatives({
      requestFor: (place) => this.#requestFor(place),
      title: (place) => `Hidden: “${visible(this.cells[place].text)}”; the model's guesses`,
    });
    this.#build(root);
    enableSelection(this.board, {
      toggle: () => {}, select: () => {},
      act: (action, place) => {
        if (action === "alternatives") this.alternatives.enter(this.board.tokens[place], place);
        if (action === "escape") this.alternatives.close();
      },
      point: (place) => this.alternatives.point(this.board.tokens[place], place),
    });
    settings.seed.addEventListener("input", () => this.read());
    settings.seed.addEventListener("change", () => this.read());
    const t = Math.round(100 * Number(state.get("t"))) || 0;
    this.player.load(Array.from({ length: 101 }, (_, index) => index * PACE), t);
    this.modelChanged();
  }

  #build(root) {
    const { state } = this;
    this.text = el("textarea", {
      id: "clean", rows: 2, value: state.get("clean"), spellcheck: "false", maxlength: 20000,
      oninput: () => { state.set({ clean: this.text.value }); this.read(); },
    });
    this.player = new Player({
      show: () => this.#timeChanged(), speed: state.get("speed"), label: "Time t, in hundredths",
      onspeed: (speed) => state.set({ speed }),
    });
    this.values = {};
    const fact = (name, label, title) => {
      this.values[name] = el("span", { class: "value" }, "–");
      return el("span", { class: "fact", title }, this.values[name], el("span", { class: "name" }, label));
    };
    this.curve = svg("svg", { class: "curve", viewBox: "-9 -6 118 68", role: "img" });
    root.append(
      el("div", { class: "card composer" },
        el("label", { for: "clean", class: "lead", title: "The forward process masks each token of a clean text x at a random time" },
          "Type a text. The slider hides its words one by one, and the model guesses them."),
        this.text),
      el("div", { class: "card composer" },
        el("div", { class: "noise" },
          el("div", { class: "composer" },
            el("p", {}, "Time t: at 0 nothing is hidden, at 1 everything"),
            this.player.root),
          this.curve),
        el("div", { class: "facts" },
          fact("t", "time t", "Time t of the forward process"),
          fact("alpha", "chance to stay", "α of t: the probability that a token is not masked"),
          fact("masked", "hidden", "Masked tokens"),
          fact("right", "guessed right", "Masked tokens whose likeliest prediction is right"),
          fact("nats", "surprise per hidden word", "Nats per masked token: the mean of −log p of the true tokens"))),
      el("div", { class: "card composer", id: "forward-stage" },
        this.board.root,
        el("div", { class: "row" }, legend(true), el("span", { class: "end" }, layouts(state, (name) => { this.board.layout = name; this.#draw(); })))),
    );
  }

  get #t() {
    return this.player.index / 100;
  }

  get #alpha() {
    return this.settings.chosen.alpha[this.player.index];
  }

  /** The masked positions: a token is masked if its uniform is below 1 - alpha_t. */
  #masked() {
    return this.cells.flatMap((_, place) => (this.uniforms[place] < 1 - this.#alpha ? [place] : []));
  }

  #timeChanged() {
    this.state.set({ t: String(this.#t) });
    const hidden = new Set(this.#masked());
    for (const place of this.predictions.keys()) if (!hidden.has(place)) this.predictions.delete(place);
    this.stale = true;
    this.#draw();
    this.#updatePredictions();
  }

  /** Requests predictions, one request at a time, until they are those of the current t. */
  async #updatePredictions() {
    this.outdated = true;
    if (this.predicting) return;
    this.predicting = true;
    while (this.outdated) {
      this.outdated = false;
      await this.#predict();
    }
    this.predicting = false;
  }

  async #tokens() {
    this.abort?.abort(); // an older response must not arrive last
    this.abort = new AbortController();
    const request = { model: this.settings.model.value, text: this.text.value, seed: Math.round(Number(this.settings.seed.value)) || 0 };
    try {
      const response = await tokens(request, this.abort.signal);
      hideNotice();
      this.cells = response.tokens.map(({ id, text }) => given(id, text));
      this.uniforms = response.uniforms;
      this.predictions = new Map();
      this.#timeChanged();
    } catch (error) {
      showError(error, () => this.#tokens());
    }
  }

  /** Predicts all masked tokens in one network call at z_t. */
  async #predict() {
    const { chosen } = this.settings;
    const places = this.#masked().filter((place) => this.cells[place].id !== null);
    if (!places.length || !chosen.fills || chosen.conditional) {
      this.predictions = new Map();
      return this.#draw();
    }
    const { cells } = this;
    const request = { model: chosen.name, tokens: cells.map(({ id }) => id), places, t: this.#t };
    try {
      const response = await guesses(request);
      if (cells !== this.cells) return null; // the text has changed
      const hidden = new Set(this.#masked());
      const marked = response.guesses.filter(({ place }) => hidden.has(place));
      this.predictions = new Map(marked.map((each) => [each.place, { ...each, right: each.likely[0].id === cells[each.place].id }]));
      this.stale = request.t !== this.#t;
      this.#draw();
    } catch (error) {
      this.player.pause();
      showError(error, () => this.#updatePredictions());
    }
    return null;
  }

  #requestFor(place) {
    const places = this.#masked();
    if (!places.includes(place) || this.settings.chosen.conditional) return null;
    const hidden = new Set(places);
    const row = this.cells.map(({ id }, other) => (hidden.has(other) && other !== place ? null : id));
    return { model: this.settings.model.value, tokens: row, places: [place], t: this.#t };
  }

  #draw() {
    const hidden = new Set(this.#masked());
    const row = this.cells.map((cell, place) => (hidden.has(place) && !this.predictions.has(place) ? MASKED : cell));
    this.board.draw({ row, changed: new Set(), end: null }, { guesses: this.predictions, final: (place) => this.cells[place] });
    this.#facts(hidden.size);
    this.#plot();
  }

  #facts(hidden) {
    const found = [...this.predictions.values()];
    const right = found.filter((guess) => guess.right).length;
    const known = found.length && !this.stale;
    const nats = found.reduce((sum, { p }) => sum - Math.log(Math.max(p, 1e-30)), 0) / found.length;
    this.values.t.textContent = this.#t.toFixed(2);
    this.values.alpha.textContent = this.#alpha.toFixed(3);
    this.values.masked.textContent = `${hidden} of ${this.cells.length}`;
    this.values.right.textContent = known ? `${right} of ${found.length} (${percent(right / found.length)})` : "–";
    this.values.nats.textContent = known ? nats.toFixed(2) : "–";
  }

  #plot() {
    const { alpha, schedule } = this.settings.chosen;
    this.curve.setAttribute("aria-label", `The ${schedule} schedule: alpha falls from one to zero as t grows`);
    const path = alpha.map((value, index) => `${index ? "L" : "M"}${index} ${50 - 50 * value}`).join("");
    this.curve.replaceChildren(
      svg("line", { x1: 0, y1: 50, x2: 100, y2: 50 }),
      svg("line", { x1: this.#t * 100, y1: 0, x2: this.#t * 100, y2: 50 }),
      svg("path", { d: path }),
      svg("circle", { cx: this.#t * 100, cy: 50 - 50 * this.#alpha, r: 2.6 }),
      svg("text", { x: -8, y: 4 }, "1"), svg("text", { x: -8, y: 52 }, "0"),
      svg("text", { x: 6, y: 1 }, `α, ${schedule}`), svg("text", { x: 98, y: 60 }, "t"),
    );
  }

  modelChanged() {
    this.board.letters = !this.settings.chosen.words;
    this.cells = [];
    this.uniforms = [];
    this.#tokens();
  }

  shown() {}

  hidden() {
    this.player.pause();
    this.alternatives.close();
  }
}
