// Plans side by side: of engines, versions, or made before. Shows what it is given and asks nothing.
import { MemoryBars } from "vl/lib/bars";
import { OWNERS } from "vl/lib/colours";
import { html, useState } from "vl/lib/dom";
import { Select, Table } from "vl/lib/parts";
import { bytes, count, number, signed } from "vl/lib/units";
import { Waterfall } from "vl/lib/waterfall";
import { addWords, t } from "vl/lib/words";
import words from "vl/words/compare";

addWords(words);

const TONES = { holds: "good", fails: "bad", untold: "unsure", refused: "bad" };

/** document: what `vramledger compare --json` writes. `open`, where given, shows a column in tab Plan. */
export function View({ document: found, open }) {
  const columns = found.columns.map((column, place) => ({ ...column, place }));
  const held = columns.filter((column) => column.held);
  return html`<dl class="facts sides">${columns.map((column) => html`<${Fact} column=${column} />`)}</dl>
    ${held.length > 0 && html`<h2>${t("compare.bars")}</h2><${MemoryBars} rows=${held.map(barOf)} />
      <h2>${t("compare.table")}</h2><${Sides} columns=${held} />`}
    ${held.length > 1 && html`<${Steps} columns=${held} differences=${found.differences} />`}
    <h2>${t("compare.answers")}</h2>${columns.map((column) => html`<${Answer} column=${column} open=${open} />`)}`;
}

/** What is read first: how much each holds for KV, and whether that is enough. */
function Fact({ column }) {
  const pool = column.plan?.kv_pool;
  const enough = pool && t("compare.fact.requests", { requests: pool.max_concurrency.expected.toFixed(2), context: count(pool.context_len) });
  return html`<div class=${TONES[column.status]}><dt>${column.name}</dt><dd class="value">${pool ? count(pool.tokens.expected) : "—"}</dd>
    <dd class="small">${[pool && "tokens", enough, t(`compare.status.${column.status}`)].filter(Boolean).join(" · ")}</dd></div>`;
}

function barOf({ name, held, plan }) {
  const occupied = plan.ranks.flatMap((rank) => rank.peaks).find((peak) => peak.phase === held.phase && peak.bytes.expected === held.peak_bytes)?.occupied;
  return { name, byOwner: held.by_owner, held: held.peak_bytes, low: occupied?.low ?? held.peak_bytes, high: occupied?.high ?? held.peak_bytes, device: held.device_total_bytes, budget: plan.budget_bytes };
}

/** The table: a row for each figure, what differs from the first column marked with by how much. */
function Sides({ columns }) {
  const owners = OWNERS.filter((owner) => columns.some(({ held }) => held.by_owner[owner]));
  const figures = [
    figure("compare.model", ({ plan }) => plan.inputs.model, String, true),
    figure("compare.on", ({ plan }) => plan.inputs.device, String, true),
    figure("compare.split", ({ plan: { inputs } }) => `${inputs.tp} ${inputs.pp} ${inputs.dp} ${inputs.ep}`, String, true),
    figure("compare.verdict", ({ status }) => t(`compare.status.${status}`), String),
    figure("compare.tokens", ({ plan }) => plan.kv_pool?.tokens.expected ?? null, count),
    figure("compare.requests", ({ plan }) => plan.kv_pool?.max_concurrency.expected ?? null, (value) => value.toFixed(2)),
    figure("compare.context", ({ plan }) => plan.kv_pool?.context_len ?? null, count),
    figure("compare.format", ({ plan }) => plan.kv_pool?.dtype ?? null, String),
    figure("compare.per_token", ({ plan }) => plan.kv_pool?.bytes_per_token ?? null, count),
    ...owners.map((owner) => figure(owner, ({ held }) => held.by_owner[owner] ?? 0, bytes)),
    figure("compare.held", ({ held }) => held.peak_bytes, bytes),
    figure("compare.unused", ({ held }) => held.unused_bytes, bytes),
    figure("compare.budget", ({ plan }) => plan.budget_bytes, bytes),
    figure("compare.device", ({ held }) => held.device_total_bytes, bytes),
    figure("compare.phase", ({ held }) => held.phase, String),
    figure("compare.host", ({ plan }) => plan.host.reduce((sum, entry) => sum + entry.bytes.expected, 0), bytes),
  ];
  const rows = figures.flatMap(({ name, value, shown, onlyWhereOther }) => {
    const first = value(columns[0]);
    if (onlyWhereOther && columns.every((column) => value(column) === first)) return [];
    return [[t(name), ...columns.map((column, place) => cell(value(column), first, shown, place))]];
  });
  return html`<p class="dim">${t("compare.against", { name: columns[0].name })}</p>
    <${Table} label=${t("compare.table")} columns=${[t("compare.quantity"), ...columns.map(({ name }) => ({ name, number: true }))]} rows=${rows} />`;
}

