// Light, dark, or as the system has it: set before anything is drawn, so that nothing flashes.

(() => {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const choices = ["auto", "light", "dark"];

  function chosen() {
    try {
      return choices.includes(localStorage.theme) ? localStorage.theme : "auto";
    } catch {
      return "auto"; // no storage in this window
    }
  }

  function apply() {
    const theme = chosen();
    document.documentElement.dataset.theme =
      theme === "auto" ? (system.matches ? "dark" : "light") : theme;
    const button = document.getElementById("theme");
    if (button) button.textContent = `Theme: ${theme}`;
  }

  system.addEventListener("change", apply);
  apply();
  addEventListener("DOMContentLoaded", () => {
    apply();
    document.getElementById("theme").addEventListener("click", () => {
      const next = choices[(choices.indexOf(chosen()) + 1) % choices.length];
      try {
        localStorage.theme = next;
      } catch {
        // it lasts as long as the page
      }
      apply();
    });
  });
})();
