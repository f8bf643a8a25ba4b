"use strict";
// Names come from anybody who compiles or publishes: text is only ever set as text, never as HTML.

const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

function fill(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

function el(name, attributes, ...children) {
  const [tag, ...classes] = name.split(".");
  const node = document.createElement(tag);
  if (classes.length) node.className = classes.join(" ");
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value);
  }
  return fill(node, children);
}

function svg(tag, attributes, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
  return fill(node, children);
}

// Numbers and times.

const plain = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const count = (n) => (n >= 100000 ? compact.format(n) : plain.format(n));
const percent = (part, digits = 2) => `${part > 0 ? "+" : part < 0 ? "−" : ""}${Math.abs(100 * part).toFixed(digits)} %`;
const share = (part) => `${plain.format(100 * part)} %`;
const pad = (n) => String(n).padStart(2, "0");

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (n >= 1024 && unit < 4) { n /= 1024; unit++; }
  return `${n.toFixed(unit && n < 100 ? 1 : 0)} ${units[unit]}`;
}

function duration(nanoseconds) {
  if (nanoseconds < 1e3) return `${Math.round(nanoseconds)} ns`;
  if (nanoseconds < 1e6) return `${(nanoseconds / 1e3).toFixed(nanoseconds < 1e5 ? 1 : 0)} µs`;
  if (nanoseconds < 1e9) return `${(nanoseconds / 1e6).toFixed(nanoseconds < 1e8 ? 1 : 0)} ms`;
  if (nanoseconds < 6e11) return `${(nanoseconds / 1e9).toFixed(1)} s`;
  return `${Math.round(nanoseconds / 6e10)} min`;
}

function when(seconds) {
  if (seconds === null || seconds === undefined) return "";
  const at = new Date(1000 * seconds), now = new Date();
  const time = `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
  const day = `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;
  return el("time", { datetime: at.toISOString(), title: at.toISOString() }, at.toDateString() === now.toDateString() ? time : `${day} ${time}`);
}

// Pieces.

const tag = (text, kind) => el(kind ? `span.tag.${kind}` : "span.tag", { title: text }, text);
const card = (title, ...children) => el("section.card", null, title ? el("h2", null, title) : null, children);
const number = (text, label, kind) => el("div.number", null, el(kind ? `b.${kind}` : "b", null, text), el("span", null, label));
const empty = (text) => el("p.empty", null, text);
const link = (text, ...path) => el("a", { href: `#/${path.map(encodeURIComponent).join("/")}` }, text);
const policyLink = (policy, version) => link(`${policy}@${version}`, "policies", policy);

// Columns: [head, kind, cell of a row]; the kind n is a number.
function table(columns, rows, onrow) {
  const head = el("tr", null, columns.map(([name, kind]) => el(kind ? `th.${kind}` : "th", { scope: "col" }, name)));
  const body = rows.map((row) => {
    const cells = columns.map(([, kind, cell]) => el(kind ? `td.${kind}` : "td", null, cell(row)));
    return onrow ? onrow(el("tr.opens", null, cells), row) : el("tr", null, cells);
  });
  const wide = columns.filter(([, kind]) => kind === "file").length;
  return el("div.wide", null, el(["table.fit", "table.one"][wide] || "table", null, el("thead", null, head), el("tbody", null, body)));
}

const pairs = (entries) =>
  el("dl.pairs", null, entries.filter(([, value]) => value !== null && value !== "").map(([name, value]) => [el("dt", null, name), el("dd", null, value)]));

// The next round number: 1, 2 or 5 times a power of ten.
function nice(most) {
  const power = 10 ** Math.floor(Math.log10(most || 1));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= (most || 1));
}

