// What a model holds on: the front, the plans, the near misses. Shows what it is given and asks nothing.
import { axis, Chart, safe, tooltip } from "vl/lib/chart";
import { colour } from "vl/lib/colours";
import { html, useState } from "vl/lib/dom";
import { Heat } from "vl/lib/heat";
import { canOpen } from "vl/lib/open_plan";
import { Table } from "vl/lib/parts";
import { bytes, count, number } from "vl/lib/units";
import { addWords, t } from "vl/lib/words";
import compared from "vl/words/compare";
import words from "vl/words/fit";
import subject from "vl/words/subject";

addWords(compared);
addWords(subject);
addWords(words);

const AT_FIRST = 20;
const SHAPES = ["circle", "diamond", "triangle"];
const MOST_POINTS = 3000;
const FRONT_PX = 380;
const LABEL_PX = 14;

/** document: what `vramledger fit --json` writes. `open`, where given, shows a row in tab Plan. */
export function View({ document: found, open }) {
  const rows = [...found.holding.map((each) => each.plan), ...found.untold, ...found.near];
  const refused = found.refused.reduce((sum, each) => sum + each.count, 0);
  const facts = [["fit.holding", found.holding_count, found.holding_count ? "good" : "bad"], ["fit.near", found.near_count, ""], ["fit.untold", found.untold_count, found.untold_count ? "unsure" : ""], ["fit.refused", refused, ""], ["fit.planned", found.planned, ""]];
  return html`<dl class="facts sides">${facts.map(([name, many, tone]) => html`<div class=${tone}><dt>${t(name)}</dt><dd class="value">${count(many)}</dd></div>`)}</dl>
    ${(found.pruned > 0 || found.beyond_limits > 0) && html`<p class="dim">${t("fit.left", { pruned: count(found.pruned), beyond: count(found.beyond_limits) })}</p>`}
    ${found.holding.length > 0 ? html`<${Front} holding=${found.holding} open=${open} />` : html`<p>${t("fit.none")}</p>`}
    ${rows.length > 0 && html`<h2>${t("heat.title")}</h2><${Heat} rows=${rows} onChoose=${open} />`}
    <${Plans} title="fit.list" rows=${found.holding} count=${found.holding_count} open=${open} />
    <${Failing} title="fit.near.list" lead="fit.near.lead" rows=${found.near} count=${found.near_count} open=${open} />
    <${Failing} title="fit.untold.list" rows=${found.untold} count=${found.untold_count} open=${open} />
    ${found.refused.length > 0 && html`<h2>${t("fit.refused.list")}</h2><${Table} label=${t("fit.refused.list")} columns=${[t("fit.column.reason"), { name: t("fit.column.count"), number: true }]} rows=${found.refused.map((each) => [each.reason, count(each.count)])} />`}`;
}

const whole = (text) => html`<span class="whole">${text}</span>`;
const split = (row) => whole(`${row.tp} × ${row.pp}${row.ep ? " ep" : ""}`);
const formats = (row) => whole(`${row.weights} / ${row.kv}`);
const loss = (each) => Math.max(each.weights_loss, each.kv_loss);
const label = (row) => `${row.devices} × ${row.device}`;

