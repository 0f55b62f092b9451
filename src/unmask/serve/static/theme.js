// Sets the theme, light, dark or the system's, before the first paint to avoid a flash.

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
        // the choice lasts until the page is closed
      }
      apply();
    });
  });
})();
