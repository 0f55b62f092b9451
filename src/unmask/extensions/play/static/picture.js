// The layout of a recording as an animation: the position of every token and its time span.

const WIDTH = 760;
const MARGIN = 26;
const LINE = 38;
const LEAST = 26; // the width of a mask
const FOOT = 34;

export const FONT = '20px Georgia, "DejaVu Serif", serif';
export const SMALL = '13px "DejaVu Sans", Verdana, sans-serif';
export const COLOURS = {
  ground: "#ffffff", ink: "#1c2230", muted: "#586070", mask: "#d6d3ca", back: "#7a3e9d",
  unsure: [251, 207, 157], sure: [180, 211, 247],
};
export const STEP = 0.14; // seconds per step
export const HOLD = 2.5; // seconds at the end

/** The colour of a probability, from orange to blue, as on the page. */
export function tint(p) {
  const mixed = COLOURS.unsure.map((part, i) => Math.round(part + (COLOURS.sure[i] - part) * p));
  return `#${mixed.map((part) => part.toString(16).padStart(2, "0")).join("")}`;
}

/** Every position with its width and its appearances: { from, to (frames), text, p, masked, isNew, back }. */
export function picture(recording, measure) {
  const frames = thinned(recording.frames);
  const end = frames.at(-1).end ?? frames[0].row.length;
  const places = [];
  let x = MARGIN;
  let line = 0;
  for (let place = 0; place < end; place += 1) {
    const looks = appearances(frames, place);
    const texts = looks.map((look) => look.text);
    const masked = looks.some((look) => look.masked);
    const width = Math.max(masked ? LEAST : 0, ...texts.map((text) => measure(text)));
    if (x + width > WIDTH - MARGIN && x > MARGIN) {
      x = MARGIN;
      line += 1;
    }
    places.push({ x, y: MARGIN + line * LINE, width, looks });
    x += width;
    if (texts.at(-1).includes("\n")) {
      x = MARGIN;
      line += 1;
    }
  }
  const height = 2 * MARGIN + (line + 1) * LINE + FOOT - 14;
  return { width: WIDTH, height, line: LINE, places, frames, foot: height - 18 };
}

/** About 240 frames at most, with the first and the last. */
function thinned(frames) {
  const every = Math.ceil(frames.length / 240);
  return frames.filter((_, index) => index % every === 0 || index === frames.length - 1);
}

function appearances(frames, place) {
  const looks = [];
  for (const [index, frame] of frames.entries()) {
    const cell = frame.row[place];
    const before = index ? frames[index - 1].row[place] : null;
    const isNew = before !== null && before.id !== cell.id;
    const last = looks.at(-1);
    if (last && !isNew && !last.isNew && !last.back && last.cell.id === cell.id && last.text === cell.text) {
      last.to = index + 1;
    } else {
      const masked = cell.id === null;
      looks.push({ from: index, to: index + 1, cell, text: cell.text.replace(/\t/g, " "), p: cell.p, masked, isNew: isNew && !masked, back: isNew && masked });
    }
  }
  return looks;
}

export function caption(frame, index, count) {
  return `step ${index} of ${count - 1} · ${frame.calls} calls · ${frame.seconds.toFixed(2)} s`;
}
