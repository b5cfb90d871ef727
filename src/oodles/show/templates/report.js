"use strict";
// The report's own script. It draws what the page's data hold and computes no statistic: means of runs and what is
// shown in words are all there is. Without it the page keeps its static figures and its tables.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const places = new Map(data.groups.map((g, i) => [data.by.map((c) => g.of[c]).join("\u0000"), i]));
  const groupOf = (row) => places.get(data.by.map((c) => String(row[c])).join("\u0000")) ?? -1;
  const tables = {};  // rows of a table, made when they are first asked for
  for (const [name, columns] of Object.entries(data.tables)) {
    let rows = null;
    Object.defineProperty(tables, name, { get: () => {
      if (!rows) { rows = decode(columns); for (const row of rows) row.group = groupOf(row); }
      return rows;
    } });
  }
  const pairs = tables.correlations || [];
  const ways = Object.keys(data.ways);
  const names = [...new Map(pairs.map((p) => [key(p), [p.a, p.b]])).values()];
  const oneStep = !data.grids || data.grids.every((g) => g.length < 2);
  const level = `${+(100 * data.level).toPrecision(3)} %`;
  // no orange, which is in-domain everywhere
  const PALETTE = ["#0072b2", "#009e73", "#cc79a7", "#8c6d1f", "#56b4e9", "#7a4fb3", "#a63d40", "#4d7c0f",
    "#b8860b", "#00798c", "#8d5b4c", "#6b7280", "#c2185b", "#3f51b5"];
  const colour = (name) => PALETTE[Math.max(0, data.sets.indexOf(name)) % PALETTE.length];

  function decode(columns) {
    const count = columns.length ? (columns[0].values || columns[0].codes || columns[0].flags).length : 0;
    return Array.from({ length: count }, (_, i) => Object.fromEntries(columns.map((c) =>
      [c.name, c.codes ? c.levels[c.codes[i]] ?? "" : c.flags ? Boolean(c.flags[i]) : c.values[i]])));
  }
  function key(p) { return `${p.a}\u0000${p.b}`; }

  // numbers as everywhere else: two decimals and a sign, p without its 0
  const known = (x) => x !== null && x !== undefined && Number.isFinite(x);
  function signed(x) {
    if (!known(x)) return "–";
    const text = (x < 0 ? "−" : "+") + Math.abs(x).toFixed(2);
    return text.slice(1) === "0.00" ? "0.00" : text;
  }
  const pText = (p) => !known(p) ? "no test" : p < 0.001 ? "p <.001" : `p = ${p.toFixed(3).replace(/^0/, "")}`;
  const interval = (p) => known(p.low) ? `[${signed(p.low)}, ${signed(p.high)}]` : "no interval";
  const plural = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;
  const test = (p) => p.p_said !== undefined ? p.p_said : p.p_holm;
  const descriptive = (p) => known(p.r) && !known(p.p_val);
  const unclear = (p) => descriptive(p) ? coversZero(p) : !p.clear;
  const coversZero = (p) => !known(p.low) || (p.low <= 0 && p.high >= 0);
  const mark = (p) => descriptive(p) ? "°" : p.clear ? "*" : "";
  const short = (text, most = 30) => {  // both ends: names that begin alike often end differently
    const letters = [...text], end = (most >> 1) - 1;
    return letters.length <= most ? text : `${letters.slice(0, most - 1 - end).join("").trimEnd()}…${letters.slice(-end).join("").trimStart()}`;
  };

  const apart = (text) => /[\u0590-\u08ff\ufb1d-\ufefc]/.test(text) ? `\u2068${text}\u2069` : text;  // a name written from right to left turns nothing around it

  // state: what is chosen; it lives in the address
  const state = { pair: null, group: 0, way: ways[0], metric: data.metric, only: {}, shots: "", seed: "", words: false };
  function clearest() {
    const own = pairs.filter((p) => p.within === state.way && known(p.r));
    const away = (p) => known(p.low) ? (p.r > 0 ? p.low : -p.high) : Math.abs(p.r) - 2;
    return own.sort((p, q) => (q.clear - p.clear) || away(q) - away(p))[0] || pairs[0];
  }
  function readAddress() {
    const hash = decodeURIComponent(location.hash.slice(1));
    if (!hash.includes("=")) return;
    const given = new URLSearchParams(location.hash.slice(1));
    const pair = (given.get("pair") || "").split(" ~ ");
    const found = names.find(([a, b]) => a === pair[0] && b === pair.slice(1).join(" ~ "));
    if (found) state.pair = found;
    const group = Number(given.get("group"));
    if (group >= 1 && group <= data.groups.length) state.group = group - 1;
    if (ways.includes(given.get("way"))) state.way = given.get("way");
    if (data.scores && given.get("metric") in data.scores) state.metric = given.get("metric");
    for (const name of ["shots", "seed"]) if (given.get(name)) state[name] = given.get(name);
    for (const name of data.by) if (given.get(name)) state.only[name] = given.get(name);
    state.words = given.get("words") === "1";
  }
  function writeAddress() {
    const told = new URLSearchParams({ pair: state.pair.join(" ~ "), way: state.way });
    if (data.groups.length > 1) told.set("group", state.group + 1);
    if (state.metric !== data.metric) told.set("metric", state.metric);
    for (const name of ["shots", "seed"]) if (state[name]) told.set(name, state[name]);
    for (const [name, value] of Object.entries(state.only)) if (value) told.set(name, value);
    if (state.words) told.set("words", "1");
    try { history.replaceState(null, "", `#${told}`); } catch { /* a page inside another page */ }
    $("link").href = `#${told}`;
  }
  const shownGroups = () => d3.sort(data.groups.map((g, i) => i), (i) => data.groups[i].size ?? 0)
    .filter((i) => data.by.every((c) => !state.only[c] || data.groups[i].of[c] === state.only[c]));
  const varied = data.by.filter((c) => new Set(data.groups.map((g) => g.of[c])).size > 1);
  const head = (g) => varied.map((c) => data.groups[g].of[c]).join(", ") || data.groups[g].label;  // what tells a group from others
  const found = new Map(pairs.map((p) => [`${p.group}\u0000${p.within}\u0000${key(p)}`, p]));
  const rowOf = (group, pair = state.pair, way = state.way) => found.get(`${group}\u0000${way}\u0000${pair[0]}\u0000${pair[1]}`);

  // drawing
  const plot = (options) => Plot.plot({ marginBottom: 36, ...options });  // room for an axis' label below its numbers
  const RAMP = d3.interpolateRdBu;
  const mix = (r, p) => {
    const c = d3.rgb(RAMP((Math.max(-1, Math.min(1, r)) + 1) / 2));
    return unclear(p) ? d3.interpolateRgb(c, "#f7f7f7")(0.55) : String(c);  // fades where nothing can be told
  };
  const ink = (fill) => { const c = d3.lab(fill); return c.l < 60 ? "#ffffff" : "#16191d"; };
  const fillOf = (p) => p && known(p.r) ? mix(p.r, p) : "url(#hatch)";
  const pen = document.createElement("canvas").getContext("2d");
  const family = getComputedStyle(document.body).fontFamily;
  function widthOf(text, size = 11) { pen.font = `${size}px ${family}`; return pen.measureText(text).width; }
  const widest = (texts, size) => d3.max(texts, (text) => widthOf(text, size)) || 0;
  function labelled(texts, most) {  // labels that fit beside a figure, and the room they take
    let letters = 40;
    const room = () => 14 + widest(texts.map((text) => short(text, letters)));
    while (letters > 8 && room() > most) letters -= 1;
    return { room: Math.max(24, room()), label: (text) => short(text, letters) };
  }
  const fits = (text, most) => labelled([text], most).label(text);  // a name as long as there is room
  const roomOf = (id, most, least = 260) => Math.max(least, Math.min(most, ($(id) && $(id).parentElement.clientWidth) || most));
  function unnamed(node) {  // the figure has a name; groups inside it may not have one
    for (const group of node.querySelectorAll("g[aria-label]")) group.removeAttribute("aria-label");
    return node;
  }
  function put(id, node, label) {
    const place = $(id);
    if (!place) return;
    place.replaceChildren();
    if (!node) { place.hidden = true; return; }
    place.hidden = false;
    node.setAttribute("role", "img");
    node.setAttribute("aria-label", label);
    place.append(unnamed(node));
    if (place.scrollWidth > place.clientWidth) place.tabIndex = 0; else place.removeAttribute("tabindex");  // keys scroll it
  }
  function say(id, text) { const place = $(id); if (place) place.textContent = text; }
  function sayNamed(id, before, text) {  // a sentence that begins with the pair's names, which may hold commas: they stand out
    const place = $(id), [a, b] = state.pair, rest = text.startsWith(`${a} and ${b}`) ? text.slice(`${a} and ${b}`.length) : null;
    if (!place || rest === null) return say(id, before + text);
    const name = (it) => { const strong = document.createElement("strong"); strong.textContent = it; return strong; };
    place.replaceChildren(before, name(a), " and ", name(b), rest);
  }
  const told = (p) => !p ? "no result" : !known(p.r) ? `${p.a} ~ ${p.b}\nno correlation: ${p.caveats || "see the caveats"}` :
    `${p.a} ~ ${p.b}${data.groups.length > 1 ? `\n${data.groups[p.group].label}` : ""}\nr = ${signed(p.r)} ${interval(p)}, ${
      pText(test(p))}\n${plural(p.n_runs, "run")}, ${plural(p.n_units, "independent unit")}${
      p.clear ? "\nclear" : p.doubt && (test(p) < 0.05 || p.p_holm < 0.05) ? `\nmay be due to ${data.due[p.doubt] || p.doubt}` : ""}`;
  function choosing(svg, label, rows, choose) {  // cells that a click chooses
    const cells = svg.querySelectorAll(`.m-${label} rect`);
    cells.forEach((cell, i) => {
      if (!rows[i]) return;
      cell.style.cursor = "pointer";
      cell.addEventListener("click", () => choose(rows[i]));
    });
  }
  const cellMarks = (rows, x, y, chosen, withText) => [
    Plot.cell(rows, { x, y, fill: (d) => fillOf(d.p), inset: 0.7, className: "m-values" }),
    Plot.cell(rows.filter((d) => chosen(d)), { x, y, fill: "none", stroke: "var(--ink)", strokeWidth: 2, inset: 0, className: "m-chosen" }),
    withText ? Plot.text(rows.filter((d) => d.p && known(d.p.r)), { x, y, text: (d) => signed(d.p.r).replace("0.", ".") + mark(d.p),
      fill: (d) => ink(fillOf(d.p)), fontSize: 10, fontWeight: (d) => d.p.clear ? 700 : 400 }) : null,
    Plot.tip(rows, Plot.pointer({ x, y, title: (d) => told(d.p), fontSize: 12, maxRadius: 30 })),
  ];

  function drawOverview() {
    const groups = shownGroups();
    if (data.groups.length < 2) return drawTriangle("overview", 640);
    const mean = new Map(names.map((pair) => {
      const rs = groups.map((g) => rowOf(g, pair)).filter((p) => p && known(p.r)).map((p) => p.r);
      return [pair.join("\u0000"), rs.length ? d3.mean(rs) : -2];
    }));
    const order = [...names].sort((p, q) => mean.get(q.join("\u0000")) - mean.get(p.join("\u0000")));
    const wide = roomOf("overview", 1070);
    const { label } = labelled(order.flat(), wide < 500 ? 0.24 * wide : Math.max(120, Math.min(250, (wide - 40 * groups.length - 120) / 2)));
    const labels = new Map(order.map((pair) => [pair.join("\u0000"), `${apart(label(pair[0]))} ~ ${apart(label(pair[1]))}`]));
    const heads = groups.map((g) => short(head(g), wide < 500 ? 18 : 30));
    const rows = order.flatMap((pair) => groups.map((g) => ({ pair, g, p: rowOf(g, pair), x: String(g), y: pair.join("\u0000") })));
    const left = 14 + widest([...labels.values()]);
    // Heads are turned by 40 degrees and end to the right of their column, above it.
    const right = (cell) => d3.max(heads, (text, i) => Math.cos(0.7) * widthOf(text) + 16 - (groups.length - i - 0.5) * cell);
    let cell = (wide - left - 12) / groups.length;
    for (let i = 0; i < 4; i += 1) cell = Math.max(22, (wide - left - Math.max(12, right(cell))) / groups.length);
    cell = Math.min(cell, 120);
    const marginRight = Math.max(12, right(cell)), above = 24 + Math.sin(0.7) * widest(heads);
    const top = $("overview").parentElement.getBoundingClientRect().top + scrollY;
    const line = Math.max(15, Math.min(22, (innerHeight - top - above - 14) / order.length));  // the first screen shows all pairs, if it can
    const svg = plot({
      width: left + cell * groups.length + marginRight, height: above + 6 + line * order.length, marginLeft: left, marginTop: above, marginRight, marginBottom: 6,
      x: { domain: groups.map(String), axis: "top", label: null, tickRotate: -40, tickFormat: (t) => heads[groups.indexOf(Number(t))], tickSize: 0, padding: 0 },
      y: { domain: order.map((pair) => pair.join("\u0000")), label: null, tickFormat: (t) => labels.get(t), tickSize: 0 }, color: { type: "identity" },
      marks: cellMarks(rows, "x", "y", (d) => d.pair === state.pair && d.g === state.group, cell > 33),
    });
    choosing(svg, "values", rows, (d) => change({ pair: d.pair, group: d.g }));
    const clear = rows.filter((d) => d.p && d.p.clear).length;
    put("overview", svg, `Partial correlations of ${order.length} pairs of test sets in ${groups.length} groups, sorted by their mean: ${
      clear} of ${rows.length} cells are clear. The largest mean is that of ${order[0].join(" and ")}.`);
  }

  function drawTriangle(id, most) {
    const own = pairs.filter((p) => p.group === state.group && p.within === state.way);
    const sets = data.sets.filter((s) => own.some((p) => p.a === s || p.b === s));
    const place = new Map(sets.map((s, i) => [s, i]));
    const rows = own.map((p) => {
      const [x, y] = place.get(p.a) < place.get(p.b) ? [p.a, p.b] : [p.b, p.a];
      return { p, x, y, pair: names.find(([a, b]) => a === p.a && b === p.b) };
    });
    const wide = roomOf(id, most, 240);
    const { label, room: left } = labelled(sets, Math.min(210, 0.45 * wide));
    const cell = Math.min(62, (wide - left - 10) / (sets.length - 1));
    const turn = cell < 18 ? 90 : 38, below = 12 + Math.sin(turn * Math.PI / 180) * left, each = Math.ceil(12 / cell);  // names stand upright, or some are left out, where cells are narrow
    const some = (name) => place.get(name) % each ? "" : label(name);
    const svg = plot({
      width: left + cell * (sets.length - 1) + 10, height: Math.min(46, cell) * (sets.length - 1) + below + 12, marginLeft: left, marginBottom: below, marginTop: 8, marginRight: 10,
      x: { domain: sets.slice(0, -1), label: null, tickRotate: -turn, tickFormat: some, tickSize: 0, padding: 0 },
      y: { domain: sets.slice(1), label: null, tickFormat: some, tickSize: 0, padding: 0 }, color: { type: "identity" },
      marks: cellMarks(rows, "x", "y", (d) => d.pair === state.pair, cell > 33),
    });
    choosing(svg, "values", rows, (d) => change({ pair: d.pair }));
    const clear = own.filter((p) => p.clear).length;
    put(id, svg, `Heatmap of the partial correlations of ${own.length} pairs of test sets, ${data.ways[state.way]}; ${clear} are clear. The table has the numbers.`);
  }

  function drawNetwork() {
    const own = pairs.filter((p) => p.group === state.group && p.within === state.way && known(p.r));
    const sets = data.sets.filter((s) => own.some((p) => p.a === s || p.b === s));
    const at = new Map(sets.map((s, i) => { const t = 2 * Math.PI * i / sets.length - Math.PI / 2; return [s, [Math.cos(t), Math.sin(t)]]; }));
    const edges = state.words ? own.filter((p) => p.r > 0.5 || p.r < -0.3) : own.filter((p) => Math.abs(p.r) >= 0.1);
    const width = roomOf("network", 600), size = width < 500 ? 9 : 11;
    const side = (name) => { const x = at.get(name)[0]; return x > 0.2 ? "start" : x < -0.2 ? "end" : "middle"; };
    const { label, room } = labelled(sets, 0.34 * width);
    const link = (rows, dash) => Plot.link(rows, { x1: (p) => at.get(p.a)[0], y1: (p) => at.get(p.a)[1], x2: (p) => at.get(p.b)[0], y2: (p) => at.get(p.b)[1],
      stroke: (p) => p.r > 0 ? "var(--up)" : "var(--down)", strokeWidth: (p) => 0.5 + 9 * Math.abs(p.r), strokeOpacity: dash ? 0.4 : 0.85,
      strokeDasharray: dash ? "5,5" : null, title: told, className: dash ? "m-open" : "m-settled" });
    const svg = plot({
      width, height: width * 0.72, axis: null, marginTop: 30, marginBottom: 30, marginLeft: room, marginRight: room, x: { domain: [-1.05, 1.05] }, y: { domain: [1.05, -1.05] }, color: { type: "identity" },
      marks: [
        link(edges.filter(coversZero), true), link(edges.filter((p) => !coversZero(p)), false),
        Plot.dot(sets, { x: (s) => at.get(s)[0], y: (s) => at.get(s)[1], r: 6, fill: colour, stroke: "var(--paper)" }),
        ...[["start", 10], ["end", -10], ["middle", 0]].map(([anchor, dx]) => Plot.text(sets.filter((s) => side(s) === anchor), { x: (s) => at.get(s)[0],
          y: (s) => (anchor === "middle" ? 1.16 : 1) * at.get(s)[1], dx, textAnchor: anchor, text: label, fontSize: size, fill: "currentColor" })),
      ],
    });
    const up = edges.filter((p) => p.r > 0).length;
    put("network", svg, `Network of ${sets.length} test sets: ${up} positive and ${edges.length - up} negative links; dashed where the interval covers 0.`);
    say("network-note", (state.words ? "Only pairs with r above .5 or below −.3. " : "Pairs with |r| of .1 and more. ") +
      "Blue: rise together; red: move apart; wider: larger; dashed: the interval covers 0.");
  }

  // the chosen pair
  function pairSentence(p) {
    const [a, b] = state.pair;
    if (!p || !known(p.r)) return `${a} and ${b}: no correlation could be estimated here. ${p ? p.caveats : ""}`;
    const what = descriptive(p) ? (p.r > 0 ? "rise together in these runs, which is not tested" : "move apart in these runs, which is not tested")
      : p.clear ? (p.r > 0 ? "rise together" : "move apart")
        : p.doubt && (test(p) < 0.05 || p.p_holm < 0.05) ? `are correlated, but that may be due to ${data.due[p.doubt] || p.doubt}`
          : "cannot be told from no relation";
    const alone = !descriptive(p) && !p.clear && !coversZero(p) && !what.startsWith("are") ? " The interval is of this pair alone: over all tests, and with noise of the in-domain set allowed for, it is not significant." : "";
    return `${a} and ${b} ${what}: r = ${signed(p.r)}, ${level} interval ${interval(p)}, ${
      descriptive(p) ? "no test" : known(test(p)) ? `${pText(test(p))} (adjusted over all tests reported)` : "not tested, as its caveats say"}; ${plural(p.n_runs, "run")}${p.n_units !== p.n_runs ? `, ${plural(p.n_units, "independent unit")}` : ""}.${alone}`;
  }
  function whatWouldChange(p) {
    const said = [];
    const own = specifications();
    if (own.length > 1) {
      const base = own.find((s) => s.default) || own[0];
      const same = own.filter((s) => s.r * base.r > 0);
      said.push(`Under ${own.length} choices of ${listed(choicesOf(own).map((c) => CHOICES[c]))} the sign is the same in ${same.length}, and significant, adjusted within each choice, in ${
        same.filter((s) => known(s.p_holm) && s.p_holm < 0.05).length}; r goes from ${signed(d3.min(own, (s) => s.r))} to ${signed(d3.max(own, (s) => s.r))}.`);
    }
    if (p && known(p.r_corrected)) said.push(`Corrected for the noise of finite test sets: r = ${signed(p.r_corrected)}.`);
    else if (p && known(p.r_corrected_low) && p.r_corrected_low !== p.r_corrected_high)
      said.push(`Corrected for the noise of finite test sets, r lies between ${signed(p.r_corrected_low)} and ${signed(p.r_corrected_high)} (per-example records would tell).`);
    if (p && known(p.r_raw)) said.push(`With nothing regressed out: r = ${signed(p.r_raw)}.`);
    for (const way of ways) if (way !== state.way) {
      const other = rowOf(state.group, state.pair, way);
      if (other && known(other.r)) said.push(`${data.ways[way][0].toUpperCase()}${data.ways[way].slice(1)}: r = ${signed(other.r)} ${interval(other)}.`);
    }
    for (const name of state.pair) {
      const fit = (tables.fits || []).find((f) => f.test_set === name && f.within === state.way && f.group === state.group);
      if (fit && known(fit.r2)) said.push(`${name}: in-domain explains ${Math.round(100 * fit.r2)} %${
        known(fit.reliability) ? `, reliability of the rest ${Math.max(0, fit.reliability).toFixed(2)}` : ""}.`);
    }
    return said;
  }
  const CHOICES = { steps: "steps", method: "method", within: "pooling", metric: "metric" };  // by the column of a choice
  const choicesOf = (own) => Object.keys(CHOICES).filter((c) => new Set(own.map((s) => s[c])).size > 1);
  const listed = (texts) => texts.length < 2 ? texts.join("") : `${texts.slice(0, -1).join(", ")} and ${texts[texts.length - 1]}`;
  const specifications = () => (tables.sensitivity || []).filter((s) => s.group === state.group && s.a === state.pair[0] && s.b === state.pair[1] && known(s.r));

  function drawForest() {
    const levels = (tables.claim_levels || []).filter((l) => l.a === state.pair[0] && l.b === state.pair[1]);
    const groups = shownGroups().map((g) => ({ g, label: head(g), p: rowOf(g) })).filter((d) => d.p && known(d.p.r));
    if (groups.length < 2) return put("forest", null);
    const next = (tables.claim || []).filter((c) => c.a === state.pair[0] && c.b === state.pair[1] && known(c.predicted_low));
    const rows = groups.map((d) => ({ label: d.label, r: d.p.r, low: d.p.low, high: d.p.high, clear: d.p.clear, g: d.g, p: d.p, new: false }));
    for (const c of next) rows.push({ label: `a new ${String(c.across).replace("_", " ")}${stratum(c)}`, r: c.r, low: c.predicted_low, high: c.predicted_high, new: true });
    const width = roomOf("forest", 760), { label, room: left } = labelled(rows.map((d) => d.label), 0.45 * width);
    const svg = plot({
      width, height: 66 + 20 * rows.length, marginLeft: left, marginRight: 20,
      x: { domain: [-1, 1], grid: true, label: `r, ${data.ways[state.way]}` }, y: { domain: rows.map((d) => d.label), label: null, tickFormat: label, tickSize: 0 },
      color: { type: "identity" },
      marks: [
        Plot.ruleX([0], { stroke: "var(--muted)" }),
        Plot.ruleY(rows.filter((d) => known(d.low)), { y: "label", x1: "low", x2: "high", stroke: (d) => d.new ? "var(--in-domain)" : "var(--ood)", strokeWidth: (d) => d.new ? 4 : 1.8, className: "m-intervals" }),
        Plot.dot(rows.filter((d) => !d.new), { y: "label", x: "r", fill: (d) => d.clear ? "var(--ood)" : "var(--paper)", stroke: "var(--ood)", r: 4, className: "m-estimates" }),
        Plot.tip(rows, Plot.pointerY({ y: "label", x: "r", title: (d) => d.new ? `${d.label}\nexpected between ${signed(d.low)} and ${signed(d.high)}` : told(d.p) })),
      ],
    });
    put("forest", svg, `Correlation of ${state.pair.join(" and ")} in ${groups.length} groups with intervals: from ${signed(d3.min(groups, (d) => d.p.r))} to ${signed(d3.max(groups, (d) => d.p.r))}; ${groups.filter((d) => d.p.clear).length} are clear.`);
    return levels;
  }
  function stratum(c) {
    const columns = Object.keys(c);
    const before = columns.slice(0, columns.indexOf("across")).map((n) => c[n]).filter(Boolean);
    return before.length ? `, ${before.join(", ")}` : "";
  }

  const ownRuns = () => (data.runs || []).map((r, i) => i).filter((i) => data.runs[i].group === state.group
    && (!state.shots || data.runs[i].shots === state.shots) && (!state.seed || data.runs[i].seed === state.seed));
  const seriesOf = (of, name, runs) => !of || !of[name] ? [] : runs.flatMap((i) => !of[name][i] ? [] :
    of[name][i].flatMap((v, k) => v === null ? [] : [{ run: data.runs[i].run, i, step: data.grids[i][k], k, value: v }]));

  function drawResiduals() {
    const of = data.residuals && data.residuals[state.way];
    if (!of || !of[state.pair[0]] || !of[state.pair[1]]) return put("residuals", null);
    const second = of[state.pair[1]];
    const points = seriesOf(of, state.pair[0], ownRuns()).flatMap((d) => second[d.i] && second[d.i][d.k] !== null ? [{ ...d, other: second[d.i][d.k] }] : []);
    if (!points.length) return put("residuals", null);
    const width = roomOf("residuals", 420);
    const svg = plot({
      width, height: 0.85 * width, marginLeft: 52, inset: 8, x: { label: `residual, ${fits(state.pair[0], width - 130)} →`, grid: true, ticks: 5 }, y: { label: `↑ residual, ${fits(state.pair[1], width - 90)}`, grid: true, ticks: 5 },
      marks: [
        Plot.ruleX([0], { stroke: "var(--muted)", strokeDasharray: "2,3" }), Plot.ruleY([0], { stroke: "var(--muted)", strokeDasharray: "2,3" }),
        Plot.dot(points, { x: "value", y: "other", r: points.length > 600 ? 1.8 : 3, fill: "var(--ood)", fillOpacity: points.length > 600 ? 0.5 : 0.65, className: "m-points" }),
        Plot.tip(points, Plot.pointer({ x: "value", y: "other", title: (d) => `${d.run}\nstep ${d.step}\n${signed(d.value)}, ${signed(d.other)}` })),
      ],
    });
    const p = rowOf(state.group);
    put("residuals", svg, `Residuals of ${state.pair[0]} against those of ${state.pair[1]}: ${points.length} points, r = ${signed(p && p.r)} ${p ? interval(p) : ""}.`);
    say("residuals-note", `${points.length} points of ${plural(new Set(points.map((d) => d.i)).size, "run")}; r = ${signed(p && p.r)}${p ? ` ${interval(p)}` : ""} is that of all runs of the group.`);
  }

  function drawFit(id, name) {
    const of = data.residuals && data.residuals[state.way];
    const inside = data.inside && data.inside[data.metric];
    if (!of || !of[name] || !inside || !data.curves) return put(id, null);
    const values = data.scores[data.metric][name];
    const points = seriesOf(of, name, ownRuns()).flatMap((d) => {
      const x = inside[d.i] && inside[d.i][d.k], y = values[d.i] && values[d.i][d.k];
      return known(x) && known(y) ? [{ ...d, x, y, fitted: y - d.value }] : [];
    });
    if (!points.length) return put(id, null);
    const width = roomOf(id, 330, 220);
    const curve = state.way === "pooled";
    const svg = plot({
      width, height: 0.85 * width, marginLeft: 48, x: { label: `in-domain ${data.metric.replace("_", " ")} →`, grid: true, ticks: 5 }, y: { label: `↑ ${fits(name, width - 30)}`, grid: true, ticks: 5 },
      marks: [
        Plot.dot(points, { x: "x", y: "y", r: points.length > 600 ? 1.6 : 2.6, fill: colour(name), fillOpacity: points.length > 600 ? 0.45 : 0.65, className: "m-points" }),
        Plot.line(d3.sort(points, (d) => d.x), { x: "x", y: "fitted", z: curve ? null : "run", stroke: "var(--in-domain)", strokeWidth: curve ? 2.4 : 1, className: "m-fit" }),
        Plot.tip(points, Plot.pointer({ x: "x", y: "y", title: (d) => `${d.run}\nstep ${d.step}: ${d.y.toFixed(3)}, expected ${d.fitted.toFixed(3)}` })),
      ],
    });
    put(id, svg, `${name} against in-domain performance with the fitted curve: ${points.length} points.`);
  }

  const logSteps = (steps) => { const s = steps.filter((x) => x > 0); return s.length > 2 && s[s.length >> 1] < s[s.length - 1] / 3; };
  function meanOf(points, runs) {
    const by = d3.group(points, (d) => d.step);
    return [...by].filter(([, own]) => own.length === runs).map(([step, own]) => ({ step, value: d3.mean(own, (d) => d.value),
      low: d3.quantile(own, 0.25, (d) => d.value), high: d3.quantile(own, 0.75, (d) => d.value), n: own.length })).sort((p, q) => p.step - q.step);
  }
  function stepPlot(width, height, steps, label, marks, domain) {
    const tickFormat = (step) => step < 10000 ? String(step) : d3.format(".3~s")(step);
    return plot({ width, height, marginLeft: 40, marginTop: 20, marginRight: 6 + widthOf(tickFormat(steps[steps.length - 1])) / 2,
      x: { type: logSteps(steps) ? "symlog" : "linear", label: "step →", ticks: logSteps(steps) ? thin(steps, width - 46, tickFormat) : 5, tickFormat },
      y: { label, grid: true, ticks: domain ? [0, 0.5, 1] : 4, domain }, marks });
  }
  function thin(steps, width, told) {  // ticks of a logarithmic axis: steps whose labels do not touch, the last one among them
    const s = [...new Set(steps)].sort((a, b) => a - b), at = d3.scaleSymlog().domain([s[0], s[s.length - 1]]).range([0, width]);
    const kept = [];
    for (const step of [s[s.length - 1], ...s])
      if (kept.every((other) => Math.abs(at(step) - at(other)) > 8 + (widthOf(told(step), 10) + widthOf(told(other), 10)) / 2)) kept.push(step);
    return kept;
  }

  function drawTrajectory(name, width, into) {
    const runs = ownRuns();
    const points = seriesOf(data.scores[state.metric], name, runs);
    const card = document.createElement("div");
    card.className = "card";
    const title = document.createElement("h4");
    title.textContent = name;
    card.append(title);
    into.append(card);
    if (!points.length) { card.append("no scores"); return; }
    const steps = [...new Set(points.map((d) => d.step))].sort((a, b) => a - b);
    const count = new Set(points.map((d) => d.i)).size;
    const mean = meanOf(points, count);
    const inside = meanOf(seriesOf(data.inside, state.metric, runs), runs.filter((i) => data.inside && data.inside[state.metric] && data.inside[state.metric][i]).length);
    const chance = state.metric === data.metric && data.chance ? data.chance[name] : null;
    const svg = stepPlot(width, 164, steps, `↑ ${state.metric.replace("_", " ")}`, [
      known(chance) ? Plot.ruleY([chance], { stroke: "var(--muted)", strokeDasharray: "2,3" }) : null,
      count > 4 ? Plot.areaY(mean, { x: "step", y1: "low", y2: "high", fill: colour(name), fillOpacity: 0.18 }) : null,
      Plot.line(d3.sort(points, (d) => d.step), { x: "step", y: "value", z: "i", stroke: colour(name), strokeOpacity: 0.3, strokeWidth: 0.8, className: "m-runs" }),
      Plot.line(inside, { x: "step", y: "value", stroke: "var(--in-domain)", strokeWidth: 1.4, strokeDasharray: "4,3", className: "m-in-domain" }),
      Plot.line(mean, { x: "step", y: "value", stroke: colour(name), strokeWidth: 2.6, className: "m-mean" }),
      Plot.tip(mean, Plot.pointerX({ x: "step", y: "value", title: (d) => `step ${d.step}\nmean ${d.value.toFixed(3)} of ${plural(d.n, "run")}\nmiddle half ${d.low.toFixed(3)} to ${d.high.toFixed(3)}` })),
    ]);
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", `${state.metric} on ${name} over the steps, ${plural(count, "run")}: from ${mean.length ? mean[0].value.toFixed(2) : "–"} to ${mean.length ? mean[mean.length - 1].value.toFixed(2) : "–"}.`);
    card.append(unnamed(svg));
    const answers = Object.keys(data.scores).filter((m) => m.startsWith("share:") && data.scores[m][name]);
    if (!answers.length || state.metric !== data.metric) return;
    const shares = answers.flatMap((m) => { const own = seriesOf(data.scores[m], name, runs);
      return meanOf(own, new Set(own.map((d) => d.i)).size).map((d) => ({ ...d, answer: m.slice(6) })); });
    const last = d3.sort(d3.groups(shares, (d) => d.answer).map(([, own]) => own[own.length - 1]).filter(Boolean), (d) => -d.value);
    const beside = (i) => i === 0 || last[i].value < 0.2 ? -6 : i === last.length - 1 ? 8 : 0;  // the upper one above its line, the lower one below, where there is room
    const lower = stepPlot(width, 100, steps, "↑ share", [
      Plot.line(shares, { x: "step", y: "value", z: "answer", stroke: "var(--share)", strokeWidth: 1.4, className: "m-shares" }),
      ...last.map((d, i) => Plot.text([d], { x: "step", y: "value", text: "answer", textAnchor: "end", dy: beside(i), fontSize: 10, stroke: "var(--paper)", fill: "currentColor" })),
    ], [0, 1]);
    lower.setAttribute("role", "img");
    lower.setAttribute("aria-label", `Share of each answer on ${name} over the steps, mean of the runs.`);
    card.append(unnamed(lower));
  }
  function drawTrajectories(id, sets) {
    const place = $(id);
    place.replaceChildren();
    place.hidden = oneStep || !data.scores;
    if (place.hidden) { if (oneStep && data.scores && id === "trajectories") drawFits(place); return; }
    const room = place.parentElement.clientWidth || 1000;
    const across = Math.max(1, Math.min(id === "trajectories" ? 4 : 2, Math.floor(room / 230)));
    for (const name of sets) drawTrajectory(name, Math.min(420, Math.floor(room / across) - 16), place);
  }
  function drawFits(place) {  // one checkpoint each: every set against in-domain
    place.hidden = false;
    for (const [i, name] of data.sets.entries()) {
      const cell = document.createElement("div");
      cell.id = `scatter-${i}`;
      cell.className = "card";
      const outer = document.createElement("div");
      outer.append(cell);
      place.append(outer);
      drawFit(cell.id, name);
    }
  }

  function drawSpecifications() {
    const own = d3.sort(specifications(), (s) => s.r).map((s, x) => ({ ...s, x }));
    if (own.length < 2) return put("specifications", null);
    const lines = choicesOf(own).flatMap((c) => [...new Set(own.map((s) => s[c]))].map((v) => ({ c, v, label: `${CHOICES[c]}: ${v.replaceAll("_", " ")}` })));
    const dots = lines.flatMap((l) => own.filter((s) => s[l.c] === l.v).map((s) => ({ x: s.x, y: l.label, s })));
    const width = roomOf("specifications", 760), { label, room: left } = labelled(lines.map((l) => l.label), 0.5 * width);
    const tint = (s) => s.default ? "var(--in-domain)" : known(s.p_holm) && s.p_holm < 0.05 ? "var(--ood)" : "var(--muted)";
    const words = (s) => `r = ${signed(s.r)} ${interval(s)}, ${pText(s.p_holm)}\n${Object.keys(CHOICES).map((c) => s[c]).join(", ")}${s.default ? "\nthe default" : ""}`;
    const top = plot({ width, height: 190, marginLeft: left, marginBottom: 10, x: { axis: null, domain: [-1, own.length] }, y: { label: "↑ r", grid: true, domain: [-1, 1] }, color: { type: "identity" },
      marks: [Plot.ruleY([0], { stroke: "var(--muted)" }),
        Plot.ruleX(own.filter((s) => known(s.low)), { x: "x", y1: "low", y2: "high", stroke: tint, strokeOpacity: 0.6 }),
        Plot.dot(own, { x: "x", y: "r", r: (s) => s.default ? 5 : 3, fill: tint, symbol: (s) => s.default ? "square" : "circle", className: "m-choices" }),
        Plot.tip(own, Plot.pointerX({ x: "x", y: "r", title: words }))], symbol: { type: "identity" }, r: { type: "identity" } });
    const below = plot({ width, height: 16 * lines.length + 14, marginLeft: left, marginTop: 4, marginBottom: 6, x: { axis: null, domain: [-1, own.length] }, y: { domain: lines.map((l) => l.label), label: null, tickFormat: label, tickSize: 0 },
      marks: [Plot.tickX(dots, { x: "x", y: "y", stroke: "currentColor", insetTop: 3, insetBottom: 3, className: "m-made-of" })] });
    const both = document.createElement("div");
    both.append(top, below);
    put("specifications", both, `Specification curve: r of ${state.pair.join(" and ")} under ${own.length} choices, from ${signed(own[0].r)} to ${signed(own[own.length - 1].r)}.`);
  }

  function drawWindows() {
    const own = (tables.windows || []).filter((w) => w.group === state.group && w.within === state.way && w.a === state.pair[0] && w.b === state.pair[1]
      && ["early", "middle", "late"].includes(w.window) && known(w.r));
    if (!own.length) return put("windows-view", null);
    put("windows-view", plot({ width: roomOf("windows-view", 340), height: 210, marginLeft: 44, x: { domain: ["early", "middle", "late"], label: "part of training" }, y: { domain: [-1, 1], grid: true, label: "↑ r" },
      marks: [Plot.ruleY([0], { stroke: "var(--muted)" }), Plot.ruleX(own.filter((w) => known(w.low)), { x: "window", y1: "low", y2: "high", stroke: "var(--ood)", strokeWidth: 2 }),
        Plot.dot(own, { x: "window", y: "r", fill: "var(--ood)", r: 5 }), Plot.tip(own, Plot.pointerX({ x: "window", y: "r", title: (w) => `${w.window}: r = ${signed(w.r)} ${interval(w)}` }))] }),
    `Correlation of ${state.pair.join(" and ")} early, in the middle and late in training.`);
  }
  function drawSizes() {
    const rows = shownGroups().map((g) => ({ size: data.groups[g].size, label: data.groups[g].label, p: rowOf(g) })).filter((d) => known(d.size) && d.p && known(d.p.r));
    if (new Set(rows.map((d) => d.size)).size < 3) return put("sizes", null);
    put("sizes", plot({ width: roomOf("sizes", 420), height: 230, marginLeft: 44, x: { type: "log", label: "parameters →", tickFormat: (n) => d3.format("~s")(n).replace("G", "B"), insetLeft: 12, insetRight: 12 }, y: { domain: [-1, 1], grid: true, label: "↑ r" },
      marks: [Plot.ruleY([0], { stroke: "var(--muted)" }), Plot.ruleX(rows.filter((d) => known(d.p.low)), { x: "size", y1: (d) => d.p.low, y2: (d) => d.p.high, stroke: "var(--ood)" }),
        Plot.dot(rows, { x: "size", y: (d) => d.p.r, fill: (d) => d.p.clear ? "var(--ood)" : "var(--paper)", stroke: "var(--ood)", r: 4.5 }),
        Plot.tip(rows, Plot.pointerX({ x: "size", y: (d) => d.p.r, title: (d) => told(d.p) }))], color: { type: "identity" } }),
    `Correlation of ${state.pair.join(" and ")} against the size of the model, ${rows.length} groups.`);
  }
  function drawShots() {
    const own = (tables.shots || []).filter((s) => s.a === state.pair[0] && s.b === state.pair[1] && s.within === state.way && known(s.r) && Number(s.shots) > 0)
      .map((s) => ({ ...s, at: Number(s.shots) }));
    const groups = new Set(shownGroups());
    const here = d3.sort(own.filter((s) => s.group === state.group), (s) => s.at);
    if (here.length < 2) return put("shots-view", null);
    const others = d3.sort(own.filter((s) => s.group !== state.group && groups.has(s.group)), (s) => s.at);
    const words = (s) => `${s.at} shots\nr = ${signed(s.r)} ${interval(s)}\n${plural(s.n_runs, "run")}, not tested`;
    put("shots-view", plot({ width: roomOf("shots-view", 420), height: 230, marginLeft: 44, x: { type: "log", label: "shots →", ticks: [...new Set(own.map((s) => s.at))], tickFormat: "d", insetLeft: 12, insetRight: 12 }, y: { domain: [-1, 1], grid: true, label: "↑ r" },
      marks: [Plot.ruleY([0], { stroke: "var(--muted)" }), Plot.line(others, { x: "at", y: "r", z: "group", stroke: "var(--muted)", strokeOpacity: 0.35, strokeWidth: 0.8, className: "m-others" }),
        Plot.ruleX(here.filter((s) => known(s.low)), { x: "at", y1: "low", y2: "high", stroke: "var(--ood)", strokeWidth: 2 }), Plot.line(here, { x: "at", y: "r", stroke: "var(--ood)", strokeWidth: 1.6 }),
        Plot.dot(here, { x: "at", y: "r", fill: "var(--ood)", r: 4.5, className: "m-shots" }), Plot.tip(here, Plot.pointerX({ x: "at", y: "r", title: words }))] }),
    `Correlation of ${state.pair.join(" and ")} at ${here.length} numbers of shots: from ${signed(here[0].r)} at ${here[0].at} to ${signed(here[here.length - 1].r)} at ${here[here.length - 1].at}.`);
    say("shots-note", `${plural(d3.max(here, (s) => s.n_runs), "run")} at each.`);
  }
  function drawAverages() {
    const rows = (tables.averages || []).filter((s) => s.within === state.way && known(s.r) && Number(s.shots) > 0 && s.size !== "all").map((s) => ({ ...s, at: Number(s.shots) }));
    if (!rows.length) return put("averages-view", null);
    const last = d3.groups(rows, (s) => s.size).map(([, own]) => d3.greatest(own, (s) => s.at));
    const [least, most] = d3.extent([0, ...rows.map((s) => s.r)]), at = (r) => 20 + 204 * (most - r) / (most - least || 1);
    const order = d3.sort(last, (s) => -s.r), places = order.map((s) => at(s.r));  // labels one below the other, each as near its line as there is room
    for (let i = 1; i < places.length; i += 1) places[i] = Math.max(places[i], places[i - 1] + 12);
    for (let i = places.length - 1, room = 220; i >= 0; i -= 1, room = places[i + 1] - 12) places[i] = Math.min(places[i], room);
    const shift = new Map(order.map((s, i) => [s, places[i] - at(s.r)]));
    put("averages-view", plot({ width: roomOf("averages-view", 560), height: 260, marginLeft: 44, marginTop: 20, marginRight: 14 + widest(last.map((s) => short(s.size, 10))), x: { type: "log", label: "shots →", ticks: [...new Set(rows.map((s) => s.at))], tickFormat: "d" }, y: { grid: true, label: "↑ mean r of the pairs", zero: true },
      color: { type: "log", scheme: "viridis", range: [0, 0.85] }, marks: [Plot.ruleY([0], { stroke: "var(--muted)" }), Plot.line(rows, { x: "at", y: "r", z: "size", stroke: (s) => known(s.parameters) ? s.parameters : 1, className: "m-averages" }),
        Plot.dot(rows, { x: "at", y: "r", fill: (s) => known(s.parameters) ? s.parameters : 1, r: 3 }), ...last.map((s) => Plot.text([s], { x: "at", y: "r", text: () => short(s.size, 10), dx: 8, dy: shift.get(s), textAnchor: "start", fill: "currentColor", className: "m-sizes" })),
        Plot.tip(rows, Plot.pointer({ x: "at", y: "r", title: (s) => `${s.size}, ${s.at} shots\nmean r ${signed(s.r)} of ${plural(s.pairs, "pair")}\n${plural(s.groups, "group")}, ${plural(s.runs, "run")}` }))] }),
    `Mean correlation of all pairs by shots, ${last.length} sizes.`);
  }
  function drawKinds() {
    const kinds = Object.assign(Object.create(null), data.kinds);
    const own = pairs.filter((p) => p.group === state.group && p.within === state.way && known(p.r))
      .map((p) => ({ p, r: p.r, common: (kinds[p.a] || []).filter((k) => (kinds[p.b] || []).includes(k)) })).map((d) => ({ ...d, same: d.common.length > 0 }));
    const counts = [true, false].map((same) => own.filter((d) => d.same === same).length);
    if (!counts[0] || !counts[1]) return put("kinds-view", null);
    const label = (d) => d.same ? `a kind in common (${plural(counts[0], "pair")})` : `no kind in common (${plural(counts[1], "pair")})`;
    const means = d3.groups(own, label).map(([y, rows]) => ({ y, r: d3.mean(rows, (d) => d.r) }));
    put("kinds-view", plot({ width: roomOf("kinds-view", 560), height: 150, marginLeft: 14 + widest(means.map((m) => m.y)), x: { domain: [-1, 1], grid: true, label: "r →" }, y: { label: null, domain: means.map((m) => m.y).sort(), tickSize: 0 }, color: { type: "identity" },
      marks: [Plot.ruleX([0], { stroke: "var(--muted)" }), Plot.dot(own, { x: "r", y: label, r: 4, fill: (d) => d.p.clear ? "var(--ood)" : "var(--paper)", stroke: "var(--ood)", fillOpacity: 0.8, className: "m-kinds" }),
        Plot.tickX(means, { x: "r", y: "y", stroke: "var(--in-domain)", strokeWidth: 3, insetTop: 8, insetBottom: 8 }), Plot.tip(own, Plot.pointer({ x: "r", y: label, title: (d) => `${told(d.p)}${d.same ? `\nboth: ${d.common.join(", ")}` : ""}` }))] }),
    `Correlations of pairs with a kind of shift in common (mean ${signed(means.find((m) => m.y.startsWith("a kind")).r)}, ${plural(counts[0], "pair")}) and of the others (mean ${signed(means.find((m) => m.y.startsWith("no kind")).r)}, ${plural(counts[1], "pair")}).`);
    const test = (tables.stability_kinds || [])[0];
    say("kinds-note", test && known(test.p_val) ? `Over all groups: Fisher’s z differs by ${signed(test.difference)}, ${pText(test.p_val)} (kinds permuted over test sets).` : "Not tested here (oodles report --full does).");
  }
  function drawTree() {
    const own = d3.sort((tables.redundancy_tree || []).filter((m) => m.group === state.group), (m) => m.merge);
    if (own.length < 2) return put("tree-view", null);
    const leaves = [], at = new Map(), links = [];
    const walk = (m) => { for (const side of ["left", "right"]) m[`${side}_merge`] ? walk(own[m[`${side}_merge`] - 1]) : leaves.push(m[side]); };
    walk(own[own.length - 1]);
    for (const m of own) {
      const ends = ["left", "right"].map((side) => m[`${side}_merge`] ? at.get(m[`${side}_merge`]) : { y: leaves.indexOf(m[side]), r: 1 });
      at.set(m.merge, { y: (ends[0].y + ends[1].y) / 2, r: m.r });
      links.push(...ends.map((e) => ({ x1: e.r, x2: m.r, y1: e.y, y2: e.y, m })), { x1: m.r, x2: m.r, y1: ends[0].y, y2: ends[1].y, m });
    }
    const least = Math.min(-0.2, d3.min(own, (m) => m.r) - 0.05);
    const width = roomOf("tree-view", 560), { label, room: right } = labelled(leaves, 0.45 * width);
    put("tree-view", plot({ width, height: 66 + 22 * leaves.length, marginLeft: 14, marginRight: right + 4, x: { domain: [least, 1], label: "mean r where they meet →", grid: true }, y: { axis: null, domain: [leaves.length - 0.5, -0.5] },
      marks: [Plot.ruleX([0.5], { stroke: "var(--muted)", strokeDasharray: "2,3" }), Plot.link(links, { x1: "x1", x2: "x2", y1: "y1", y2: "y2", stroke: "var(--ood)", strokeWidth: 1.8, className: "m-tree", title: (d) => `meet at r = ${signed(d.m.r)}` }),
        Plot.text(leaves.map((name, y) => ({ name, y })), { x: 1, y: "y", text: (d) => label(d.name), dx: 6, textAnchor: "start", fill: "currentColor", className: "m-leaves" })] }),
    `Tree of ${leaves.length} test sets by residual correlation: the most alike, ${own[0].left || "a cluster"} and ${own[0].right || "a cluster"}, meet at r = ${signed(own[0].r)}; all of them at ${signed(own[own.length - 1].r)}.`);
  }
  function drawStability() {
    const rows = (tables.stability || []).filter((s) => known(s.sd));
    if (!rows.length) return put("stability-view", null);
    const name = (s) => data.by.map((c) => s[c]).join(", ") || "all runs";
    const { label, room: left } = labelled(rows.map(name), 180);
    const kinds = { residuals: "sd of residuals", steps: "sd from step to step", correlations: "sd over runs of Fisher’s z" };
    const both = document.createElement("div");
    both.className = "row";
    for (const [what, title] of Object.entries(kinds)) {
      const own = d3.sort(rows.filter((s) => s.what === what), (s) => s.sd);
      if (!own.length) continue;
      both.append(plot({ width: 350, height: 56 + 18 * own.length, marginLeft: left, x: { label: `${title} →`, grid: true, zero: true }, y: { domain: own.map(name), label: null, tickFormat: label, tickSize: 0 },
        marks: [Plot.ruleY(own.filter((s) => known(s.low)), { y: name, x1: "low", x2: "high", stroke: "var(--ood)" }), Plot.dot(own, { y: name, x: "sd", fill: "var(--ood)" })] }));
    }
    put("stability-view", both, `How steady each group is: ${rows.length} sds with their intervals, smallest first.`);
  }
  function drawSkill() {
    const rows = (tables.skill || []).filter((s) => s.group === state.group && s.within === state.way && known(s.r_accuracy) && known(s.r_auc));
    if (!rows.length) return put("skill-view", null);
    const width = roomOf("skill-view", 420);
    put("skill-view", plot({ width, height: 0.9 * width, x: { domain: [-1, 1], grid: true, label: "r of accuracy →" }, y: { domain: [-1, 1], grid: true, label: "↑ r of AUC, which knows no preferred answer" },
      marks: [Plot.link([[-1, 1]], { x1: -1, y1: -1, x2: 1, y2: 1, stroke: "var(--grid)" }), Plot.ruleX([0]), Plot.ruleY([0]),
        Plot.dot(rows, { x: "r_accuracy", y: "r_auc", r: 5, fill: "var(--ood)", fillOpacity: (s) => s.told === "cannot be told" ? 0.25 : 0.9 }),
        Plot.tip(rows, Plot.pointer({ x: "r_accuracy", y: "r_auc", title: (s) => `${s.a} ~ ${s.b}\naccuracy ${signed(s.r_accuracy)}, AUC ${signed(s.r_auc)}, shares ${signed(s.r_share)}\n${s.told}` }))] }),
    `Correlation of accuracies against correlation of AUCs, ${rows.length} pairs: far from the line, answers and skill part.`);
  }
  function drawRedundancy() {
    const own = (tables.redundancy || []).filter((s) => s.group === state.group && known(s.error));
    if (!own.length) return put("redundancy-view", null);
    const width = roomOf("redundancy-view", 560), { label, room: left } = labelled(own.map((s) => s.test_set), 0.45 * width);
    put("redundancy-view", plot({ width, height: 66 + 20 * own.length, marginLeft: left, x: { label: "error of the other test sets →", zero: true, grid: true }, y: { domain: own.map((s) => s.test_set), label: null, tickFormat: label },
      marks: [Plot.ruleY(own, { y: "test_set", x1: "error", x2: "error_in_domain", stroke: "var(--grid)", strokeWidth: 5 }), Plot.dot(own, { y: "test_set", x: "error_in_domain", stroke: "var(--in-domain)", r: 4 }),
        Plot.dot(own, { y: "test_set", x: "error", fill: "var(--ood)", r: 4 }), Plot.tip(own, Plot.pointerY({ y: "test_set", x: "error", title: (s) => `${s.chosen} chosen\nerror ${s.error.toFixed(3)}, from in-domain alone ${known(s.error_in_domain) ? s.error_in_domain.toFixed(3) : "–"}` }))] }),
    "Error of the test sets that are not chosen, as sets are added from top to bottom, against that from in-domain alone.");
  }

  // Every view with what it depends on: it is drawn anew where that has changed, at once if it is on the screen, else as
  // soon as the screen has answered.
  const views = {
    overview: [() => [state.pair, state.way, state.group, state.only], drawOverview],
    heatmap: [() => [state.pair, state.way, state.group], () => data.groups.length > 1 ? drawTriangle("heatmap", 560) : put("heatmap", null)],
    forest: [() => [state.pair, state.way, state.only], drawForest],
    residuals: [() => [state.pair, state.way, state.group, state.shots, state.seed], drawResiduals],
    "fit-a": [() => [state.pair[0], state.way, state.group, state.shots, state.seed], () => drawFit("fit-a", state.pair[0])],
    "fit-b": [() => [state.pair[1], state.way, state.group, state.shots, state.seed], () => drawFit("fit-b", state.pair[1])],
    specifications: [() => [state.pair, state.group], drawSpecifications],
    "windows-view": [() => [state.pair, state.way, state.group], drawWindows],
    sizes: [() => [state.pair, state.way, state.only], drawSizes],
    "shots-view": [() => [state.pair, state.way, state.only, state.group], drawShots],
    "kinds-view": [() => [state.way, state.group], drawKinds],
    network: [() => [state.way, state.group, state.words], drawNetwork],
    "pair-trajectories": [() => [state.pair, state.group, state.metric, state.shots, state.seed], () => drawTrajectories("pair-trajectories", state.pair)],
    trajectories: [() => [state.way, state.group, state.metric, state.shots, state.seed], () => drawTrajectories("trajectories", data.sets)],
    "stability-view": [() => [], drawStability],
    "skill-view": [() => [state.way, state.group], drawSkill],
    "redundancy-view": [() => [state.group], drawRedundancy],
    "tree-view": [() => [state.group], drawTree],
    "averages-view": [() => [state.way], drawAverages],
  };
  const drawnFor = {};
  let pending = [], timer = 0;
  function drawView(id) {
    const [needs, drawing] = views[id];
    drawnFor[id] = JSON.stringify([needs(), innerWidth]);
    drawing();
    const figure = $(id) && $(id).closest("figure");
    if (figure) figure.hidden = ![...figure.querySelectorAll(".view")].some((v) => !v.hidden);
  }
  function near(id) {
    const box = ($(id).closest("figure") || $(id)).getBoundingClientRect();
    return box.height > 0 && box.bottom > -100 && box.top < innerHeight + 100;
  }
  function drawNext() {
    timer = 0;
    if (pending.length) { drawView(pending.shift()); timer = setTimeout(drawNext, 0); }
  }
  function flush() { clearTimeout(timer); timer = 0; while (pending.length) drawView(pending.shift()); }
  function draw() {
    const p = rowOf(state.group);
    const change = whatWouldChange(p);
    say("pair-title", `${state.pair[0]} ~ ${state.pair[1]}${data.groups.length > 1 ? `, ${data.groups[state.group].label}` : ""}`);
    sayNamed("pair-sentence", "", pairSentence(p));
    sayNamed("pair-answer", data.groups.length > 1 ? `${data.groups[state.group].label}: ` : "", `${pairSentence(p)} ${change[0] || ""}`);
    $("pair-change").replaceChildren(...change.map((text) => { const item = document.createElement("li"); item.textContent = text; return item; }));
    say("pair-caveats", p && p.caveats ? `Caveats: ${p.caveats.replaceAll("r_corrected", "the corrected r")}` : "");
    const stale = Object.keys(views).filter((id) => $(id) && drawnFor[id] !== JSON.stringify([views[id][0](), innerWidth]));
    const now = new Set(stale.filter((id) => near(id) || (id === "overview" && !drawnFor.overview)));
    for (const id of now) drawView(id);
    pending = stale.filter((id) => !now.has(id));
    if (!timer) timer = setTimeout(drawNext, 0);
    for (const control of document.querySelectorAll("#explore [data-control]")) setControl(control);
    writeAddress();
  }
  function setControl(control) {
    const name = control.dataset.control;
    if (name === "words") control.checked = state.words;
    else if (name === "pair") control.value = state.pair.join("\u0000");
    else if (name.startsWith("only:")) control.value = state.only[name.slice(5)] || "";
    else control.value = String(state[name]);
  }
  function change(more) {
    Object.assign(state, more);
    const groups = shownGroups();
    if (groups.length && !groups.includes(state.group)) state.group = groups[0];
    if (!rowOf(state.group)) {
      const other = pairs.find((p) => p.group === state.group && p.within === state.way) || pairs.find((p) => p.group === state.group);
      if (other && !more.pair) { state.pair = names.find(([a, b]) => a === other.a && b === other.b); }
    }
    draw();
  }

  // controls
  function control(name, label, choices, onchange) {
    if (choices.length < 2) return;
    const outer = document.createElement("label");
    const select = document.createElement("select");
    select.dataset.control = name;
    for (const [value, text] of choices) select.append(new Option(text, value));
    select.addEventListener("change", () => onchange(select.value));
    outer.append(label, select);
    $("controls").append(outer);
  }
  const levelsOf = (name) => [...new Set((data.runs || []).map((r) => r[name]).filter((v) => v !== undefined && v !== ""))].sort((a, b) => a - b || String(a).localeCompare(b));
  const nice = (text) => text[0].toUpperCase() + text.slice(1).replaceAll("_", " ");
  function makeControls() {
    control("pair", "Pair", names.map((pair) => [pair.join("\u0000"), pair.join(" ~ ")]), (v) => change({ pair: names.find((pair) => pair.join("\u0000") === v) }));
    control("way", "Fit", ways.map((w) => [w, data.ways[w]]), (v) => change({ way: v }));
    for (const name of data.by) {
      const levels = [...new Set(data.groups.map((g) => g.of[name]))];
      if (levels.length > 1) control(`only:${name}`, nice(name), [["", "all"], ...levels.map((v) => [v, v])], (v) => change({ only: { ...state.only, [name]: v } }));
    }
    control("group", "Group shown", data.groups.map((g, i) => [String(i), g.label]), (v) => change({ group: Number(v) }));
    for (const name of ["shots", "seed"]) {
      const levels = levelsOf(name);
      if (levels.length > 1 && levels.length < 60) control(name, `${nice(name)} of the points`, [["", "all"], ...levels.map((v) => [v, v])], (v) => change({ [name]: v }));
    }
    if (data.scores && !oneStep) control("metric", "Metric of the trajectories", Object.keys(data.scores).map((m) => [m, m.replaceAll("_", " ")]), (v) => change({ metric: v }));
    const words = $("words");
    words.dataset.control = "words";
    words.addEventListener("change", () => change({ words: words.checked }));
  }

  // tables: sort by a click on a heading, download as CSV; text that a spreadsheet would run gets an apostrophe in front
  const disarmed = (v) => typeof v === "string" && /^'*[=+\-@\t\r]/.test(v) && !(v.trim() !== "" && Number.isFinite(Number(v))) ? `'${v}` : v;
  function csv(name) {
    const columns = data.tables[name].map((c) => c.name);
    const cell = (v) => v === null || v === undefined ? "" : v === true ? "True" : v === false ? "False" : /[",\n\r]/.test(String(v)) ? `"${String(v).replaceAll('"', '""')}"` : String(v);
    return [columns.join(","), ...decode(data.tables[name]).map((row) => columns.map((c) => cell(disarmed(row[c]))).join(","))].join("\n") + "\n";
  }
  for (const button of document.querySelectorAll("button[data-csv]")) {
    if (!data.tables[button.dataset.csv]) continue;
    button.hidden = false;
    button.addEventListener("click", () => {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([csv(button.dataset.csv)], { type: "text/csv" }));
      link.download = `${button.dataset.csv}.csv`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
  }
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = table.tHead.rows[table.tHead.rows.length - 1].cells;
    const body = table.tBodies[0];
    [...heads].forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const numeric = head.classList.contains("number");
        const keyOf = (row) => row.cells[column].dataset.order ?? row.cells[column].textContent;
        const rows = [...body.rows].sort((a, b) => {
          const [x, y] = [keyOf(a), keyOf(b)];
          if (x === "" || y === "") return (x === "") - (y === "");
          return (numeric ? x - y : x.localeCompare(y)) * (up ? 1 : -1);
        });
        body.append(...rows);
      });
    });
  }
  addEventListener("beforeprint", () => { flush(); document.querySelectorAll("details").forEach((d) => { d.open = true; }); });

  if (!pairs.length) return;
  readAddress();
  if (!state.pair) { const first = clearest(); state.pair = names.find(([a, b]) => a === first.a && b === first.b); if (!location.hash.includes("group=")) state.group = Math.max(0, first.group); }
  document.documentElement.classList.add("js");
  for (const place of document.querySelectorAll(".needs-script")) place.hidden = false;
  makeControls();
  draw();
  let waiting = 0, width = innerWidth;
  addEventListener("resize", () => { if (innerWidth === width) return; width = innerWidth; clearTimeout(waiting); waiting = setTimeout(draw, 150); });
  addEventListener("hashchange", () => { if (location.hash.includes("=")) { readAddress(); draw(); } });
  window.oodles = { csv, state, change, data, flush };
})();
