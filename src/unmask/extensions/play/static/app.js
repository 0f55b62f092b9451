// The page: its tabs, settings and link.

import { menu as fetchMenu } from "./api.js";
import { compareView } from "./compare.js";
import { announce } from "./dom.js";
import { forwardView } from "./forward.js";
import { hideNotice, showError, showNotice } from "./notice.js";
import { Settings } from "./settings.js";
import { State } from "./state.js";
import { writeView } from "./write.js";

const VIEWS = {
  write: { make: writeView, settings: ["model", "temperature", "length", "seed", "sampler", "more"] },
  compare: { make: compareView, settings: ["model", "temperature", "length", "seed", "more"] },
  forward: { make: forwardView, settings: ["model", "seed"] },
};

async function main() {
  let menu;
  try {
    menu = await fetchMenu();
  } catch (error) {
    showError(error, main);
    return;
  }
  hideNotice();
  const state = new State();
  const made = {};
  const settings = new Settings({
    form: document.getElementById("settings-form"), menu, state,
    onmodel: () => { // another model has other tokens
      state.clearTexts();
      Object.values(made).forEach((view) => view.modelChanged());
    },
  });
  const app = { menu, state, settings };

  function open(name) {
    for (const other of Object.keys(VIEWS)) {
      const tab = document.getElementById(`tab-${other}`);
      tab.setAttribute("aria-selected", String(other === name));
      tab.tabIndex = other === name ? 0 : -1;
      document.getElementById(`view-${other}`).hidden = other !== name;
      if (other !== name) made[other]?.hidden();
    }
    settings.show(VIEWS[name].settings);
    state.set({ view: name });
    made[name] ??= VIEWS[name].make(document.getElementById(`view-${name}`), app);
    made[name].shown();
  }

  tabs(open);
  share(state);
  narrow();
  open(Object.hasOwn(VIEWS, state.get("view")) ? state.get("view") : "write");
  document.documentElement.dataset.ready = "yes";
}

function tabs(open) {
  const names = Object.keys(VIEWS);
  for (const [index, name] of names.entries()) {
    const tab = document.getElementById(`tab-${name}`);
    tab.onclick = () => open(name);
    tab.onkeydown = (event) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!by) return;
      const next = names.at((index + by) % names.length);
      open(next);
      document.getElementById(`tab-${next}`).focus();
    };
  }
  const help = document.getElementById("help");
  document.getElementById("help-button").onclick = () => help.showModal();
}

function share(state) {
  document.getElementById("share").onclick = async () => {
    const link = state.link();
    history.replaceState(null, "", link);
    try {
      await navigator.clipboard.writeText(link);
      announce("Link copied");
      showNotice("Link copied: it contains the text, the settings and the displayed step.", null, true);
    } catch {
      showNotice("The clipboard is blocked: copy the link from the address bar.", null, true);
    }
  };
}

/** Closes the settings on a narrow screen, where they would hide the text. */
function narrow() {
  if (matchMedia("(max-width: 62rem)").matches) document.getElementById("settings").open = false;
}

addEventListener("hashchange", () => location.reload()); // a link was opened in the same window
main();
