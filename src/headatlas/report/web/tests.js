// ---------- tests, changes of other subjects, agreement
function tests() {
  const percent = (v) => (missing(v) ? "–" : `${Math.round(v * 100)} %`);
  const heads = ["Method", "Subject", "Heads", "Right before → after", "Change", "Random heads", "Interval", "p, corrected", "Outcome", "Reason"];
  const row = (t) => {
    const subject = words(t.subject) + (isMain(t) ? "" : `, ${t.measure}`), right = missing(t.after) ? percent(t.before) : `${percent(t.before)} → ${percent(t.after)}`;
    const between = missing(t.low) ? "–" : `${number(t.low)} to ${number(t.high)}`, selective = t.selective ? `; selective: ${t.selective}` : "";
    return [t.title, subject, t.heads, right, number(t.change), number(t.random), between, number(t.p), t.outcome, t.reason + selective];
  };
  $("tests-table").replaceChildren(table("", heads, data.tests.map(row), [2, 3, 4, 5, 6, 7]));
  const drawn = data.tests.filter((t) => t.removed.length);
  drawn.forEach((t) => curvePanel($("tests-curves"), t));
  if (!drawn.length) for (const e of [$("tests-curves"), $("tests-curves").previousElementSibling, $("tests-table").nextElementSibling]) e.remove();
}
const isMain = (t) => t.chart === null || groupOf(data.charts[t.chart]) === data.groups.find((g) => g.method === data.charts[t.chart].method);
function curvePanel(parent, t) {
  const name = `${words(t.subject)}, ${t.title}${isMain(t) ? "" : `, ${t.measure}`}`, last = t.removed.length - 1;
  const div = el("div", { className: "chart", role: "img", style: "height:180px" }), detail = el("p", { className: "detail" });
  div.setAttribute("aria-label", `Change of log P of ${name}. ${curveTip(t, last).join(", ")}.`);
  const root = el("div", { className: "panel" }, el("h4", {}, name), el("p", { className: "detail" }, t.outcome), div, detail);
  parent.append(root);
  function draw() {
    const bar = { x: [t.heads, t.heads], y: [t.random_low, t.random_high], mode: "lines", line: { color: css("--random"), width: 6 }, hoverinfo: "skip" };
    const line = { x: t.removed, y: t.curve, mode: "lines+markers", line: { color: css("--top"), width: 2 }, marker: { size: t.removed.map((n) => (n === t.heads ? 10 : 5)) }, hoverinfo: "none" };
    const yaxis = axis("change of log P", { automargin: true, nticks: 5, showgrid: true, gridcolor: css("--soft") });
    Plotly.react(div, [bar, line], layout({ hovermode: "x", xaxis: axis("Heads removed", { rangemode: "tozero" }), yaxis }), CONFIG);
    events(div, ({ x: removed }) => curveTip(t, t.removed.indexOf(removed)));
  }
  function mark() {
    const i = state.selected === null ? null : stepOf(t, state.selected);
    root.classList.toggle("lit", i !== null);
    detail.textContent = i === null ? "" : `${nameOf(state.selected)} is among the top ${t.removed[i]}`;
  }
  addView(root, draw, mark).steady = true;
}
function curveTip(t, i) {
  const random = t.removed[i] === t.heads && !missing(t.random) ? [`random: ${number(t.random)}`, `middle 90 %: ${number(t.random_low)} to ${number(t.random_high)}`, t.outcome] : [];
  return [`${t.removed[i]} heads removed`, `top: ${number(t.curve[i])}`, ...random];
}
function stepOf(t, index) { // the smallest set of removed top heads that holds this one
  if (t.chart === null) return null;
  const place = places(data.charts[t.chart]).indexOf(index), i = t.removed.findIndex((n) => n > place);
  return place < 0 || i < 0 ? null : i;
}
function special() {
  for (const s of data.special) {
    const most = Math.max(...s.values.flat().map((v) => Math.abs(v ?? 0)), 1e-9);
    const shade = (v) => `background:rgba(${v < 0 ? "33,102,172" : "178,24,43"},${(0.55 * Math.abs(v)) / most})`;
    const cell = (v) => (missing(v) ? "–" : el("span", { className: "shade", style: shade(v) }, number(v)));
    const rows = s.rows.map((r, i) => [words(r), ...s.values[i].map(cell)]);
    const made = table(`Change of ${s.measure}: heads removed (rows) × subject measured (columns)`, ["", ...s.columns.map(words)], rows, range(s.columns.length).map((i) => i + 1));
    $("special-tables").append(el("h3", {}, s.title), el("div", { className: "wide-table" }, made));
  }
}
function agreement() {
  const div = el("div", { className: "chart", role: "img" });
  $("agreement-chart").replaceChildren(el("div", { className: "panel" }, div));
  const order = data.groups.flatMap((g) => g.charts), n = order.length;
  const z = order.map((a) => order.map((b) => data.agreement.spearman[a][b]));
  const narrow = div.clientWidth < 560, text = (c) => esc(full(data.charts[c]).replace(/^(.{42}).{2,}$/s, "$1…"));
  div.style.height = `${Math.min(820, Math.max(260, n * 13 + 60, narrow ? div.clientWidth : 0))}px`;
  div.setAttribute("aria-label", `Heat map of the Spearman correlation of every two of ${n} maps.`);
  const ticks = { tickvals: range(n), ticktext: order.map(text), tickfont: { size: 9 }, showticklabels: !narrow && n <= 80 };
  const draw = () => {
    const trace = { type: "heatmap", z, zmin: -1, zmax: 1, colorscale: plain(PALETTES.diverging), showscale: false, hoverinfo: "none" };
    const axes = { xaxis: axis("", { showticklabels: false, ticks: "" }), yaxis: axis("", { ...ticks, ticks: "", autorange: "reversed", automargin: true }) };
    Plotly.react(div, [trace], layout({ ...axes, margin: { l: 10, r: 10, t: 6, b: 10 } }), CONFIG);
    const tip = ({ pointIndex: [r, c] }) => [full(data.charts[order[r]]), full(data.charts[order[c]]), `Spearman ${number(z[r][c])}`];
    events(div, tip, ({ pointIndex: [r, c] }) => find(order[c], order[r]));
  };
  scaleBar($("agreement-scale"), "Spearman correlation", PALETTES.diverging, [-1, -0.5, 0, 0.5, 1].map((v) => ({ at: (v + 1) / 2, text: number(v) })));
  addView(div, draw, () => {}).steady = true;
  if (data.agreement.pairs.length) $("agreement-pairs").replaceChildren(closest(data.agreement.pairs));
}
function find(x, y) { // two maps in the head finder
  $("finder-x").value = x;
  $("finder-y").value = y;
  $("finder-y").dispatchEvent(new Event("change"));
}
function closest(pairs) {
  const short = (v) => v.toFixed(2).replace("-", "−"), heads = ["A", "B", "Per", "Spearman", "p, corrected", "Top in both", "by chance", "AUROC A→B", "B→A"];
  const row = (r) => {
    const pick = el("button", { type: "button", onclick: () => find(r.a, r.b) }, short(r.spearman));
    const [a, b] = [r.a, r.b].map((c) => full(data.charts[c])), shared = `${number(r.shared)} of ${r.top}`;
    return [a, b, r.unit, pick, number(r.p_corrected), shared, number(r.shared_by_chance), short(r.auroc_ab), short(r.auroc_ba)];
  };
  return table(`The ${pairs.length} closest pairs. Click a correlation to put its two maps into the head finder.`, heads, pairs.map(row), [3, 4, 5, 6, 7, 8]);
}

