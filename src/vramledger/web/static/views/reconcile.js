// A plan beside what was measured: where each figure lies, why, and what the measured terms leave for KV.
import { html, useMemo, useState } from "vl/lib/dom";
import { Chart, axis, safe, tooltip, whiskers } from "vl/lib/chart";
import { colour } from "vl/lib/colours";
import { Evidence, Facts, Select, Table } from "vl/lib/parts";
import { bytes, count, number, range, signed } from "vl/lib/units";
import { addWords, t } from "vl/lib/words";
import words from "vl/words/diagnose";

addWords(words);

const TONES = { inside: "good", outside: "bad", untold: "unsure" };
const SECTIONS = ["ledger", "pool", "allocator", "graphs", "host"];

/** document: what `vramledger reconcile --json` writes. */
export function View({ document: found }) {
  const of = (standing) => found.lines.filter((each) => each.standing === standing).length;
  return html`<div class="reconciliation">
    <section class=${`verdict ${TONES[found.standing]}`} aria-live="polite"><div class="word">${t(`standing.${found.standing}`)}</div>
      <p class="said">${t("reconcile.counts", { inside: of("inside"), outside: of("outside"), untold: of("untold") })}</p>
      <p>${[found.model, `${found.engine} ${found.engine_version}`, found.device].join(" · ")}</p></section>
    <${Settings} found=${found} />
    <${Waterfall} found=${found} />
    ${found.budget && html`<${Budget} budget=${found.budget} />`}
    ${SECTIONS.map((section) => html`<${Section} key=${section} name=${section} lines=${found.lines.filter((each) => each.section === section)} />`)}
    ${found.notes.length > 0 && html`<h2>${t("notes")}</h2><ul>${found.notes.map((each) => html`<li>${each}</li>`)}</ul>`}
    <details><summary>${t("reconcile.agreeing", { count: found.agreeing.length })}</summary><p>${found.agreeing.join(", ")}</p>
      ${found.unknown_settings.length > 0 && html`<p class="dim">${t("reconcile.unknown", { names: found.unknown_settings.join(", ") })}</p>`}
      ${found.sources.length > 0 && html`<p class="dim">${t("reconcile.sources", { names: found.sources.join(", ") })}</p>`}</details>
  </div>`;
}

function Settings({ found }) {
  if (found.differences.length === 0) return null;
  return html`<h2>${t("reconcile.settings")}</h2><p class="dim">${t("reconcile.settings.told")}</p><${Table} label=${t("reconcile.settings")}
    columns=${[t("reconcile.setting"), t("reconcile.planned"), t("reconcile.measured")]} rows=${found.differences.map((each) => [each.flag ?? each.name, String(each.planned), String(each.measured)])} />`;
}

const ranksOf = (line) => line.ranks.join(",");
const rankName = (ranks) => (ranks === "" ? t("reconcile.instance") : t("reconcile.rank", { ranks: ranks.replace(/,/g, ", ") }));

/** Lines of a ledger that both sides tell and that share no entry, so that their differences may be added. */
function addable(lines) {
  const taken = new Set();
  const found = lines.filter((each) => each.predicted && each.measured && each.unit === "bytes").sort((one, other) => one.entries.length - other.entries.length);
  const kept = found.filter((line) => {
    if (line.entries.length === 0 || line.entries.some((each) => taken.has(each))) return false;
    for (const each of line.entries) taken.add(each);
    return true;
  });
  return lines.filter((line) => kept.includes(line));
}

