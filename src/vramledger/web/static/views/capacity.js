// The largest load that is served as asked: goodput and latencies against the rate, what binds, room for bursts and restarts.
import { html } from "vl/lib/dom";
import { Chart, axis, safe, tooltip } from "vl/lib/chart";
import { colour, mixed } from "vl/lib/colours";
import { Facts, Table } from "vl/lib/parts";
import { count, number, seconds } from "vl/lib/units";
import { t } from "vl/lib/words";
import { Conditions, Headline, Notes, ms, perSecond, share } from "vl/lib/load";
import { Against, Goodput, PoolAgainst } from "vl/lib/rate_charts";

/** document: what `vramledger capacity --json` writes. */
export function View({ document: found }) {
  const { aims } = found.conditions;
  return html`<${Headline} word=${t(found.load ? "load.found" : "load.none")} tone=${found.load ? "good" : "bad"} said=${found.summary}><${Notes} notes=${found.notes} /><//>
    <${Figures} found=${found} /><h2>${t("load.goodput.chart")}</h2><${Goodput} found=${found} />
    <div class="pictures"><${Against} found=${found} name="TTFT" field="ttft_ms" aim=${aims.ttft_ms} /><${Against} found=${found} name="TPOT" field="tpot_ms" aim=${aims.tpot_ms} />
      <${Against} found=${found} name="Latency" field="latency_ms" aim=${aims.latency_ms} /><${PoolAgainst} found=${found} /></div>
    <${Reliefs} found=${found} /><${Bursts} found=${found} /><${Restarts} rows=${found.restarts} /><${Sensitivity} rows=${found.sensitivity} />
    <${Conditions} conditions=${found.conditions} notes=${[found.method]} />`;
}

function Figures({ found }) {
  const isOpen = found.load > 0 && found.loads.every((each) => each.goodput.expected >= found.conditions.aims.goodput);
  const near = found.loads.find((each) => each.load === found.load);
  const pool = found.pool ?? { capacity_tokens: found.conditions.pool_tokens };
  return html`<${Facts} label=${t("load.capacity")} items=${[
    [t("load.capacity"), perSecond(found.requests_per_s), found.load ? (isOpen ? t("load.atleast") : t("load.interval", { share: share(found.confidence), low: number(found.low_requests_per_s), high: number(found.high_requests_per_s) })) : null, found.load ? "good" : "bad"],
    [t("load.binds"), isOpen ? "–" : found.binds.join(", ") || t("load.binds.none"), isOpen ? t("load.beyond.none") : t("load.binds.said")],
    near && [t("load.goodput"), share(near.goodput.expected), t("load.own", { x: number(found.load) })],
    near?.ttft_ms && ["TTFT p99", ms(near.ttft_ms.p99), `p50 ${ms(near.ttft_ms.p50)}`],
    near?.tpot_ms && ["TPOT p99", ms(near.tpot_ms.p99), `p50 ${ms(near.tpot_ms.p50)}`],
    found.active_tokens.count > 0 && [t("load.active"), count(found.active_tokens.p95), t("load.active.said", { p50: count(found.active_tokens.p50), max: count(found.active_tokens.max), all: count(pool.capacity_tokens) })],
    found.load > 0 && [t("load.operating"), perSecond(found.operating_requests_per_s), t("load.operating.said")],
    [t("load.runs"), count(found.runs), t("load.runs.said", { requests: count(found.requests), replications: found.replications })],
  ]} />`;
}

/** Bars that lie, one a row: `rows` [name, value in percent, tone]. */
function Bars({ rows, says, columns, table, unit = "%", widest = 150 }) {
  // On a phone the names take a third of the width.
  const left = Math.min(widest, Math.round(document.documentElement.clientWidth * 0.34));
  const drawn = [...rows].reverse();
  const make = () => ({
    grid: { left, right: 56, top: 8, bottom: 30 },
    tooltip: tooltip({ trigger: "axis", axisPointer: { type: "shadow" }, formatter: (points) => `<b>${safe(points[0].name)}</b><div>${safe(`${number(points[0].value)}${unit}`)}</div>` }),
    xAxis: axis({ type: "value", axisLabel: { formatter: `{value}${unit}`, hideOverlap: true } }),
    yAxis: axis({ type: "category", data: drawn.map((each) => each[0]), axisTick: { show: false }, axisLabel: { width: left - 12, overflow: "truncate", interval: 0 } }),
    series: [{ type: "bar", barMaxWidth: 18, label: { show: true, position: "right", color: colour("ink"), formatter: ({ value }) => `${number(+value.toFixed(1))}${unit}` }, data: drawn.map((each) => ({ value: each[1], itemStyle: { color: colour(each[2]) } })) }],
  });
  return html`<${Chart} make=${make} deps=${[rows]} says=${says} height=${50 + rows.length * 28} columns=${columns} rows=${table} />`;
}

