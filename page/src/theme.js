// Sets the theme before the first paint, so that no light page flashes on a dark screen.
try {
  const theme = localStorage.getItem("ridgepoint-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Without storage the system's preference holds.
}