// Series over time: [{name, values}], stacked; times are seconds since 1970.
function chart(times, series, format, label) {
  const width = 400, height = 130, left = 54, bottom = 18, top = 6, names = series.map((each) => each.name);
  if (times.length < 2) return empty("The first seconds are being measured.");
  const sums = times.map((_, i) => series.reduce((sum, each) => sum + each.values[i], 0));
  const most = nice(Math.max(...sums)), first = times[0], span = times[times.length - 1] - first || 1;
  const x = (i) => left + ((times[i] - first) / span) * (width - left);
  const y = (value) => height - bottom - (value / most) * (height - bottom - top);
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${label}; now ${format(sums[sums.length - 1])}` });
  for (const part of Math.max(...sums) ? [0, 0.5, 1] : [0]) {
    drawing.append(svg("line", { class: "axis", x1: left, x2: width, y1: y(part * most), y2: y(part * most) }));
    drawing.append(svg("text", { x: left - 6, y: y(part * most) + 4, "text-anchor": "end" }, format(part * most)));
  }
  drawing.append(svg("text", { x: left, y: height - 4 }, span < 100 ? `${Math.round(span)} s ago` : `${Math.round(span / 60)} min ago`), svg("text", { x: width, y: height - 4, "text-anchor": "end" }, "now"));
  const under = times.map(() => 0);
  series.forEach((each, index) => {
    const over = each.values.map((value, i) => under[i] + value);
    const forth = over.map((value, i) => `${x(i).toFixed(1)},${y(value).toFixed(1)}`);
    const back = under.map((value, i) => `${x(i).toFixed(1)},${y(value).toFixed(1)}`).reverse();
    const area = svg("polygon", { points: [...forth, ...back].join(" "), "fill-opacity": 0.25 });
    const line = svg("polyline", { points: forth.join(" "), fill: "none", "stroke-width": 1.6 });
    area.style.fill = line.style.stroke = `var(--s${index % 6})`;
    drawing.append(area, line);
    over.forEach((value, i) => { under[i] = value; });
  });
  const key = names.length > 1 || names[0] ? el("div.key", null, names.map((name, index) => {
    const square = el("i");
    square.style.background = `var(--s${index % 6})`;
    return el("span", null, square, name);
  })) : null;
  return [drawing, key];
}

// Changes as fractions, each a line: [{name, points: [[x, y]]}]; 0 is always in sight.
function curves(series, label) {
  const width = 560, height = 170, left = 62, bottom = 20, top = 8;
  const xs = series.flatMap((each) => each.points.map(([x]) => x)), ys = series.flatMap((each) => each.points.map(([, y]) => y));
  if (xs.length < 2) return empty("No version is validated yet.");
  const most = Math.max(...xs, 1), high = Math.max(0, ...ys), low = Math.min(0, ...ys), span = high - low || 0.01;
  const x = (value) => left + (value / most) * (width - left - 8), y = (value) => top + ((high - value) / span) * (height - bottom - top);
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  for (const value of new Set([high, 0, low])) {
    drawing.append(svg("line", { class: "axis", x1: left, x2: width, y1: y(value), y2: y(value) }));
    drawing.append(svg("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, percent(value)));
  }
  drawing.append(svg("text", { x: left, y: height - 4 }, "0 compiles"), svg("text", { x: width, y: height - 4, "text-anchor": "end" }, count(most)));
  series.forEach((each, index) => {
    const line = svg("polyline", { points: each.points.map(([a, b]) => `${x(a).toFixed(1)},${y(b).toFixed(1)}`).join(" "), fill: "none", "stroke-width": 1.8 });
    line.style.stroke = `var(--s${index % 6})`;
    fill(drawing, [line, each.points.map(([a, b]) => { const dot = svg("circle", { cx: x(a), cy: y(b), r: 3 }); dot.style.fill = `var(--s${index % 6})`; return dot; })]);
  });
  return [drawing, el("div.key", null, series.map((each, index) => { const square = el("i"); square.style.background = `var(--s${index % 6})`; return el("span", null, square, each.name); }))];
}

// An interval of a change beside 0, at a scale of its own.
function interval(change) {
  const most = Math.max(1e-6, Math.abs(change.low), Math.abs(change.high), Math.abs(change.change));
  const x = (value) => 110 + (Math.max(-most, Math.min(most, value)) / most) * 100;
  const good = change.high < 0, bad = change.low > 0;
  const colour = good ? "var(--good)" : bad ? "var(--bad)" : "var(--soft)";
  const bar = svg("rect", { x: x(change.low), y: 6, width: Math.max(2, x(change.high) - x(change.low)), height: 6, rx: 3, "fill-opacity": 0.5 });
  const point = svg("circle", { cx: x(change.change), cy: 9, r: 3.5 });
  bar.style.fill = point.style.fill = colour;
  return svg("svg", { class: "interval", viewBox: "0 0 220 18" }, svg("line", { class: "zero", x1: 110, x2: 110, y1: 0, y2: 18 }), bar, point);
}

// Asking the server.

class Refused extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

let token = null;
try { token = sessionStorage.getItem("policybridge-token"); } catch { /* storage is switched off */ }

async function ask(path) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch(path, { headers, cache: "no-store" });
  const body = await answer.json();
  if (!answer.ok) throw new Refused(answer.status, body.error || answer.statusText);
  return body;
}

function askForToken(message) {
  if ($("token")) { $("refusal").textContent = message; return; }
  const input = el("input", { id: "token", type: "password", placeholder: "Token", autocomplete: "off", "aria-label": "Token" });
  const submit = (event) => {
    event.preventDefault();
    token = input.value.trim();
    try { sessionStorage.setItem("policybridge-token", token); } catch { /* storage is switched off */ }
    show();
  };
  $("main").replaceChildren(card("This server wants a token",
    el("p", { id: "refusal" }, message), el("p.soft", null, "One with the scope “read”. It stays in this tab until the tab is closed."),
    el("form", { onsubmit: submit }, input, el("button", null, "Show"))));
  input.focus();
  document.body.dataset.ready = "token";
}

// Views. Each gives what it needs asked, and draws what came.

let state = null;

const rolloutLine = (policy, rollout, shares, progress) => {
  const both = [tag(rollout.state, { running: "on", promoted: "good", withdrawn: "bad" }[rollout.state]), policyLink(policy, rollout.version)];
  if (rollout.state !== "running") return [both, ` ${rollout.alias} is ${rollout.state === "promoted" ? rollout.version : rollout.base}`, el("span.soft", null, rollout.reason ? ` — ${rollout.reason}` : "")];
  return [both, ` gets ${share(rollout.share)} of the files of ${rollout.alias}, ${rollout.base} the others`, shares ? null : el("span.warn", null, " (overtaken)"),
    progress ? el(/(^|; )[1-9]\d* files failed with/.test(progress) ? "span.bad" : "span.soft", null, ` — ${progress}`) : null];
};

const liveColumns = [
  ["Policy", "nowrap", (s) => policyLink(s.policy, s.version)],
  ["File", "file", (s) => s.file || el("span.soft", null, "—")],
  ["Now in", "file", (s) => s.context],
  ["Labels", "", (s) => labels(s.labels)],
  ["Session", "nowrap", (s) => (state.ledger ? link(s.id.slice(0, 12), "sessions", s.id) : el("code", null, s.id.slice(0, 12)))],
];

const labels = (all) => Object.entries(all).filter(([name]) => name !== "compilation").map(([name, value]) => tag(`${name}=${value.length > 60 ? value.slice(0, 60) + "…" : value}`));

// What went wrong with each version since the server's start, in red.
const troubleKinds = [["failures", "failed decisions"], ["failed", "failed compilations"], ["fallbacks", "decisions without the policy"]];
const sumOf = (troubles, kind) => Math.round(troubles.reduce((sum, t) => sum + t[kind], 0));
const troubleNumbers = (troubles) => troubleKinds.map(([kind, name]) => number(count(sumOf(troubles, kind)), name, sumOf(troubles, kind) ? "bad" : ""));
const troubleText = (policy, version) => troubleKinds
  .map(([kind, name]) => [sumOf(state.troubles.filter((t) => t.policy === policy && t.version === `${version}`), kind), name])
  .filter(([n]) => n).map(([n, name]) => `${count(n)} ${name}`).join(", ");

const overview = {
  ask: () => Promise.all([ask("page/state"), ask("page/history")]),
  draw([now, past]) {
    state = now;
    const samples = past.samples, last = samples[samples.length - 1] || {};
    const times = samples.map((s) => s.at);
    const versions = [...new Set(samples.flatMap((s) => Object.keys(s.decisions || {})))];
    const rate = (s, version) => (s.decisions || {})[version] || 0;
    const total = (s) => Object.values(s.decisions || {}).reduce((sum, n) => sum + n, 0);
    versions.sort((a, b) => samples.reduce((sum, s) => sum + rate(s, b) - rate(s, a), 0));
    const shown = versions.slice(0, 5).map((name) => ({ name, values: samples.map((s) => rate(s, name)) }));
    if (versions.length > 5) shown.push({ name: "others", values: samples.map((s) => versions.slice(5).reduce((sum, v) => sum + rate(s, v), 0)) });
    const stages = past.stages.map((name) => ({ name, values: samples.map((s) => (s.stages || {})[name] || 0) }));
    const mean = Object.values(last.stages || {}).reduce((sum, n) => sum + n, 0);
    const running = now.policies.filter((p) => p.rollout && p.rollout.state === "running");
    const broken = now.policies.filter((p) => p.error || p.versions.some((v) => v.error));
    const loaded = now.policies.reduce((sum, p) => sum + p.versions.filter((v) => v.loaded).length, 0);
    return [
      el("div.numbers", null,
        number(count(now.sessions), "live sessions"),
        number(count(total(last)), "decisions in the last second"),
        number(mean ? duration(mean) : "–", "mean latency in the server"),
        number(count(now.policies.length), now.policies.length === 1 ? "policy" : "policies"),
        number(count(loaded), "versions loaded"),
        number(count(running.length), running.length === 1 ? "roll-out" : "roll-outs"),
        troubleNumbers(now.troubles),
        now.workers.count > 1 ? number(`${now.workers.answering} of ${now.workers.count}`, "workers answer", now.workers.answering < now.workers.count ? "bad" : "") : null),
      broken.map((p) => el("section.card.error", null, el("h2", null, link(p.name, "policies", p.name)), el("p.soft", null, p.error || p.versions.find((v) => v.error).error))),
      el("div.grid", null,
        card("Decisions per second", chart(times, shown.length ? shown : [{ name: "", values: times.map(() => 0) }], count, "Decisions per second")),
        card("Mean latency by stage", chart(times, stages, duration, "Latency")),
        card("Live sessions", chart(times, [{ name: "", values: samples.map((s) => s.sessions) }], count, "Live sessions"))),
      running.length ? card("Roll-outs", running.map((p) => el("p", null, rolloutLine(p.name, p.rollout, p.shares, p.progress), " ", link("compare", "rollouts", p.name)))) : null,
      card(["Live sessions ", el("small", null, now.sessions > now.live.length ? `the newest ${now.live.length} of ${count(now.sessions)}` : "")],
        now.live.length ? table(liveColumns, now.live) : empty("No compiler asks at the moment.")),
    ];
  },
};

const aliasesOf = (policy, number) => {
  const names = Object.entries(policy.aliases).filter(([, named]) => named === number).map(([name]) => tag(name));
  if (policy.latest === number) names.unshift(tag("latest", "on"));
  if (policy.shares && policy.rollout.version === number) names.push(tag(`${policy.rollout.alias} ${share(policy.rollout.share)}`, "warn"));
  return names;
};

function policyCard(policy) {
  const columns = [
    ["Version", "n", (v) => v.version],
    ["Aliases", "", (v) => aliasesOf(policy, v.version)],
    ["Loaded", "", (v) => (v.loaded ? el("span.good", null, "loaded") : el("span.soft", null, "no"))],
    ["Sessions", "n", (v) => count(v.sessions)],
    ["Trouble", "", (v) => el("span.bad", null, troubleText(policy.name, v.version))],
    ["Digest", "", (v) => el("code", { title: v.digest }, v.digest.replace("sha256:", "").slice(0, 12))],
    ["", "", (v) => (v.error ? el("span.bad", null, v.error) : state.ledger ? el("a", { href: `#/sessions?policy=${encodeURIComponent(policy.name)}&version=${v.version}` }, "sessions") : "")],
  ];
  const more = policy.count - policy.versions.length;
  return el("section.card", null,
    el("h2", null, link(policy.name, "policies", policy.name), el("small", null, ` ${policy.backend} ${policy.description ? "— " + policy.description : ""}`)),
    policy.error ? el("p.bad", null, policy.error) : null,
    policy.rollout ? el("p", null, rolloutLine(policy.name, policy.rollout, policy.shares, policy.progress), " ", state.ledger ? link("compare", "rollouts", policy.name) : null) : null,
    policy.versions.length ? table(columns, policy.versions) : empty("It has no version yet."),
    more > 0 ? empty(`${count(more)} older versions`) : null);
}