/** What is spent against what is had; the front filled and named. */
function Front({ holding, open }) {
  const byPrice = holding.every(({ plan }) => plan.price !== null);
  const spent = ({ plan }) => (byPrice ? plan.price : plan.devices);
  const best = holding.filter((each) => each.is_best);
  const drawn = [...best, ...holding.filter((each) => !each.is_best)].slice(0, MOST_POINTS).filter((each) => each.plan.pool_tokens > 0);
  const losses = [0, 1, 2].filter((each) => drawn.some((one) => loss(one) === each));
  const axes = `${t(byPrice ? "fit.price.axis" : "fit.devices.axis")}, ${t("fit.tokens.axis")}`;
  const named = apart(drawn, spent);
  const series = (each, isBest) => ({
    name: t(`fit.loss.${each}`),
    type: "scatter",
    symbol: SHAPES[each],
    symbolSize: isBest ? 13 : 8,
    z: isBest ? 4 : 2,
    cursor: open ? "pointer" : "default",
    itemStyle: isBest ? { color: colour(`s${each + 1}`), borderColor: colour("ink"), borderWidth: 1 } : { color: "transparent", borderColor: colour(`s${each + 1}`), borderWidth: 1.25, opacity: 0.75 },
    data: drawn.flatMap((one, place) => (one.is_best === isBest && loss(one) === each ? [[byPrice ? spent(one) : String(spent(one)), one.plan.pool_tokens, place]] : [])),
    label: { show: isBest, position: "right", color: colour("ink"), fontSize: 11, formatter: ({ value }) => (named.has(value[2]) ? drawn[value[2]].plan.device : "") },
  });
  const sizes = [...new Set(drawn.map(spent))].sort((one, other) => one - other).map(String);
  const make = () => ({
    grid: { left: 8, right: byPrice ? 84 : 44, top: losses.length > 1 ? 62 : 30, bottom: 44, containLabel: true },
    legend: { show: losses.length > 1, top: 0, left: 0, itemWidth: 12, itemHeight: 12, textStyle: { color: colour("ink") }, data: losses.map((each) => t(`fit.loss.${each}`)) },
    tooltip: tooltip({ formatter: ({ value }) => mark(drawn[value[2]]) }),
    xAxis: axis({ ...(byPrice ? { type: "value", scale: true } : { type: "category", data: sizes }), name: t(byPrice ? "fit.price.axis" : "fit.devices.axis"), nameLocation: "middle", nameGap: 28, axisLabel: { hideOverlap: true } }),
    yAxis: axis({ type: "log", name: t("fit.tokens.axis"), nameTextStyle: { align: "left" }, axisLabel: { formatter: (value) => count(value), showMinLabel: false, showMaxLabel: false }, min: (ends) => ends.min / 1.5, max: (ends) => ends.max * 1.5 }),
    series: losses.flatMap((each) => [series(each, false), series(each, true)]),
  });
  return html`<h2>${t("fit.best")}</h2><${Chart} make=${make} deps=${[holding]} height=${FRONT_PX} caption=${t("fit.best.lead", { axes })}
    onClick=${open && (({ value }) => canOpen(drawn[value[2]].plan) && open(drawn[value[2]].plan))}
    says=${t("fit.best.says", { count: count(holding.length), front: best.slice(0, AT_FIRST).map(({ plan }) => `${label(plan)} ${plan.weights} / ${plan.kv} ${count(plan.pool_tokens ?? 0)}`).join(", ") })}
    columns=${[t("fit.column.plan"), t("fit.column.split"), t("fit.column.formats"), ...(byPrice ? [{ name: t("fit.column.price"), number: true }] : []), { name: t("fit.column.tokens"), number: true }]}
    rows=${best.map(({ plan }) => [label(plan), split(plan), formats(plan), ...(byPrice ? [number(plan.price)] : []), count(plan.pool_tokens ?? 0)])} />`;
}

/** Places of the marks on the front that are named: of those that are drawn too close above each other, the one with most tokens. */
function apart(drawn, spent) {
  const tokens = drawn.map((each) => each.plan.pool_tokens);
  const step = (Math.log(Math.max(...tokens) / Math.min(...tokens)) + Math.log(2.25)) * (LABEL_PX / (FRONT_PX - 106));
  const places = [...drawn.keys()].filter((place) => drawn[place].is_best).sort((one, other) => tokens[other] - tokens[one]);
  const found = new Set();
  for (const place of places) {
    const isFree = ![...found].some((other) => spent(drawn[other]) === spent(drawn[place]) && Math.log(tokens[other] / tokens[place]) < step);
    if (isFree) found.add(place);
  }
  return found;
}

