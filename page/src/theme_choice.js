// The reader's choice of a theme; theme.js follows it before the first paint.

import { $ } from "./dom.js";

/** Lets the reader choose between the system's theme, light and dark. */
export function chooseTheme() {
  $("theme").value = document.documentElement.dataset.theme ?? "";
  $("theme").addEventListener("change", ({ target }) => {
    if (target.value) document.documentElement.dataset.theme = target.value;
    else delete document.documentElement.dataset.theme;
    try {
      if (target.value) localStorage.setItem("ridgepoint-theme", target.value);
      else localStorage.removeItem("ridgepoint-theme");
    } catch {
      // Without storage the choice lasts until the page is left.
    }
  });
}
