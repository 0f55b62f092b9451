// The recorded steps of a text; frames share unchanged cells.

/** A cell of a row: `id` is null for a mask, `p` is the probability, `given` is true if the user gave it. */
export const MASKED = Object.freeze({ id: null, text: "", p: 0, given: false });

/** The cell at the end of a text. */
export const END = Object.freeze({ id: -1, text: " end", p: 1, given: false });

export function given(id, text) {
  return id === null ? MASKED : { id, text, p: 1, given: true };
}

export class Recording {
  /** `before` is the row at the start; unchanged cells keep their probability. */
  constructor(before = []) {
    this.frames = [];
    this.done = false;
    this.before = before;
  }

  get last() {
    return this.frames.at(-1);
  }

  /** Adds an event of the stream. */
  add(event) {
    if (event.kind === "end") this.done = true;
    else this.frames.push(event.kind === "start" ? startFrame(event, this.before) : this.#next(event));
  }

  #next({ changes, calls, t, seconds, end }) {
    const row = [...this.last.row];
    const changed = new Set();
    for (const [place, id, text, p] of changes) {
      if (row[place].id !== id) changed.add(place);
      // a neighbour can change the text of a token without its id
      row[place] = id === null ? MASKED : { id, text, p, given: row[place].given };
    }
    return { row, changed, calls, t, seconds, end };
  }

  /** The final cell of a position, which sets the width of its mask; undefined until the text is done. */
  final(place) {
    if (!this.done) return undefined;
    return place === this.last.end ? END : this.last.row[place];
  }
}

function startFrame({ length, changes }, before) {
  const row = Array(length).fill(MASKED);
  for (const [place, id, text] of changes) {
    row[place] = id !== null && before[place]?.id === id ? before[place] : given(id, text);
  }
  return { row, changed: new Set(), calls: 0, t: 1, seconds: 0, end: null };
}

/** A recording of one frame: a row without sampler steps. */
export function singleFrame(row) {
  const recording = new Recording();
  recording.frames.push({ row, changed: new Set(), calls: 0, t: null, seconds: 0, end: null });
  recording.done = true;
  return recording;
}

/** The row of a frame up to its end. */
export function untilEnd({ row, end }) {
  return end === null ? row : row.slice(0, end);
}

export function gapsIn(frame) {
  return untilEnd(frame).filter(({ id }) => id === null).length;
}

/** The text of a frame up to its end; `gap(n)` is the text of a gap of n tokens. */
export function textOf(frame, gap, space = " ") {
  let text = "";
  let masks = 0;
  const close = () => {
    if (masks) text += `${text && !/\s$/.test(text) ? space : ""}${gap(masks)}`;
    masks = 0;
  };
  for (const cell of untilEnd(frame)) {
    if (cell.id === null) {
      masks += 1;
    } else {
      close();
      text += cell.text;
    }
  }
  close();
  return text;
}