const policies = {
  ask: () => ask("page/state"),
  draw(now, name) {
    state = now;
    const chosen = name ? now.policies.filter((p) => p.name === name) : now.policies;
    return [el("h1", null, name || "Policies"), chosen.length ? chosen.map(policyCard) : empty(name ? "There is no such policy." : "There is no policy yet.")];
  },
};

const stateTag = (s) => (s.state === "open" ? tag("open", "on") : s.state === "interrupted" ? tag("interrupted", "warn") : s.outcome && s.outcome.status ? tag(s.outcome.status, s.outcome.status === "ok" ? "good" : "bad") : tag("closed"));
const main = ["text", "cycles", "seconds"];
const outcomeText = (s) => {
  if (!s.outcome) return "";
  const all = Object.entries(s.outcome.values).filter(([name]) => !name.startsWith("object_"));
  all.sort(([a], [b]) => (main.includes(b) ? 1 : 0) - (main.includes(a) ? 1 : 0));
  return all.slice(0, 3).map(([name, value]) => `${name} ${plain.format(value)}`).join(" · ") + (all.length > 3 ? " …" : "");
};

const sessionColumns = [
  ["State", "", stateTag],
  ["Opened", "nowrap", (s) => when(s.opened)],
  ["Policy", "nowrap", (s) => policyLink(s.policy.name, s.policy.version)],
  ["File", "file", (s) => s.file || el("span.soft", null, "—")],
  ["Decisions", "n", (s) => [count(s.decisions), s.lost ? el("span.bad", null, ` −${count(s.lost)} lost`) : null]],
  ["Outcome", "file", outcomeText],
  ["Session", "nowrap", (s) => link(s.id.slice(0, 12), "sessions", s.id)],
];

