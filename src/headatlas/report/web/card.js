// ---------- head card
const muted = (text) => el("p", { className: "muted" }, text);
function card() {
  const { at } = state, root = $("card");
  if (at === null) { root.replaceChildren(el("h2", {}, "No head selected"), el("p", {}, data.live ? "Measure which heads matter for a prompt, or click a head in a map." : "Click a head in any map.")); return; }
  const where = `Layer ${data.layers[Math.floor(at / H)]}, head ${data.heads[at % H]} of ${data.model}${categoryOf(at)}`;
  root.replaceChildren(el("h2", {}, nameOf(at)), muted(where), ...live.button(at), ...highest(at), ...roles(at), ...effects(at), ...salient(at), ...scores(at));
}
function highest(at) {
  const telling = data.charts.filter((c) => rank(c, at) !== null && !atChance(c, at) && sorted(c)[0] !== sorted(c).at(-1));
  const best = telling.sort(byPlace(at)).slice(0, 3);
  const line = (c) => el("li", {}, `${full(c)}: ${placed(c, at)}`);
  return best.length ? [el("h3", {}, "Where it ranks highest"), el("ul", {}, ...best.map(line))] : [];
}
function roles(at) {
  const charts = data.charts.filter((c) => ROLES[c.measure] && !missing(score(c)[at]));
  const short = (v) => v.toFixed(2);
  const between = (c) => (missing(part(c, "low")[at]) ? "" : `${short(part(c, "low")[at])}–${short(part(c, "high")[at])}`);
  const cell = (c) => (c ? el("span", {}, short(score(c)[at]), el("small", {}, between(c))) : "–");
  const line = (task) => {
    const mine = charts.filter((c) => c.subject === task);
    const has = mine.filter((c) => score(c)[at] >= ROLE_FROM).map((c) => ROLES[c.measure]);
    const cells = Object.keys(ROLES).map((m) => cell(mine.find((c) => c.measure === m)));
    return [el("span", {}, words(task), el("small", {}, has.join(", ") || "no clear role")), ...cells];
  };
  const tasks = [...new Set(charts.map((c) => c.subject))];
  const says = muted(`Mean over seeds, and range. A role is a score of ${ROLE_FROM} or more.`);
  return tasks.length ? [el("h3", {}, "Roles"), says, table("", ["Task", "facilitates", "interferes", "irrelevant"], tasks.map(line), [1, 2, 3])] : [];
}
function effects(at) {
  const alone = data.charts.filter((c) => groupOf(c).removal && !missing(score(c)[at]));
  const sets = data.tests.filter((t) => t.chart !== null && data.charts[t.chart].tested.includes(at));
  const changes = (t) => {
    const set = el("span", {}, `${words(t.subject)}: top ${t.heads}`, el("small", {}, `${t.title}, ${t.measure}; ${t.outcome}`));
    return [set, number(t.change), number(t.random), number(t.p)];
  };
  const made = [];
  const single = (c) => [`${groupOf(c).title.split(":")[0]}, ${words(c.subject)}`, number(score(c)[at]), place(c, at)];
  if (alone.length) made.push(table("", ["This head removed", "log P lost", "Rank"], alone.map(single), [1, 2]));
  if (sets.length) {
    made.push(muted("Tested sets of top heads that include it: change of log P without them, compared with matched random heads."));
    made.push(table("", ["Tested set", "these", "random", "p"], sets.map(changes), [1, 2, 3]));
  }
  if (!made.length && data.tests.length) made.push(el("p", {}, "It is in none of the tested sets of top heads."));
  return made.length ? [el("h3", {}, "Removal"), ...made] : [];
}
function salient(at) {
  const s = data.tokens;
  if (!s) return [];
  const read = (name) => (s["_" + name] ??= new Uint32Array(bytes(s[name])));
  const tokens = (name, i) => (s[name] ? range(s.outputs).map((o) => s.texts[read(name)[(at * s.ranks + i) * s.outputs + o]]) : []);
  const shown = (each) => el("td", {}, ...each.filter(Boolean).flatMap((t) => [el("code", {}, printable(t)), " "]));
  const rows = range(s.ranks).map((i) => [i, s.texts[read("token")[at * s.ranks + i]]]).filter(([, token]) => token);
  const heads = ["Amplifies", ...(s.promoted ? ["writes"] : []), ...(s.demoted ? ["suppresses"] : [])];
  const made = table("", heads, []);
  const gain = (i) => (s.gains ? [el("small", {}, `× ${number((s._gains ??= floats(s.gains))[at * s.ranks + i])}`)] : []);
  for (const [i, token] of rows) {
    const outputs = ["promoted", "demoted"].filter((n) => s[n]).map((n) => shown(tokens(n, i)));
    made.tBodies[0].append(el("tr", {}, el("td", {}, el("code", {}, printable(token)), ...gain(i)), ...outputs));
  }
  const says = muted("From parameters alone: the tokens that the head amplifies most, and the tokens it writes for them.");
  return rows.length ? [el("h3", {}, "Salient tokens"), says, made] : [];
}
function scores(at) {
  const row = (c) => {
    const ends = interval(c, at) ? [el("small", {}, interval(c, at))] : [];
    return { current: data.charts[state.chart] === c, cells: [words(c.subject), el("span", {}, number(score(c)[at]), ...ends), place(c, at)] };
  };
  return data.groups.flatMap((g) => {
    const mine = g.charts.map((c) => data.charts[c]).filter((c) => !missing(score(c)[at])).sort(byPlace(at));
    const first = mine.length > 9 ? mine.slice(0, 5).filter((c) => score(c)[at] !== 0 && !atChance(c, at)) : mine; // of a long list, the best
    const rest = mine.filter((c) => !first.includes(c)), made = [];
    if (first.length) made.push(table("", [g.subject, g.measure, "Rank"], first.map(row), [1, 2]));
    if (rest.length) {
      const open = rest.includes(data.charts[state.chart]);
      made.push(el("details", { open }, el("summary", {}, `${rest.length} ${first.length ? "more" : "at chance or 0"}`), table("", [], rest.map(row), [1, 2])));
    }
    return made.length ? [el("h3", {}, g.title), ...made] : [];
  });
}

