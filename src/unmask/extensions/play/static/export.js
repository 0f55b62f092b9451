// Downloads the sampler steps of a text as an animated SVG or a GIF.

import { el } from "./dom.js";
import { showError, showNotice } from "./notice.js";
import { caption, COLOURS, FONT, HOLD, picture, SMALL, STEP, tint } from "./picture.js";

/** Buttons that download the recording that `current()` returns. */
export function downloads(current) {
  const button = (name, make, type) => {
    const saving = async () => {
      const recording = current();
      if (!recording || recording.frames.length < 2) {
        return showNotice("There is no animation yet: generate or fill a text first.", null, true);
      }
      made.disabled = true;
      try {
        const drawn = picture(recording, textMeasure());
        save(new Blob([await make(drawn)], { type }), `unmask.${name.toLowerCase()}`);
      } catch (error) {
        showError(error);
      } finally {
        made.disabled = false;
      }
      return null;
    };
    const made = el("button", { class: "small", id: `save-${name.toLowerCase()}`, onclick: saving, title: `Download the animation as ${name}` }, name);
    return made;
  };
  return [button("SVG", animatedSvg, "image/svg+xml"), button("GIF", animatedGif, "image/gif")];
}

/** Downloads a sequence of bases as FASTA, in lines of 60; a gap is N. */
export function saveFasta(bases) {
  const lines = bases.match(/.{1,60}/g) ?? [];
  save(new Blob([[`>sequence_1 length=${bases.length}`, ...lines, ""].join("\n")], { type: "text/plain" }), "unmask.fa");
}

function textMeasure() {
  const context = document.createElement("canvas").getContext("2d");
  context.font = FONT;
  return (text) => context.measureText(text.replace(/\n/g, "")).width;
}

function save(blob, name) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// SVG: one element for each appearance of a position, visible during its steps

function animatedSvg({ width, height, line, places, frames, foot }) {
  const all = frames.length * STEP + HOLD;
  const names = new Map();
  const during = (from, to) => {
    const key = `${from}-${to}`;
    if (from === 0 && to === frames.length) return "";
    if (!names.has(key)) names.set(key, `s${names.size}`);
    return ` class="${names.get(key)}"`;
  };
  const body = places.flatMap(({ x, y, width: room, looks }) => looks.map((look) =>
    `<g${during(look.from, look.to)}>${svgLook(look, x, y, room, line)}</g>`));
  const captions = frames.map((frame, index) =>
    `<text${during(index, index + 1)} x="26" y="${foot}" font-size="13" font-family="sans-serif" fill="${COLOURS.muted}">${caption(frame, index, frames.length)}</text>`);
  const rules = [...names].map(([key, name]) => {
    const [from, to] = key.split("-").map(Number);
    const start = (100 * from * STEP) / all;
    const stop = to === frames.length ? 100 : (100 * to * STEP) / all;
    const before = from ? `0%{visibility:hidden}${start.toFixed(3)}%{visibility:visible}` : "0%{visibility:visible}";
    const after = stop < 100 ? `${stop.toFixed(3)}%,100%{visibility:hidden}` : "100%{visibility:visible}";
    return `@keyframes ${name}{${before}${after}}.${name}{animation:${name} ${all.toFixed(2)}s step-end infinite}`;
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}">`,
    `<title>Sampler steps of a text</title><style>text{white-space:pre}${rules.join("")}</style>`,
    `<rect width="100%" height="100%" fill="${COLOURS.ground}"/>`,
    `<g font-family="Georgia, 'DejaVu Serif', serif" font-size="20" fill="${COLOURS.ink}">`, ...body, "</g>", ...captions, "</svg>\n",
  ].join("\n");
}

function svgLook({ masked, isNew, back, text, p }, x, y, room, line) {
  const box = (fill, more = "") => `<rect x="${(x + 1).toFixed(1)}" y="${y}" width="${Math.max(room - 2, 2).toFixed(1)}" height="${line - 10}" rx="5" fill="${fill}"${more}/>`;
  if (masked) return box(COLOURS.mask, back ? ` stroke="${COLOURS.back}" stroke-width="2"` : "");
  const label = `<text x="${x.toFixed(1)}" y="${y + 20}" xml:space="preserve">${escaped(text.replace(/\n/g, ""))}</text>`;
  return isNew ? box(tint(p)) + label : label;
}

/** Text for XML, without control characters. */
function escaped(text) {
  const names = { "&": "&amp;", "<": "&lt;", ">": "&gt;" };
  return text.replace(/[&<>]/g, (sign) => names[sign]).replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd");
}

// GIF: draws every step on a canvas, with one palette for all steps

async function animatedGif(drawn) {
  const { GIFEncoder, applyPalette, quantize } = await import("./vendor/gifenc.esm.js");
  const { width, height, frames } = drawn;
  const canvas = el("canvas", { width, height });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const pixels = (index) => {
    paint(context, drawn, index);
    return context.getImageData(0, 0, width, height).data;
  };
  const some = [0, Math.floor(frames.length / 3), Math.floor((2 * frames.length) / 3), frames.length - 1];
  const sample = new Uint8Array(some.length * width * height * 4);
  some.forEach((index, at) => sample.set(pixels(index), at * width * height * 4));
  const palette = quantize(sample, 128);
  const gif = GIFEncoder();
  for (let index = 0; index < frames.length; index += 1) {
    const last = index === frames.length - 1;
    const delay = 1000 * (last ? HOLD : STEP);
    gif.writeFrame(applyPalette(pixels(index), palette), width, height, { palette: index ? undefined : palette, delay });
    if (index % 16 === 0) await new Promise((resume) => setTimeout(resume)); // keeps the page responsive
  }
  gif.finish();
  return gif.bytes();
}

function paint(context, { width, height, line, places, frames, foot }, index) {
  context.fillStyle = COLOURS.ground;
  context.fillRect(0, 0, width, height);
  context.font = FONT;
  for (const { x, y, width: room, looks } of places) {
    const look = looks.find(({ from, to }) => from <= index && index < to);
    if (look.masked || look.isNew) {
      context.fillStyle = look.masked ? COLOURS.mask : tint(look.p);
      context.beginPath();
      context.roundRect(x + 1, y, Math.max(room - 2, 2), line - 10, 5);
      context.fill();
    }
    if (look.back) {
      context.strokeStyle = COLOURS.back;
      context.lineWidth = 2;
      context.stroke();
    }
    if (look.masked) continue;
    context.fillStyle = COLOURS.ink;
    context.fillText(look.text.replace(/\n/g, ""), x, y + 20);
  }
  context.font = SMALL;
  context.fillStyle = COLOURS.muted;
  context.fillText(caption(frames[index], index, frames.length), 26, foot);
}