const openOnClick = (row, s) => {
  row.addEventListener("click", (event) => { if (!event.target.closest("a")) location.hash = `#/sessions/${encodeURIComponent(s.id)}`; });
  return row;
};

const FILTERS = [["policy", "Policy"], ["version", "Version"], ["status", "Status of the outcome"], ["label", "Label: NAME=VALUE"], ["session", "Session’s id begins with"]];

function filterForm(given) {
  const inputs = FILTERS.map(([name, text]) => el("input", { name, placeholder: text, "aria-label": text, value: given.get(name) || "", autocomplete: "off" }));
  const submit = (event) => {
    event.preventDefault();
    const filled = inputs.filter((input) => input.value.trim()).map((input) => [input.name, input.value.trim()]);
    location.hash = `#/sessions?${new URLSearchParams(filled)}`;
  };
  return el("form", { onsubmit: submit }, inputs, el("button", null, "Filter"));
}

const sessions = {
  frame: (_, query) => [el("h1", null, "Sessions"), filterForm(query)],
  ask: (_, query) => ask(`page/sessions?${query}`),
  draw(found, _, query) {
    const next = () => {
      const further = new URLSearchParams(query);
      further.set("before", found[found.length - 1].number);
      location.hash = `#/sessions?${further}`;
    };
    return el("section.card", null,
      found.length ? table(sessionColumns, found, openOnClick) : empty("No session fits."),
      el("div.pages", null,
        query.get("before") ? el("button", { onclick: () => { const first = new URLSearchParams(query); first.delete("before"); location.hash = `#/sessions?${first}`; } }, "Newest") : null,
        found.length >= 100 ? el("button", { onclick: next }, "Older") : null));
  },
};

