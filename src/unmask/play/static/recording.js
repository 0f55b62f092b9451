// A text forming, step by step: every frame is kept, and shares its cells with its neighbours.

/** A place of a row: `id` is null where it is masked, `p` how sure the model was, `given` if it did not write it. */
export const MASKED = Object.freeze({ id: null, text: "", p: 0, given: false });

/** What stands where a text ends. */
export const END = Object.freeze({ id: -1, text: " end", p: 1, given: false });

export function given(id, text) {
  return id === null ? MASKED : { id, text, p: 1, given: true };
}

export class Recording {
  /** `before` is the row that it starts from: what stays of it keeps what is known of it. */
  constructor(before = []) {
    this.frames = [];
    this.done = false;
    this.before = before;
  }

  get last() {
    return this.frames.at(-1);
  }

  /** An event of the stream. */
  add(event) {
    if (event.kind === "end") this.done = true;
    else this.frames.push(event.kind === "start" ? started(event, this.before) : this.#next(event));
  }

  #next({ changes, calls, t, seconds, end }) {
    const row = [...this.last.row];
    const changed = new Set();
    for (const [place, id, text, p] of changes) {
      if (row[place].id !== id) changed.add(place);
      // a neighbour can change how a token is spelled, and not what it is
      row[place] = id === null ? MASKED : { id, text, p, given: row[place].given };
    }
    return { row, changed, calls, t, seconds, end };
  }

  /** What stands at a place when all is done: its room is kept while it is masked. */
  final(place) {
    if (!this.done) return undefined;
    return place === this.last.end ? END : this.last.row[place];
  }
}

function started({ length, changes }, before) {
  const row = Array(length).fill(MASKED);
  for (const [place, id, text] of changes) {
    row[place] = id !== null && before[place]?.id === id ? before[place] : given(id, text);
  }
  return { row, changed: new Set(), calls: 0, t: 1, seconds: 0, end: null };
}

/** A recording of one frame: a row that nobody has written yet. */
export function still(row) {
  const recording = new Recording();
  recording.frames.push({ row, changed: new Set(), calls: 0, t: null, seconds: 0, end: null });
  recording.done = true;
  return recording;
}

/** The text of a frame, up to its end; masks as the gaps that one can type. */
export function textOf({ row, end }) {
  let text = "";
  let masks = 0;
  const gap = () => {
    if (masks) text += `${text && !/\s$/.test(text) ? " " : ""}[MASK${masks > 1 ? `:${masks}` : ""}]`;
    masks = 0;
  };
  for (const cell of row.slice(0, end ?? row.length)) {
    if (cell.id === null) {
      masks += 1;
    } else {
      gap();
      text += cell.text;
    }
  }
  gap();
  return text;
}