function Waterfall({ found }) {
  const ledger = found.lines.filter((each) => each.section === "ledger");
  const ranks = [...new Set(ledger.map(ranksOf))];
  const [chosen, choose] = useState(null);
  const rank = ranks.includes(chosen) ? chosen : ranks[0];
  const lines = useMemo(() => addable(ledger.filter((each) => ranksOf(each) === rank)), [found, rank]);
  if (lines.length === 0) return null;
  const total = lines.reduce((sum, each) => sum + each.difference, 0);
  const planned = lines.reduce((sum, each) => sum + each.predicted.expected, 0);
  let at = 0;
  const steps = lines.map((line) => {
    const from = at;
    at += line.difference;
    return { name: line.name, from, until: at, line, ...reach(line, from) };
  });
  const rows = [...steps, { name: t("reconcile.together"), from: 0, until: total, line: null }];
  const tone = (row) => (row.line === null ? "s3" : row.line.standing === "outside" ? "bad" : "good");
  const make = () => ({
    grid: { left: 8, right: 44, top: 8, bottom: 34, containLabel: true },
    tooltip: tooltip({ formatter: ({ dataIndex }) => tip(rows[dataIndex]) }),
    xAxis: axis({ type: "value", name: t("reconcile.axis"), nameLocation: "middle", nameGap: 26, axisLabel: { formatter: (value) => (value === 0 ? "0" : signed(value, (size) => bytes(size, 1))), hideOverlap: true, color: colour("dim") } }),
    yAxis: axis({ type: "category", inverse: true, data: rows.map((row) => row.name), axisTick: { show: false }, axisLabel: { width: document.documentElement.clientWidth < 640 ? 104 : 230, overflow: "break", color: colour("ink") } }),
    series: [
      {
        type: "custom", name: t("reconcile.difference"), encode: { x: [1, 2], y: 0 }, data: rows.map((row, place) => [place, row.from, row.until]),
        renderItem: (_params, api) => bar(api, colour(tone(rows[api.value(0)])), rows.length),
      },
      whiskers(steps.map((row, place) => [place, row.low, row.high]), { across: true }),
      { type: "line", data: [], markLine: { symbol: "none", silent: true, label: { show: false }, lineStyle: { color: colour("ink"), width: 1, type: "solid" }, data: [{ xAxis: 0 }] } },
    ],
  });
  return html`<h2>${t("reconcile.waterfall")}</h2>
    ${ranks.length > 1 && html`<div class="narrow"><${Select} label=${t("reconcile.ranks")} value=${rank} options=${ranks.map((each) => [each, rankName(each)])} onChange=${choose} /></div>`}
    <p>${t("reconcile.sum", { planned: bytes(planned), measured: bytes(planned + total), difference: signed(total) })}</p>
    <${Chart} make=${make} deps=${[lines]} height=${rows.length * 44 + 50} caption=${t("reconcile.caption")}
      says=${rows.map((row) => `${row.name} ${signed(row.until - row.from)}`).join("; ")} columns=${[t("reconcile.figure"), { name: "B", number: true }]}
      rows=${rows.map((row) => [row.name, (row.until - row.from).toLocaleString("en-US")])} />`;
}

/** Between which ends a bar is inside: the plan's range and the print's rounding on both sides. */
function reach({ predicted, measured }, from) {
  return { low: from + predicted.low - predicted.expected - (measured.high - measured.expected), high: from + predicted.high - predicted.expected + (measured.expected - measured.low) };
}

function bar(api, fill, rows) {
  const [from, y] = api.coord([api.value(1), api.value(0)]);
  const [until] = api.coord([api.value(2), api.value(0)]);
  const high = Math.min(22, api.size([0, 1])[1] * 0.6);
  const step = api.size([0, 1])[1];
  /** @type {any[]} */
  const children = [{ type: "rect", shape: { x: Math.min(from, until), y: y - high / 2, width: Math.max(Math.abs(until - from), 1.5), height: high }, style: { fill } }];
  if (api.value(0) < rows - 1) children.push({ type: "line", shape: { x1: until, y1: y + high / 2, x2: until, y2: y + step - high / 2 }, style: { stroke: colour("field"), lineDash: [3, 3] } });
  return { type: "group", children };
}

function tip(row) {
  const told = [`<b>${safe(row.name)}</b>`, safe(signed(row.until - row.from))];
  if (row.line) told.push(safe(t("reconcile.tip", { planned: range(row.line.predicted), measured: bytes(row.line.measured.expected) })));
  return told.join("<br>");
}