let opened = new Set();

const shownValue = (value) => (Array.isArray(value) ? value.join(", ") : String(value));

function observation(decision) {
  return el("div.features", null, Object.entries(decision.observation).map(([name, value]) => el("div", null, el("span", null, name), el("b.code", null, shownValue(value)))));
}

function decisionRow(row, decision) {
  const toggle = () => {
    if (opened.delete(decision.step)) row.nextSibling.remove();
    else { opened.add(decision.step); row.after(detail()); }
    row.setAttribute("aria-expanded", opened.has(decision.step));
  };
  const detail = () => el("tr", null, el("td", { colspan: 5 }, observation(decision)));
  row.tabIndex = 0;
  row.setAttribute("aria-expanded", opened.has(decision.step));
  row.addEventListener("click", toggle);
  row.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); toggle(); } });
  return opened.has(decision.step) ? [row, detail()] : row;
}

const advice = (values) => {
  const all = Object.values(values);
  return all.length === 1 ? shownValue(all[0]) : Object.entries(values).map(([name, value]) => `${name}=${shownValue(value)}`).join(" ");
};

const session = {
  ask: (id, query) => ask(`page/sessions/${encodeURIComponent(id)}?from=${encodeURIComponent(query.get("from") || 1)}`),
  draw({ session: s, decisions }, id, query) {
    const from = Number(query.get("from") || 1), last = decisions.length ? decisions[decisions.length - 1].step : 0;
    const go = (step) => () => { location.hash = `#/sessions/${encodeURIComponent(id)}?from=${step}`; };
    const explored = decisions.some((d) => d.log_probability !== null);
    const columns = [
      ["Step", "n", (d) => d.step],
      ["In", "file", (d) => d.context],
      ["Advice", "n", (d) => el("b", null, advice(d.advice))],
      [explored ? "Probability" : "", "n", (d) => (d.log_probability === null ? "" : Math.exp(d.log_probability).toFixed(3))],
      ["Latency", "n", (d) => duration(d.nanoseconds)],
    ];
    const values = s.outcome ? Object.entries(s.outcome.values).sort() : [];
    const extra = Object.entries(s.labels).filter(([name]) => name !== "compilation");
    return [
      el("h1", null, s.file || "Session", " ", el("small", null, s.id)),
      el("div.grid", null,
        card("Session", pairs([
          ["Policy", policyLink(s.policy.name, s.policy.version)],
          ["State", stateTag(s)],
          ["Opened", when(s.opened)],
          ["Took", s.closed ? duration(1e9 * (s.closed - s.opened)) : ""],
          ["Decisions", count(s.decisions)],
          ["Lost", s.lost ? el("span.bad", null, count(s.lost)) : ""],
          ["Explores", s.exploration ? Object.entries(s.exploration).map(([name, value]) => `${name} ${value}`).join(", ") : ""],
          ...Object.entries(s.options).map(([name, value]) => [`option ${name}`, value]),
          ...extra.map(([name, value]) => [`label ${name}`, value]),
        ])),
        card("Outcome", s.outcome ? pairs([["Status", s.outcome.status], ...values.map(([name, value]) => [name, plain.format(value)])]) : empty("Nobody has reported one."))),
      s.labels.compilation ? card("Compilation", el("p.code", null, s.labels.compilation)) : null,
      card(["Decisions ", el("small", null, decisions.length ? `${from} to ${last} of ${count(s.decisions)}; choose one to see its observation` : "")],
        decisions.length ? table(columns, decisions, decisionRow) : empty("There are none."),
        el("div.pages", null,
          el("button", { onclick: go(Math.max(1, from - 100)), disabled: from <= 1 }, "Before"),
          el("button", { onclick: go(last + 1), disabled: last >= s.decisions }, "After"))),
    ];
  },
};