function Reliefs({ found }) {
  if (!found.reliefs.length) return null;
  const rows = [...found.reliefs].sort((a, b) => b.recovered - a.recovered);
  const says = t("load.reliefs.says", { list: rows.map((each) => `${each.change} ${share(each.goodput)}`).join(", ") });
  return html`<section aria-label=${t("load.reliefs")}><h2>${t("load.reliefs")}</h2><p>${says}</p>
    <${Bars} says=${says} rows=${rows.map((each) => [each.change, each.recovered * 100, found.binds.includes(each.resource) ? "s2" : "s1"])}
      columns=${[t("load.resource"), t("load.change"), { name: t("load.goodput"), number: true }, { name: t("load.recovered"), number: true }]} table=${rows.map((each) => [each.resource, each.change, share(each.goodput), share(each.recovered)])} /></section>`;
}

/** Goodput within bursts: how many times the load, for how long. */
function Bursts({ found }) {
  if (!found.bursts.length) return null;
  const factors = [...new Set(found.bursts.map((each) => each.factor))].sort((a, b) => a - b);
  const lengths = [...new Set(found.bursts.map((each) => each.lasts_s))].sort((a, b) => a - b);
  const cell = (factor, lasts) => found.bursts.find((each) => each.factor === factor && each.lasts_s === lasts);
  const aim = found.conditions.aims.goodput;
  const kept = lengths.filter((lasts) => (cell(2, lasts)?.goodput ?? 0) >= aim);
  const says = t("load.bursts.says", { rate: perSecond(found.operating_requests_per_s), aim: share(aim), longest: kept.length ? seconds(kept[kept.length - 1]) : t("load.burst.none") });
  const cells = factors.flatMap((factor, y) => lengths.map((lasts, x) => ({ x, y, found: cell(factor, lasts) })).filter((each) => each.found));
  const make = () => ({
    grid: { left: 60, right: 16, top: 10, bottom: 48 },
    tooltip: tooltip({ formatter: ({ value }) => `<b>${safe(`${factors[value[1]]}× · ${seconds(lengths[value[0]])}`)}</b><div>${safe(`${t("load.goodput")} ${share(value[2])}`)}</div>` }),
    xAxis: axis({ type: "category", data: lengths.map(seconds), name: t("load.burst.lasts"), nameLocation: "middle", nameGap: 28, axisLabel: { interval: 0, hideOverlap: true } }),
    yAxis: axis({ type: "category", data: factors.map((each) => `${each}×`) }),
    visualMap: { show: false, min: 0, max: 1, dimension: 2, inRange: { color: [colour("paper"), mixed(colour("paper"), colour("s1"), 0.45)] } },
    series: [{ type: "heatmap", itemStyle: { borderColor: colour("edge"), borderWidth: 1 }, label: { show: true, color: colour("ink"), formatter: ({ value }) => `${value[2] >= aim ? "✓ " : ""}${Math.floor(value[2] * 100)}%` }, data: cells.map((each) => [each.x, each.y, each.found.goodput]) }],
  });
  return html`<section aria-label=${t("load.bursts")}><h2>${t("load.bursts")}</h2><p>${says}</p>
    <${Chart} make=${make} deps=${[found]} says=${says} height=${70 + factors.length * 34} columns=${[t("load.burst.factor"), t("load.burst.lasts"), { name: t("load.requests", { n: "" }).trim(), number: true }, { name: t("load.goodput"), number: true }]}
      rows=${cells.map(({ found: each }) => [`${each.factor}×`, seconds(each.lasts_s), count(each.requests), share(each.goodput)])} /></section>`;
}

function Restarts({ rows }) {
  if (!rows.length) return null;
  const columns = [t("load.down"), ...[t("load.herd"), t("load.herd.goodput"), t("load.calm")].map((name) => ({ name, number: true }))];
  return html`<section aria-label=${t("load.restarts")}><h2>${t("load.restarts")}</h2><${Table} label=${t("load.restarts")} columns=${columns}
    rows=${rows.map((each) => [seconds(each.down_s), count(each.herd_requests), share(each.herd_goodput), each.calm_s === null ? t("load.never") : seconds(each.calm_s)])} /></section>`;
}

function Sensitivity({ rows }) {
  const known = rows.filter((each) => each.relative !== null);
  if (!known.length) return null;
  const first = known[0];
  const signed = (each) => `${each.is_least ? `${t("load.least")} ` : ""}${each.relative >= 0 ? "+" : ""}${number(+(each.relative * 100).toFixed(1))}%`;
  const says = t("load.sensitivity.says", { factor: first.factor, change: first.change, relative: signed(first) });
  const columns = [t("load.factor"), t("load.change"), { name: t("load.capacity"), number: true }, { name: t("load.relative"), number: true }];
  const table = rows.map((each) => [each.factor, each.change, each.requests_per_s === null ? "–" : perSecond(each.requests_per_s), each.relative === null ? t("load.refused", { why: each.refusal ?? "" }) : signed(each)]);
  return html`<section aria-label=${t("load.sensitivity")}><h2>${t("load.sensitivity")}</h2><p>${says}</p>
    <${Bars} says=${says} widest=${210} rows=${known.map((each) => [`${each.factor} ${each.change}`, each.relative * 100, each.relative < 0 ? "s2" : "s1"])} columns=${columns} table=${table} /></section>`;
}