function mark({ plan, is_best: isBest }) {
  return [`<b>${safe(label(plan))}</b>${isBest ? ` · ${t("fit.front.yes")}` : ""}`, `${safe(plan.engine)} · tp ${plan.tp} pp ${plan.pp}${plan.ep ? " ep" : ""} · ${safe(plan.weights)} / KV ${safe(plan.kv)}`,
    `${count(plan.pool_tokens)} tokens (${count(plan.pool_tokens_low)} … ${count(plan.pool_tokens_high)})`, `${plan.max_concurrency.toFixed(2)} ${t("fit.column.requests")}`, ...(plan.price === null ? [] : [`${t("fit.column.price")} ${number(plan.price)}`])].join("<br>");
}

/** A list of which the first are shown, then all. */
function Listed({ title, lead, rows, count: all, children }) {
  const [isAll, setAll] = useState(false);
  const shown = isAll ? rows : rows.slice(0, AT_FIRST);
  return html`<h2>${t(title)}</h2>${lead && html`<p class="dim">${t(lead)}</p>`}${children(shown)}
    ${shown.length < rows.length && html`<p><button type="button" class="plain" onClick=${() => setAll(true)}>${t("fit.all.show", { count: count(rows.length) })}</button></p>`}
    ${rows.length < all && html`<p class="dim">${t("fit.cut", { shown: count(rows.length), count: count(all) })}</p>`}`;
}

const engines = (rows) => new Set(rows.map((row) => row.engine)).size > 1;
const opened = (row, open) => (open ? [canOpen(row) && html`<button type="button" class="plain whole" onClick=${() => open(row)}>${t("open.plan")}</button>`] : []);

function Plans({ title, rows, count: all, open }) {
  if (!rows.length) return null;
  const plans = rows.map((each) => each.plan);
  const [isPriced, isMany] = [plans.some((row) => row.price !== null), engines(plans)];
  const columns = [t("fit.column.plan"), t("fit.column.front"), t("fit.column.split"), t("fit.column.formats"), ...(isMany ? [t("fit.column.engine")] : []), { name: t("fit.column.tokens"), number: true }, { name: t("fit.column.range"), number: true }, { name: t("fit.column.requests"), number: true },
    ...(isPriced ? [{ name: t("fit.column.price"), number: true }] : []), ...(open ? [html`<span class="hidden">${t("open.plan")}</span>`] : [])];
  return html`<${Listed} title=${title} rows=${rows} count=${all}>${(shown) => html`<${Table} label=${t(title)} columns=${columns} rows=${shown.map(({ plan, is_best: isBest }) => [
    whole(label(plan)), isBest ? html`<span aria-label=${t("fit.front.yes")} role="img">★</span>` : "", split(plan), formats(plan), ...(isMany ? [plan.engine] : []),
    plan.pool_tokens === null ? "—" : count(plan.pool_tokens), plan.pool_tokens === null ? "" : `${count(plan.pool_tokens_low)} … ${count(plan.pool_tokens_high)}`, plan.max_concurrency === null ? "—" : plan.max_concurrency.toFixed(2),
    ...(isPriced ? [plan.price === null ? "—" : number(plan.price)] : []), ...opened(plan, open)])} />`}<//>`;
}

function Failing({ title, lead, rows, count: all, open }) {
  if (!rows.length) return null;
  const columns = [t("fit.column.plan"), t("fit.column.split"), t("fit.column.formats"), { name: t("fit.column.short"), number: true }, t("fit.column.owner"), t("fit.column.reason"), ...(open ? [html`<span class="hidden">${t("open.plan")}</span>`] : [])];
  return html`<${Listed} title=${title} lead=${lead} rows=${rows} count=${all}>${(shown) => html`<${Table} label=${t(title)} columns=${columns}
    rows=${shown.map((row) => [whole(label(row)), split(row), formats(row), row.shortfall_bytes ? bytes(row.shortfall_bytes) : "", row.owner ?? "", row.reason, ...opened(row, open)])} />`}<//>`;
}