const stepColumns = [
  ["When", "nowrap", (s) => when(s.at)],
  ["Policy", "nowrap", (s) => policyLink(s.policy, s.rollout.version)],
  ["Step", "", (s) => tag(s.what, { promoted: "good", withdrawn: "bad", "rolled back": "bad", begun: "on" }[s.what])],
  ["Share", "n", (s) => share(s.rollout.share)],
  ["Of", "nowrap", (s) => s.rollout.alias],
  ["Why", "file", (s) => s.rollout.reason],
];

function comparison(policy, found) {
  const failed = (c) => c.name === "failed";
  const value = (c, n) => (failed(c) ? share(n) : plain.format(n));
  const { base, version } = policy.rollout;
  const columns = [
    ["Outcome", "nowrap", (c) => c.name],
    ["Files", "n", (c) => count(c.files)],
    [`${base}`, "n", (c) => value(c, c.base)],
    [`${version}`, "n", (c) => value(c, c.version)],
    ["Change", "n", (c) => percent(c.change)],
    ["95 % interval", "n", (c) => `${percent(c.low)} to ${percent(c.high)}`],
    ["", "", (c) => interval(c)],
  ];
  const counts = [
    ["Version", "nowrap", (v) => policyLink(v.policy, v.version)],
    ["Sessions", "n", (v) => count(v.sessions)],
    ["Decisions", "n", (v) => count(v.decisions)],
    ["With outcome", "n", (v) => count(v.reported)],
    ["Failed", "n", (v) => [count(v.failed), v.reported ? el("span.soft", null, ` ${share(v.failed / v.reported)}`) : null]],
  ];
  return [
    card(["Outcomes ", el("small", null, `on ${count(found.files)} files that both versions have compiled; sums over files, the last session of each`)],
      found.changes.length ? table(columns, found.changes) : empty("Fewer than two files were compiled with both versions.")),
    card("Both versions, whole ledger", found.versions.length ? table(counts, found.versions) : empty("The ledger has no session of them.")),
    card("Steps", found.steps.length ? table(stepColumns, found.steps) : empty("The ledger has no step.")),
  ];
}