const SHOWN = { bytes, blocks: count, tokens: count, requests: number };

function Section({ name, lines }) {
  const several = new Set(lines.map(ranksOf)).size > 1;
  if (lines.length === 0) return null;
  return html`<h2>${t(`section.${name}`)}</h2>${name === "allocator" && html`<p class="dim">${t("reconcile.allocator")}</p>`}
    <${Table} label=${t(`section.${name}`)} columns=${[t("reconcile.figure"), { name: t("reconcile.planned"), number: true }, { name: t("reconcile.measured"), number: true }, { name: t("reconcile.difference"), number: true }, t("reconcile.standing")]}
      rows=${lines.map((line) => row(line, several))} /><${Why} lines=${lines} several=${several} />`;
}

function row(line, several) {
  const shown = SHOWN[line.unit];
  const difference = isRounding(line) ? t("reconcile.rounding") : line.difference === null ? "" : signed(line.difference, shown);
  return [
    html`${line.name}<div class="dim">${[several ? rankName(ranksOf(line)) : "", line.phase ?? "", line.owners.length > 0 && line.owners.length < 4 ? line.owners.join(", ") : ""].filter(Boolean).join(" · ")}</div>`,
    line.predicted ? html`${shown(line.predicted.expected)}${line.predicted.low < line.predicted.high && html`<div class="dim">${shown(line.predicted.low)} – ${shown(line.predicted.high)}</div>`}` : "",
    line.measured ? html`${shown(line.measured.expected)}${line.evidence && html`<div><${Evidence} evidence=${line.evidence} /></div>`}` : "",
    difference,
    html`<span class=${`standing ${TONES[line.standing]}`}>${t(`standing.${line.standing}`)}</span>`,
  ];
}

/** The reasons, once for lines that have the same. */
function Why({ lines, several }) {
  const groups = new Map();
  for (const line of lines.filter((each) => each.reasons.length > 0)) {
    const key = JSON.stringify(line.reasons);
    groups.set(key, [...(groups.get(key) ?? []), line]);
  }
  return [...groups.values()].map((group) => html`<div class="why"><h3>${t("reconcile.why", { names: group.map((line) => (several ? `${line.name} (${rankName(ranksOf(line))})` : line.name)).join(", ") })}</h3>
    <ol>${group[0].reasons.map((reason) => html`<li>${share(reason)}<b>${reason.cause}</b>: ${reason.text}${reason.is_tested && html` <span class="dim">${t("reconcile.tested")}</span>`}
      ${reason.evidence.length > 0 && html`<details><summary>${t("evidence")}</summary><ul>${reason.evidence.map((each) => html`<li>${each}</li>`)}</ul></details>`}</li>`)}</ol></div>`);
}

/** As the terminal says it: inside, and no further off than the print's last place. */
const isRounding = (line) => line.standing === "inside" && line.difference && line.measured && Math.abs(line.difference) <= line.measured.high - line.measured.low;
const share = (reason) => (reason.share === null ? "" : `${Math.round(100 * reason.share)} % `);

function Budget({ budget }) {
  const names = { budget_bytes: bytes, planned_bytes: bytes, pool_bytes: bytes, num_blocks: count, tokens: count, max_concurrency: number };
  return html`<h2>${t("budget.title")}</h2><${Facts} items=${Object.entries(names).map(([name, shown]) => {
      const { low, expected, high } = budget[name];
      return [t(`budget.${name}`), shown(expected), low < high && `${shown(low)} – ${shown(high)}`];
    })} />
    <p>${t("budget.measured", { names: budget.measured_terms.join(", ") || "–" })} ${budget.calculated_terms.length > 0 ? t("budget.calculated", { names: budget.calculated_terms.join(", ") }) : ""}</p><p class="dim">${budget.rule}</p>`;
}
