// ---------- head card
const muted = (text) => el("p", { className: "muted" }, text);
function card() {
  const index = state.selected, root = $("card");
  if (index === null) { root.replaceChildren(el("h2", {}, "No head selected"), el("p", {}, data.live ? "Measure which heads matter for a prompt, or click a head in a map." : "Click a head in any map.")); return; }
  const where = `Layer ${data.layers[Math.floor(index / H)]}, head ${data.heads[index % H]} of ${data.model}${categoryOf(index)}`;
  root.replaceChildren(el("h2", {}, nameOf(index)), muted(where), ...live.button(index), ...highest(index), ...roles(index), ...effects(index), ...salient(index), ...scores(index));
}
function highest(index) {
  const telling = data.charts.filter((c) => rank(c, index) !== null && !atChance(c, index) && sorted(c)[0] !== sorted(c).at(-1));
  const best = telling.sort(byPlace(index)).slice(0, 3);
  const line = (c) => el("li", {}, `${full(c)}: ${placeInWords(c, index)}`);
  return best.length ? [el("h3", {}, "Where it ranks highest"), el("ul", {}, ...best.map(line))] : [];
}
function roles(index) {
  const charts = data.charts.filter((c) => ROLES[c.measure] && !missing(score(c)[index]));
  const short = (v) => v.toFixed(2);
  const between = (c) => (missing(part(c, "low")[index]) ? "" : `${short(part(c, "low")[index])}–${short(part(c, "high")[index])}`);
  const cell = (c) => (c ? el("span", {}, short(score(c)[index]), el("small", {}, between(c))) : "–");
  const line = (task) => {
    const mine = charts.filter((c) => c.subject === task);
    const headRoles = mine.filter((c) => score(c)[index] >= ROLE_FROM).map((c) => ROLES[c.measure]);
    const cells = Object.keys(ROLES).map((m) => cell(mine.find((c) => c.measure === m)));
    return [el("span", {}, words(task), el("small", {}, headRoles.join(", ") || "no clear role")), ...cells];
  };
  const tasks = [...new Set(charts.map((c) => c.subject))];
  const explanation = muted(`Mean over seeds, and range. A role is a score of ${ROLE_FROM} or more.`);
  return tasks.length ? [el("h3", {}, "Roles"), explanation, table("", ["Task", "facilitates", "interferes", "irrelevant"], tasks.map(line), [1, 2, 3])] : [];
}
function effects(index) {
  const alone = data.charts.filter((c) => groupOf(c).removal && !missing(score(c)[index]));
  const sets = data.tests.filter((t) => t.chart !== null && data.charts[t.chart].tested.includes(index));
  const changes = (t) => {
    const set = el("span", {}, `${words(t.subject)}: top ${t.heads}`, el("small", {}, `${t.title}, ${t.measure}; ${t.outcome}`));
    return [set, number(t.change), number(t.random), number(t.p)];
  };
  const made = [];
  const single = (c) => [`${groupOf(c).title.split(":")[0]}, ${words(c.subject)}`, number(score(c)[index]), place(c, index)];
  if (alone.length) made.push(table("", ["This head removed", "log P lost", "Rank"], alone.map(single), [1, 2]));
  if (sets.length) {
    made.push(muted("Tested sets of top heads that include it: change of log P without them, compared with matched random heads."));
    made.push(table("", ["Tested set", "these", "random", "p"], sets.map(changes), [1, 2, 3]));
  }
  if (!made.length && data.tests.length) made.push(el("p", {}, "It is in none of the tested sets of top heads."));
  return made.length ? [el("h3", {}, "Removal"), ...made] : [];
}
function salient(index) {
  const s = data.tokens;
  if (!s) return [];
  const read = (name) => (s["_" + name] ??= new Uint32Array(bytes(s[name])));
  const tokens = (name, i) => (s[name] ? range(s.outputs).map((o) => s.texts[read(name)[(index * s.ranks + i) * s.outputs + o]]) : []);
  const shown = (each) => el("td", {}, ...each.filter(Boolean).flatMap((t) => [el("code", {}, printable(t)), " "]));
  const rows = range(s.ranks).map((i) => [i, s.texts[read("token")[index * s.ranks + i]]]).filter(([, token]) => token);
  const heads = ["Amplifies", ...(s.promoted ? ["writes"] : []), ...(s.demoted ? ["suppresses"] : [])];
  const made = table("", heads, []);
  const gain = (i) => (s.gains ? [el("small", {}, `× ${number((s._gains ??= floats(s.gains))[index * s.ranks + i])}`)] : []);
  for (const [i, token] of rows) {
    const outputs = ["promoted", "demoted"].filter((n) => s[n]).map((n) => shown(tokens(n, i)));
    made.tBodies[0].append(el("tr", {}, el("td", {}, el("code", {}, printable(token)), ...gain(i)), ...outputs));
  }
  const explanation = muted("From parameters alone: the tokens that the head amplifies most, and the tokens it writes for them.");
  return rows.length ? [el("h3", {}, "Salient tokens"), explanation, made] : [];
}
function scores(index) {
  const row = (c) => {
    const ends = interval(c, index) ? [el("small", {}, interval(c, index))] : [];
    return { current: data.charts[state.chart] === c, cells: [words(c.subject), el("span", {}, number(score(c)[index]), ...ends), place(c, index)] };
  };
  return data.groups.flatMap((g) => {
    const mine = g.charts.map((c) => data.charts[c]).filter((c) => !missing(score(c)[index])).sort(byPlace(index));
    const first = mine.length > 9 ? mine.slice(0, 5).filter((c) => score(c)[index] !== 0 && !atChance(c, index)) : mine; // of a long list, the best
    const rest = mine.filter((c) => !first.includes(c)), made = [];
    if (first.length) made.push(table("", [g.subject, g.measure, "Rank"], first.map(row), [1, 2]));
    if (rest.length) {
      const open = rest.includes(data.charts[state.chart]);
      made.push(el("details", { open }, el("summary", {}, `${rest.length} ${first.length ? "more" : "at chance or 0"}`), table("", [], rest.map(row), [1, 2])));
    }
    return made.length ? [el("h3", {}, g.title), ...made] : [];
  });
}