const rollouts = {
  async ask(name) {
    const none = (error) => { if (error instanceof Refused && error.status !== 401 && error.status !== 403) return null; throw error; };
    return Promise.all([ask("page/state"), name ? ask(`page/rollouts/${encodeURIComponent(name)}`).catch(none) : null]);
  },
  draw([now, found], name) {
    state = now;
    const all = now.policies.filter((p) => p.rollout && (!name || p.name === name));
    const cards = all.map((p) => el("section.card", null,
      el("h2", null, link(p.name, "rollouts", p.name)),
      el("p", null, rolloutLine(p.name, p.rollout, p.shares, p.progress)),
      bar(p.rollout.state === "running" ? p.rollout.share : p.rollout.state === "promoted" ? 1 : 0),
      pairs([
        ["Begun", when(p.rollout.begun)],
        ["Ended", when(p.rollout.ended)],
        ["Promoted if", p.rollout.promote_if.join(" and ")],
        ["Withdrawn if", p.rollout.withdraw_if.join(" or ")],
        ["Last compared", p.rollout.state === "running" ? p.rollout.reason : ""],
      ])));
    const policy = name && all[0];
    return [
      el("h1", null, name ? `Roll-out of ${name}` : "Roll-outs"),
      all.length ? cards : empty("No version was rolled out yet: policybridge policies rollout POLICY@VERSION --share 10%"),
      policy && found ? comparison(policy, found) : null,
      name || !all.length ? null : empty("Choose a policy to compare its versions."),
    ];
  },
};

function bar(part) {
  const filled = el("i");
  filled.style.width = `${100 * part}%`;
  return el("div.bar", { role: "img", "aria-label": share(part) }, filled);
}

const ledger = {
  ask: () => ask("page/ledger"),
  draw(found) {
    const t = found.totals;
    const columns = [
      ["Version", "nowrap", (v) => policyLink(v.policy, v.version)],
      ["Sessions", "n", (v) => el("a", { href: `#/sessions?policy=${encodeURIComponent(v.policy)}&version=${v.version}` }, count(v.sessions))],
      ["Decisions", "n", (v) => count(v.decisions)],
      ["With outcome", "n", (v) => count(v.reported)],
      ["Failed", "n", (v) => [count(v.failed), v.reported ? el("span.soft", null, ` ${share(v.failed / v.reported)}`) : null]],
    ];
    return [
      el("h1", null, "Ledger ", el("small", null, found.path)),
      el("div.numbers", null,
        number(count(t.sessions), "sessions"), number(count(t.decisions), "decisions"), number(count(t.reported), "with an outcome"),
        number(count(t.open), "open"), number(count(t.interrupted), "interrupted"),
        number(count(t.lost), "decisions lost", t.lost ? "bad" : ""), number(bytes(found.bytes), "on disk")),
      card("By version", found.versions.length ? table(columns, found.versions) : empty("Nothing is recorded yet.")),
      card("Steps of roll-outs", found.steps.length ? table(stepColumns, found.steps) : empty("No version was rolled out yet.")),
    ];
  },
};

