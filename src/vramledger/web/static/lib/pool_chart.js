// A simulated pool over time: blocks used, cached and free, and below it the requests that run and wait.
import { html, useState } from "vl/lib/dom";
import { Chart, axis, safe, tooltip } from "vl/lib/chart";
import { colour } from "vl/lib/colours";
import { Select } from "vl/lib/parts";
import { count, number, seconds } from "vl/lib/units";
import { t } from "vl/lib/words";
import { thinned } from "vl/lib/load";

const MOST_ROWS = 120;

/** `samples`, `pool` and `counters` of a simulation's document. */
export function Pool({ samples, pool, counters }) {
  const replicas = [...new Set(samples.replica)].sort((a, b) => a - b);
  const [chosen, setChosen] = useState(replicas[0] ?? 0);
  const replica = replicas.includes(chosen) ? chosen : replicas[0];
  const found = rowsOf(samples, replica);
  if (!found.length) return null;
  const says = t("load.overtime.says", {
    usable: count(pool.usable_blocks), p50: count(pool.used_blocks.p50), p95: count(pool.used_blocks.p95), max: count(pool.used_blocks.max), running: count(pool.running.max), waiting: count(pool.waiting.max),
  });
  const shown = thinned(found, MOST_ROWS);
  return html`<section aria-label=${t("load.overtime")}><h2>${t("load.overtime")}</h2>
    ${replicas.length > 1 && html`<div class="narrow"><${Select} label=${t("load.replica")} value=${String(replica)} options=${replicas.map((each) => [String(each), `${each}: ${count(counters[each]?.preemptions ?? 0)} ${t("load.preemptions").toLowerCase()}`])} onChange=${(value) => setChosen(Number(value))} /></div>`}
    <${Chart} make=${() => option(found, pool)} deps=${[samples, replica]} says=${says} caption=${t("load.overtime.caption")} height=${430}
      columns=${[t("load.time"), ...["load.block.used", "load.block.cached", "load.block.free", "load.running", "load.waiting"].map((key) => ({ name: t(key), number: true }))]}
      rows=${shown.map((row) => [number(row[0]), ...row.slice(1).map(count)])} />
    ${shown.length < found.length && html`<p class="dim">${t("load.thinned", { n: Math.round(found.length / shown.length), all: count(found.length) })}</p>`}</section>`;
}

/** [s, used, cached, free, running, waiting] at each instant of one replica. */
function rowsOf(samples, replica) {
  const rows = [];
  samples.at_s.forEach((at, place) => {
    if (samples.replica[place] !== replica) return;
    rows.push([at, samples.used_blocks[place], samples.cached_blocks[place], samples.free_blocks[place], samples.running[place], samples.waiting[place]]);
  });
  return rows;
}

function option(rows, pool) {
  const end = rows[rows.length - 1][0];
  const area = (name, place, paint, opacity) => ({
    type: "line", name, stack: "blocks", symbol: "none", xAxisIndex: 0, yAxisIndex: 0, lineStyle: { width: place === 1 ? 1.5 : 0.5, color: paint }, itemStyle: { color: paint },
    areaStyle: { color: paint, opacity }, data: rows.map((row) => [row[0], row[place]]),
    ...(place === 1 ? { markLine: marks(pool) } : {}),
  });
  const line = (name, place, paint, type) => ({
    type: "line", name, symbol: "none", step: "end", xAxisIndex: 1, yAxisIndex: 1, lineStyle: { width: 1.5, color: paint, type }, itemStyle: { color: paint }, data: rows.map((row) => [row[0], row[place]]),
  });
  const time = (more) => axis({ type: "value", min: 0, max: end, axisLabel: { formatter: (value) => number(+value.toPrecision(6)), hideOverlap: true, showMaxLabel: false }, ...more });
  return {
    legend: { top: 0, type: "scroll", textStyle: { color: colour("ink") }, pageTextStyle: { color: colour("dim") }, itemWidth: 18 },
    axisPointer: { link: [{ xAxisIndex: "all" }] },
    tooltip: tooltip({ trigger: "axis", formatter: (points) => hint(points, rows) }),
    grid: [{ left: 58, right: 14, top: 48, height: 190 }, { left: 58, right: 14, top: 286, height: 92 }],
    xAxis: [time({ gridIndex: 0, axisLabel: { show: false } }), time({ gridIndex: 1, name: t("load.seconds"), nameLocation: "middle", nameGap: 28 })],
    yAxis: [
      axis({ type: "value", gridIndex: 0, min: 0, max: pool.usable_blocks, axisLabel: { formatter: short, showMaxLabel: false } }),
      axis({ type: "value", gridIndex: 1, min: 0, minInterval: 1, splitNumber: 3, axisLabel: { formatter: short } }),
    ],
    series: [
      area(t("load.block.used"), 1, colour("s1"), 0.75), area(t("load.block.cached"), 2, colour("s6"), 0.3), area(t("load.block.free"), 3, colour("grid"), 0.6),
      line(t("load.running"), 4, colour("s4"), "solid"), line(t("load.waiting"), 5, colour("s2"), "dashed"),
    ],
  };
}

/** The instant from which the pool is nearly full. */
function marks(pool) {
  const data = [];
  if (pool.first_full_s !== null) data.push({ xAxis: pool.first_full_s, name: t("load.full.mark") });
  return { silent: true, symbol: "none", animation: false, lineStyle: { color: colour("bad"), type: "dashed", width: 1.2 }, label: { formatter: "{b}", color: colour("bad"), position: "end" }, data };
}

function hint(points, rows) {
  const row = rows[points[0]?.dataIndex];
  if (!row) return "";
  const names = ["load.block.used", "load.block.cached", "load.block.free", "load.running", "load.waiting"];
  return `<b>${safe(seconds(row[0]))}</b>${names.map((key, place) => `<div>${safe(t(key))}: ${safe(count(row[place + 1]))}</div>`).join("")}`;
}

/** "12.5k" for an axis. */
const short = (value) => (value >= 1e6 ? `${number(value / 1e6)}M` : value >= 1e5 ? `${number(value / 1e3)}k` : number(value));
