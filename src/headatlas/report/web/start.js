// ---------- while results are being computed, the page reloads and restores what was shown
function pending() {
  $("pending").textContent = `Still being computed: ${data.pending.join(", ")}. The page reloads when there are new results.`;
  $("pending").hidden = false;
}
function failed() {
  const line = ({ title, why }) => el("li", {}, `${title}: ${why}`);
  $("failed").replaceChildren(el("p", {}, "Failed:"), el("ul", {}, ...data.failed.map(line)));
  $("failed").hidden = false;
}
const memory = `headatlas ${data.model}`;
function remember() {
  const { group, chart, selected, threshold } = state, subject = data.charts[chart]?.subject, theme = document.documentElement.dataset.theme;
  const shown = { theme, selected, threshold, y: scrollY, group: group && [group.method, group.title], subject };
  try { sessionStorage.setItem(memory, JSON.stringify(shown)); } catch { /* some browsers have no storage for files */ }
}
function recall() {
  let then = null;
  try { then = JSON.parse(sessionStorage.getItem(memory)); sessionStorage.removeItem(memory); } catch { /* as above */ }
  if (!then || performance.getEntriesByType("navigation")[0]?.type === "navigate") return;
  theme(then.theme);
  const group = data.groups.findIndex((g) => g.method === then.group?.[0] && g.title === then.group?.[1]);
  if (group >= 0) {
    state.group = data.groups[group];
    $("method").value = group;
    showGroup();
    state.threshold = then.threshold;
    $("threshold").value = then.threshold;
    const subject = state.group.charts.find((c) => data.charts[c].subject === then.subject);
    if (subject !== undefined) showChart(subject);
    if (then.selected !== null && exists(then.selected)) select(then.selected, false);
  }
  requestAnimationFrame(() => scrollTo(0, then.y));
}

// ---------- start
function theme(name) {
  document.documentElement.dataset.theme = name;
  $("theme").textContent = name === "dark" ? "Light" : "Dark";
  $("theme").setAttribute("aria-label", `Switch to ${name === "dark" ? "light" : "dark"} colours`);
  for (const view of views) stale(view);
}
function listen() {
  $("method").addEventListener("change", (e) => { state.group = data.groups[e.target.value]; state.threshold = 0; $("threshold").value = 0; showGroup(); });
  $("subject").addEventListener("change", (e) => showChart(Number(e.target.value)));
  $("threshold").addEventListener("input", (e) => { state.threshold = Number(e.target.value); fadeLater(); });
  $("goto").addEventListener("submit", (e) => { e.preventDefault(); goTo($("head").value); });
}
function start() {
  const dark = matchMedia("(prefers-color-scheme: dark)"), currentTheme = () => document.documentElement.dataset.theme;
  theme(dark.matches ? "dark" : "light");
  dark.addEventListener("change", (e) => theme(e.matches ? "dark" : "light"));
  $("theme").addEventListener("click", () => theme(currentTheme() === "dark" ? "light" : "dark"));
  let before = null; // print on white, with panels that were not scrolled to
  const printing = (on) => document.documentElement.classList.toggle("printing", on); // as wide as paper before charts are drawn
  addEventListener("beforeprint", () => { before = currentTheme(); printing(true); theme("light"); for (const view of views) if (view.stale) paint(view); });
  addEventListener("afterprint", () => { printing(false); theme(before); });
  addEventListener("scroll", () => ($("tip").hidden = true), { passive: true });
  const charts = data.charts.length;
  const shown = {
    closeup: charts, finder: charts, categories: data.categories, always: data.always.length,
    tests: data.tests.length, special: data.special.length, agreement: data.agreement, evidence: data.evidence,
  };
  for (const [id, content] of Object.entries(shown)) if (!content) $(id).remove();
  $("contents").replaceChildren(...[...document.querySelectorAll("main > section")].map((s) => el("a", { href: `#${s.id}` }, s.querySelector("h2").textContent)));
  $("summary").textContent = N ? `${several(data.layers.length, "layer")} × ${several(H, "head")}; ${several(data.charts.length, "map")}` : "No heads";
  if (charts) {
    fill($("method"), [["", data.groups.map((g, i) => [i, g.title])]]);
    $("method").value = data.groups.indexOf(state.group);
    listen();
    finder();
    showGroup(data.first);
  } else {
    $("bar").remove();
    const none = "This atlas has no maps yet. Run a method (headatlas methods lists them) and make the report again.";
    $("overview").replaceChildren(el("h2", {}, "Overview"), el("p", {}, none));
  }
  if (data.categories) categories();
  if (data.always.length) always();
  if (data.tests.length) tests();
  if (data.special.length) special();
  if (data.agreement) agreement();
  if (data.evidence) evidence();
  provenance();
  if (charts && !data.live) select(best(data.charts[state.chart]) ?? null, false); // a live page selects a head when heads were measured
  else if (data.live || data.categories || data.always.length) card();
  else $("card").remove();
  if (data.failed.length) failed();
  if (data.pending.length) pending();
  if (!data.live) addEventListener("pagehide", remember);
  if (charts && !data.live) recall();
  if (data.live) live.start();
}
