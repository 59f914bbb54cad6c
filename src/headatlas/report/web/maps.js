// ---------- overview and close-up
function fill(select, groups, extra = []) { // groups: [label, [[value, text], …]]
  const option = ([value, text]) => el("option", { value }, text);
  select.replaceChildren(...extra.map(option), ...groups.map(([label, choices]) => (label ? el("optgroup", { label }, ...choices.map(option)) : choices.map(option))).flat());
}
function showGroup(first = state.group.charts[0]) {
  const { group } = state;
  $("subject-name").textContent = group.subject;
  $("overview-noun").textContent = group.subject.toLowerCase();
  $("overview-colour").textContent = group.scale.diverging ? "red is above 0 and blue below" : "the brighter the cell, the higher its score";
  $("description").textContent = [group.description, data.evidence?.method === group.method ? data.evidence.caution : ""].join(" ").trim();
  fill($("subject"), [["", group.charts.map((c) => [c, words(data.charts[c].subject)])]]);
  scaleBar($("scale"), group.title, paletteOf(group.scale), group.scale.ticks);
  dropViews($("small"));
  for (const c of group.charts) chartGrid($("small"), data.charts[c], { onPick: () => showChart(c) }).chart = c;
  showChart(first);
}
function showChart(c) {
  if (state.chart === c && $("large").firstChild) return;
  state.chart = c;
  $("subject").value = c;
  for (const view of views) if (view.chart !== undefined) view.root.classList.toggle("current", view.chart === c);
  dropViews($("large"));
  chartGrid($("large"), data.charts[c], { title: full(data.charts[c]), most: 600 });
  showTop();
  fadeLater();
  card();
}
function showTop() {
  const chart = data.charts[state.chart];
  const rows = places(chart).slice(0, 20).map((index) => {
    const pick = el("button", { type: "button", onclick: () => select(index) }, nameOf(index));
    return { cells: [place(chart, index), pick, number(score(chart)[index]), interval(chart, index)], current: index === state.selected };
  });
  const wide = rows.some((r) => r.cells[3]);
  const cut = (cells) => (wide ? cells : cells.slice(0, 3));
  rows.forEach((r) => (r.cells = cut(r.cells)));
  const none = chart.none ? `; ${chart.notes[0]}` : "";
  $("top").replaceChildren(table(`Highest heads: ${words(chart.subject)}${none}`, cut(["Rank", "Head", groupOf(chart).measure, "Interval"]), rows, [2, 3]));
}
let fading = 0;
function fadeLater() { // the text at once, the maps when the slider has rested for a moment
  const values = sorted(data.charts[state.chart]), left = values.filter(passesThreshold).length;
  const sign = state.group.scale.diverging ? "±" : "";
  $("threshold-value").textContent = `${sign}${number(limit())}: ${left} of ${values.length} heads remain`;
  clearTimeout(fading);
  fading = setTimeout(() => { for (const view of views) if (view.fade && !view.stale) view.fade(); else if (!view.steady) stale(view); }, 60);
}

// ---------- selection
function select(index, say = true) { // null: none
  state.selected = index;
  for (const view of views) if (!view.stale) view.mark();
  if (state.chart !== null) showTop();
  card();
  if ($("bar")) { $("head").value = index === null ? "" : nameOf(index); $("goto-message").textContent = ""; }
  live.picked();
  if (!say) return;
  const chart = data.charts[state.chart];
  const value = chart && !missing(score(chart)[index]) ? ` ${full(chart)}: ${number(score(chart)[index])}, ${placeInWords(chart, index)}.` : "";
  $("announce").textContent = `Selected ${nameOf(index)}.${value}`;
}
function goTo(text) {
  const [, layer, head] = /^\s*L?\s*(\d+)\s*[.,:\s]\s*H?\s*(\d+)\s*$/i.exec(text) ?? [];
  const row = data.layers.indexOf(Number(layer)), column = data.heads.indexOf(Number(head));
  const index = row * H + column, none = row < 0 || column < 0;
  if (!none && exists(index)) { select(index); return; }
  const why = none ? `There is no head “${text.trim()}”.` : `${nameOf(index)} has no scores: layer ${data.layers[row]} may have no attention heads.`;
  $("goto-message").textContent = `${why} Heads here are ${nameOf(0)} to ${nameOf(N - 1)}.`;
}