function runCard({ name, changed, run, error }) {
  const head = el("h2", null, run ? run.title : name, " ", el("small", null, name, ", last heard of at ", when(changed)));
  if (error) return el("section.card.error", null, head, el("p", null, error));
  const measures = [...new Set(run.iterations.flatMap((each) => Object.keys(each.changes)))];
  const series = measures.map((measure) => ({ name: measure, points: run.iterations.filter((each) => measure in each.changes).map((each) => [each.compiles, each.changes[measure]]) }));
  const columns = [
    ["Iteration", "n", (each) => each.number],
    ["Version", "n", (each) => [each.version === run.best ? [tag("best", "good"), " "] : null, each.version]],
    ["Compiles", "n", (each) => count(each.compiles)],
    ["Time", "n", (each) => duration(1e9 * each.seconds)],
    ...measures.map((measure) => [measure, "n", (each) => (measure in each.changes ? percent(each.changes[measure]) : "")]),
  ];
  const projects = [
    ["Project", "file", (each) => each.project],
    ["Measure", "nowrap", (each) => each.measure],
    ["Before", "n", (each) => count(each.before)],
    [`By ${run.best}`, "n", (each) => count(each.after)],
    ["Change", "n", (each) => (each.before ? percent(each.after / each.before - 1) : "")],
  ];
  return el("section.card", null, head,
    el("p.soft", null, "On the validation projects, against the compiler’s own decisions."),
    el("div.curves", null, curves(series, `Changes by compiles: ${run.title}`)),
    table(columns, run.iterations),
    run.projects.length ? el("details", null, el("summary", null, count(run.projects.length), run.projects.length === 1 ? " sum by project" : " sums by project"), table(projects, run.projects)) : null,
    el("details", null, el("summary", null, "How it was started"), pairs(Object.entries(run.facts))));
}

const runs = {
  ask: () => Promise.all([ask("page/state"), ask("page/runs")]),
  draw([now, found]) {
    state = now;
    return [el("h1", null, "Training"), found.length ? found.map(runCard) : empty(now.runs ? "There is no run in the folders of --runs yet." : "Start the server with --runs DIR, the --output of policybridge train, or a folder of several.")];
  },
};

// Which view is shown, and how it is kept fresh.

const NAV = [["Overview", ""], ["Policies", "policies"], ["Sessions", "sessions"], ["Roll-outs", "rollouts"], ["Ledger", "ledger"], ["Training", "runs"]];

function route() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [place = "", name] = path.split("/").map((part) => { try { return decodeURIComponent(part); } catch { return part; } });
  const view = { "": overview, policies, sessions: name ? session : sessions, rollouts, ledger, runs }[place] || overview;
  return { place, name, view, query: new URLSearchParams(query || "") };
}

function drawNav(place) {
  $("nav").replaceChildren(...NAV.map(([text, name]) => el("a", { href: `#/${name}`, "aria-current": place === name ? "page" : null }, text)));
}

let turn = 0;

async function show() {
  const mine = ++turn, { place, name, view, query } = route();
  drawNav(place);
  opened = new Set();
  const body = el("div");
  if (view.frame) $("main").replaceChildren(...view.frame(name, query), body);
  let before = "";
  while (mine === turn) {
    const begun = performance.now();
    try {
      const found = await view.ask(name, query);
      if (mine !== turn) return;
      const text = JSON.stringify(found);
      if (text !== before) {
        before = text;
        body.replaceChildren();
        fill(body, [view.draw(found, name, query)]);
        if (body.parentNode !== $("main")) $("main").replaceChildren(body);
      }
      told("");
    } catch (error) {
      if (mine !== turn) return;
      if (error instanceof Refused && (error.status === 401 || error.status === 403)) { askForToken(error.message); turn++; return; }
      before = "";
      const gone = !(error instanceof Refused);
      told(gone ? "the server does not answer" : "");
      if (!gone) { body.replaceChildren(el("section.card.error", null, el("p", null, error.message))); if (body.parentNode !== $("main")) $("main").replaceChildren(body); }
      if (gone && !(error instanceof TypeError)) console.error(error);
    }
    if (!document.body.dataset.ready) performance.mark("drawn");
    document.body.dataset.ready = place || "overview";
    const took = performance.now() - begun;
    // What takes long to find is asked for less often; a page that nobody looks at asks for nothing.
    await new Promise((done) => setTimeout(done, Math.max(350, 5 * took)));
    while (document.hidden && mine === turn) await new Promise((done) => document.addEventListener("visibilitychange", done, { once: true }));
  }
}

function told(problem) {
  const text = problem || "live";
  if ($("status").textContent !== text) $("status").textContent = text;
  $("status").className = problem ? "lost" : "";
}

addEventListener("hashchange", show);
show();