const figure = (name, value, shown, onlyWhereOther = false) => ({ name, value, shown, onlyWhereOther });

function cell(value, first, shown, place) {
  if (value === null) return "—";
  const text = typeof value === "string" ? html`<span class="text">${place === 0 || value === first ? value : html`<mark>${value}</mark>`}</span>` : null;
  if (text || place === 0 || value === first) return text ?? shown(value);
  const by = typeof value === "number" && typeof first === "number" ? html`<br /><span class="dim">${signed(value - first, shown)}</span>` : null;
  return html`<mark>${shown(value)}</mark>${by}`;
}

/** From one chosen column to another, by owner, and why the pools differ in tokens. */
function Steps({ columns, differences }) {
  const [chosen, setChosen] = useState([0, 1]);
  const [a, b] = [columns[chosen[0]] ?? columns[0], columns[chosen[1]] ?? columns[1]];
  const options = columns.map(({ name }, place) => [String(place), name]);
  const steps = OWNERS.map((owner) => step(owner, a.held, b.held)).filter((each) => each.bytes).sort((one, other) => Math.abs(other.bytes) - Math.abs(one.bytes));
  const why = differences.find((each) => each.column === b.place && each.against === a.place);
  return html`<h2>${t("compare.waterfall")}</h2><div class="compare-pair">
      <${Select} label=${t("compare.from")} value=${String(columns.indexOf(a))} options=${options} onChange=${(place) => setChosen([Number(place), chosen[1]])} />
      <${Select} label=${t("compare.to")} value=${String(columns.indexOf(b))} options=${options} onChange=${(place) => setChosen([chosen[0], Number(place)])} /></div>
    ${steps.length === 0 ? html`<p>${t("compare.same")}</p>` : html`<${Waterfall} total=${t("compare.total")} steps=${steps} caption=${t("compare.pair", { a: a.name, b: b.name, before: bytes(a.held.peak_bytes), after: bytes(b.held.peak_bytes) })}
      says=${(told) => t("compare.waterfall.says", { a: a.name, b: b.name, before: bytes(a.held.peak_bytes), after: bytes(b.held.peak_bytes), steps: told })} />`}
    ${why && html`<p>${t("compare.tokens.why", { a: a.name, b: b.name, tokens: count(Math.abs(why.tokens)), sign: t(why.tokens < 0 ? "compare.signs.fewer" : "compare.signs.more") })}</p>
      <${Table} label=${t("compare.tokens")} columns=${[t("compare.step"), { name: t("compare.tokens"), number: true }, { name: "GiB", number: true }]}
        rows=${why.terms.map((term) => [term.name === "bytes per token" ? t("compare.layout") : term.name, signed(term.tokens, count), term.bytes ? signed(term.bytes) : ""])} />`}`;
}

function step(owner, before, after) {
  const none = { low: 0, expected: 0, high: 0 };
  const [one, other] = [before.ranges[owner] ?? none, after.ranges[owner] ?? none];
  return { name: owner, bytes: other.expected - one.expected, low: other.low - one.high, high: other.high - one.low };
}

/** The verdict of a column in its own words, what its engine would print. */
function Answer({ column, open }) {
  const { plan } = column;
  return html`<section class=${`verdict ${TONES[column.status]}`} aria-label=${column.name}><h3>${column.name}</h3>
    <div class="word">${t(`compare.status.${column.status}`)}${plan?.verdict.shortfall_bytes ? `: ${t("verdict.short", { bytes: bytes(plan.verdict.shortfall_bytes) })}` : ""}</div><p>${column.reason}</p>
    ${plan && plan.notes.length > 0 && html`<details><summary>${t("notes")} (${number(plan.notes.length)})</summary><ul>${plan.notes.map((each) => html`<li>${each}</li>`)}</ul></details>`}
    ${plan && plan.printed.length > 0 && html`<details><summary>${t("compare.printed")}</summary><pre tabindex="0">${plan.printed.join("\n")}</pre></details>`}
    ${plan && open && html`<button type="button" class="plain" onClick=${() => open(column)}>${t("open.plan")}</button>`}</section>`;
}
